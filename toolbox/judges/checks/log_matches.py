"""Checks how many lines of a log match a regular expression, and shows the first matching line."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, model_validator

from toolbox.ground.model.evidence import Evidence, Judgement
from toolbox.records.runs.evidence_files import Expression, RelativeFile, search
from toolbox.records.runs.layout import AttemptDirectory


class Check(BaseModel):
    """A Python regular expression, and the number of lines that must match it. With `at_most: 0`, no line may match."""

    model_config = ConfigDict(extra="forbid")

    file: RelativeFile = AttemptDirectory.stdout
    pattern: Expression
    at_least: int = Field(default=1, ge=0)
    at_most: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _can_pass_and_fail(self) -> Check:
        if self.at_most == 0 and "at_least" not in self.model_fields_set:
            self.at_least = 0
        if self.at_most is not None and self.at_least > self.at_most:
            raise ValueError(f"`at_least` is {self.at_least}, which is more than `at_most`, {self.at_most}")
        if self.at_most is None and self.at_least == 0:
            raise ValueError("`at_least: 0` accepts every log: set `at_most` too")
        return self

    def judge(self, evidence: Evidence) -> Judgement:
        """Count the lines that match."""
        first, count, last_line = None, 0, 0
        try:
            for match in search(evidence.directory, self.file, self.pattern):
                first = first or match
                count += match.line != last_line
                last_line = match.line
        except ValueError as error:
            return Judgement(False, str(error))
        passed = self.at_least <= count and (self.at_most is None or count <= self.at_most)
        message = f"{count} lines of {self.file} match {self.pattern!r}; required: {self._expected()}"
        if first is None:
            return Judgement(passed, message, self.file)
        return Judgement(passed, f"{message}; the first is line {first.line}: {first.excerpt}", self.file, first.line)

    def _expected(self) -> str:
        if self.at_most is None:
            return f"at least {self.at_least}"
        if self.at_least == self.at_most:
            return f"exactly {self.at_least}"
        return f"{self.at_least} to {self.at_most}"
