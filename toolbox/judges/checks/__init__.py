"""Checks, which judge the files and metrics of an attempt. `check: files` in the configuration names `files.py`.

Each module defines a pydantic model named `Check` that implements `toolbox.ground.extensions.protocols.Check`. A check
does not import another check, so the parts that several checks share are here.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, FiniteFloat

from toolbox.ground.model.evidence import Evidence, Judgement
from toolbox.records.runs.evidence_files import LineText, RelativeFile, search
from toolbox.records.runs.layout import AttemptDirectory


def _not_a_boolean(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a bound is a number, not `true` or `false`")  # noqa: TRY004  # pydantic reports it
    return value


Limit = Annotated[FiniteFloat, BeforeValidator(_not_a_boolean)]
"""A lower or upper bound. YAML reads `on` and `yes` as true, which pydantic would read as the number 1."""


class LogText(BaseModel):
    """A text to search for in the lines of a log. The check fails if the log does not exist."""

    model_config = ConfigDict(extra="forbid")

    file: RelativeFile = AttemptDirectory.stdout
    text: LineText

    def search(self, evidence: Evidence, *, is_expected: bool) -> Judgement:
        """Return the judgement, with the first line that contains the text.

        Args:
            is_expected: whether the check passes if a line contains the text, or if no line contains it.
        """
        try:
            match = next(search(evidence.directory, self.file, re.escape(self.text)), None)
        except ValueError as error:
            return Judgement(False, str(error))
        if match is None:
            return Judgement(not is_expected, f"{self.text!r} is not in {self.file}", self.file)
        message = f"{self.text!r} is in {self.file}:{match.line}: {match.excerpt}"
        return Judgement(is_expected, message, self.file, match.line)
