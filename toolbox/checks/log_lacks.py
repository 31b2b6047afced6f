"""Checks that a log does not contain a text, and shows the first line that contains it."""

from __future__ import annotations

import re

from pydantic import BaseModel, ConfigDict

from toolbox.model.evidence import Evidence, Judgement
from toolbox.runs.evidence_files import LineText, RelativeFile, search
from toolbox.runs.layout import AttemptDirectory


class Check(BaseModel):
    """A text that no line of a log may contain. The check fails if the log does not exist."""

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
            return Judgement(True, f"{self.text!r} is not in {self.file}", self.file)
        message = f"{self.text!r} is in {self.file}:{match.line}: {match.excerpt}"
        return Judgement(False, message, self.file, match.line)
