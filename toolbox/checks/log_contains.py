"""A text in a log, with the line that holds it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from toolbox.model.evidence import Evidence, Judgement


class Check(BaseModel):
    """A text that some line of a log has to hold."""

    model_config = ConfigDict(extra="forbid")

    file: str
    text: str = Field(min_length=1)

    def judge(self, evidence: Evidence) -> Judgement:
        """Look for the text, line by line."""
        log = evidence.directory / self.file
        if not log.is_file():
            return Judgement(False, f"{self.file} is not there")
        with log.open(encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, start=1):
                if self.text in line:
                    return Judgement(True, f"{self.text!r} is in {self.file}:{number}")
        return Judgement(False, f"{self.text!r} is not in {self.file}")
