"""Checks that a log does not contain a text, and shows the first line that contains it."""

from __future__ import annotations

from toolbox.ground.model.evidence import Evidence, Judgement
from toolbox.judges.checks import LogText


class Check(LogText):
    """A text that no line of a log may contain. The check fails if the log does not exist."""

    def judge(self, evidence: Evidence) -> Judgement:
        """Search the log line by line."""
        return self.search(evidence, is_expected=False)
