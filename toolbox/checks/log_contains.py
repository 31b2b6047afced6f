"""Checks that a log contains a text, and shows the first line that contains it."""

from __future__ import annotations

import re

from pydantic import BaseModel, ConfigDict

from toolbox.model.evidence import Evidence, Judgement
from toolbox.runs.evidence_files import LineText, RelativeFile, search
from toolbox.runs.layout import AttemptDirectory


class Check(BaseModel):
    """A text that at least one line of a log must contain."""

    model_config = ConfigDict(extra="forbid")

    file: RelativeFile = AttemptDirectory.stdout
    text: LineText

    def judge(self, evidence: Evidence) -> Judgement:
        """Search the log line by line."""
        try:
            match = next(search(evidence.directory, self.file, re.escape(self.text)), None)
        except ValueError as error:
            return Judgement(False, str(error))
        if match is None:
            return Judgement(False, f"{self.text!r} is not in {self.file}", self.file)
        message = f"{self.text!r} is in {self.file}:{match.line}: {match.excerpt}"
        return Judgement(True, message, self.file, match.line)
