"""Reads a metric from the lines of a log, with a regular expression."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from toolbox.model import aggregates
from toolbox.model.aggregates import Aggregate
from toolbox.runs.evidence_files import Expression, RelativeFile, search
from toolbox.runs.layout import AttemptDirectory


class Source(BaseModel):
    r"""A regular expression that matches the numbers, such as `step_time (?P<value>[\d.e+-]+)`.

    The number is the group named `value`. Without such a group, it is the first group; without any group, it is the
    whole match. The first `warmup` matches are skipped, and need not be numbers.
    """

    model_config = ConfigDict(extra="forbid")

    file: RelativeFile = AttemptDirectory.stdout
    pattern: Expression
    aggregate: Aggregate = "median"
    warmup: int = Field(default=0, ge=0)

    def read(self, directory: Path) -> float | tuple[float, ...]:
        """Return the aggregate of the numbers of all matches.

        Raises:
            ValueError: the log cannot be read, too few lines match, or a match is not a finite number.
        """
        source = f"the matches of {self.pattern!r} in {self.file}"
        expression = re.compile(self.pattern)
        group = "value" if "value" in expression.groupindex else min(1, expression.groups)
        texts = ((match.line, match.match[group]) for match in search(directory, self.file, self.pattern))
        measured = aggregates.after_warmup(texts, self.warmup, source=source)
        numbers = [
            aggregates.parse_number(text or "", source=f"{self.file}:{line}: the match of {self.pattern!r}")
            for line, text in measured
        ]
        return aggregates.aggregate(numbers, self.aggregate, source=source)
