"""Reads a metric from the lines of a log, with a regular expression."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from toolbox.ground.model import aggregates
from toolbox.ground.model.aggregates import Aggregate
from toolbox.records.runs.evidence_files import Expression, LogMatch, RelativeFile, search
from toolbox.records.runs.layout import AttemptDirectory

_LONGEST_NUMBER: Final = 40  # characters
_WITH_COMMA: Final = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]{3})*,[0-9]+|[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?)")
_NUMBER_END: Final = re.compile(r"[0-9.,]*\Z")
_NUMBER_BEGIN: Final = re.compile(r"[0-9.,]*")


class Source(BaseModel):
    r"""A regular expression that matches the numbers, such as `step_time (?P<value>[\d.e+-]+)`.

    The number is the group named `value`. Without such a group, it is the first group; without any group, it is the
    whole match. The first `warmup` matches are skipped, and need not be numbers. A match must not be a part of a number
    with a comma: `[\d.]+` would read `0,160` as 0 and 160.
    """

    model_config = ConfigDict(extra="forbid")

    file: RelativeFile = AttemptDirectory.stdout
    pattern: Expression
    aggregate: Aggregate = "median"
    warmup: int = Field(default=0, ge=0)

    def read(self, directory: Path) -> float | tuple[float, ...]:
        """Return the aggregate of the numbers of all matches.

        Raises:
            ValueError: the log cannot be read, too few lines match, or a match is not a finite number, or only a part
                of a number.
        """
        source = f"the matches of {self.pattern!r} in {self.file}"
        expression = re.compile(self.pattern)
        group = "value" if "value" in expression.groupindex else min(1, expression.groups)
        texts = (
            (found.line, (found.match[group] or "").strip(), _whole_number(found, group))
            for found in search(directory, self.file, self.pattern)
        )
        measured = aggregates.after_warmup(texts, self.warmup, source=source)
        numbers = [self._number(line, text, whole) for line, text, whole in measured]
        return aggregates.aggregate(numbers, self.aggregate, source=source)

    def _number(self, line: int, text: str, whole: str) -> float:
        source = f"{self.file}:{line}: the match of {self.pattern!r}"
        if text != whole:
            raise ValueError(f"{source} is {text}, a part of {whole}: write a decimal point, or match the comma too")
        return aggregates.parse_number(text, source=source)


def _whole_number(found: LogMatch, group: int | str) -> str:
    """Return the text of a match, or the number with a comma of which it is only a part.

    A pattern that also matches what is beside its group was written for this text, so that side is not looked at.
    """
    match, line = found.match, found.match.string
    text = (match[group] or "").strip()
    begin = line.find(text, max(0, match.start(group)))
    end = begin + len(text)
    if not text or "," not in line[max(0, begin - 1) : begin] + line[end : end + 1]:
        return text
    before = _NUMBER_END.search(line[max(0, begin - _LONGEST_NUMBER) : begin]) if begin == match.start() else None
    after = _NUMBER_BEGIN.match(line[end : end + _LONGEST_NUMBER]) if end == match.end() else None
    whole = f"{before[0] if before else ''}{text}{after[0] if after else ''}".strip(".,")
    return whole if _WITH_COMMA.fullmatch(whole) else text
