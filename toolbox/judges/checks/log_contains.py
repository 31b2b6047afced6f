"""Checks that a log contains a text, and shows the first line that contains it."""

from __future__ import annotations

from toolbox.ground.model.evidence import Evidence, Judgement
from toolbox.judges.checks import LogText


class Check(LogText):
    """A text that at least one line of a log must contain."""

    def judge(self, evidence: Evidence) -> Judgement:
        """Search the log line by line."""
        return self.search(evidence, is_expected=True)
