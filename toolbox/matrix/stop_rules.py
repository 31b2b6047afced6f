"""When a matrix stops: after too many failures it starts no more cells, and in an outage it retries none."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from toolbox.model.verdicts import UNEXPECTED, Cause, Verdict
from toolbox.runs.steps import Outcome

_OUTAGE_SHARE: Final = 1 / 3


@dataclass(slots=True)
class StopRules:
    """Decides whether a matrix goes on.

    Args:
        cells: the number of cells of the plan.
        max_failures: the number of failed cells after which no more are started; None for no limit.
        stopped: the reason why no more cells are started; empty as long as cells are started.
        outage: the reason why failed attempts are no longer tried again; empty as long as they are.
    """

    cells: int
    max_failures: int | None
    stopped: str = ""
    outage: str = ""
    _failures: int = 0
    _broken: set[str] = field(default_factory=set)

    def note_attempt(self, cell: str, outcome: Outcome, *, is_adopted: bool) -> bool:
        """Record the outcome of an attempt, and return whether an outage begins with this attempt.

        Args:
            is_adopted: whether the attempt was submitted before the run was resumed. Its loss is not counted: after a
                power failure all attempts are lost, and all may be tried again.
        """
        if outcome.cause is Cause.INFRASTRUCTURE and not is_adopted:
            self._broken.add(cell)
        else:
            self._broken.discard(cell)
        count = len(self._broken)
        if self.outage or count <= max(1, self.cells * _OUTAGE_SHARE):
            return False
        self.outage = f"this is an outage: {count} of {self.cells} cells failed for infrastructure; no more retries"
        return True

    def note_end(self, verdict: Verdict) -> bool:
        """Record the verdict of a cell that is not in quarantine, and return whether the matrix stops because of it."""
        if verdict not in UNEXPECTED:
            return False
        self._failures += 1
        if self.max_failures is None or self._failures < self.max_failures or self.stopped:
            return False
        count = "a cell" if self._failures == 1 else f"{self._failures} cells"
        self.stopped = f"{count} did not pass: nothing more was started"
        return True
