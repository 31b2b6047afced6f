"""Decides when a matrix stops: after too many failures no more cells start, and in an outage no attempt is repeated."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from toolbox.ground.model.verdicts import UNEXPECTED, Cause, Verdict
from toolbox.records.runs.steps import Outcome

_OUTAGE_SHARE: Final = 1 / 3


@dataclass(slots=True)
class StopRules:
    """Counts the failures of a matrix, and decides when to stop.

    Args:
        cells: the number of cells in the plan.
        max_failures: the number of failed cells after which no more cells are started; None for no limit.
        stopped: the reason why no more cells are started; empty as long as cells are started.
        outage: the reason why failed attempts are no longer repeated; empty as long as they are repeated.
        over_budget: the reason why some cells were not started because of their cost; empty as long as none were.
    """

    cells: int
    max_failures: int | None
    stopped: str = ""
    outage: str = ""
    over_budget: str = ""
    _failures: int = 0
    _broken: dict[str, str] = field(default_factory=dict)  # what broke each cell: a loss of a machine, or the cell
    _starts: dict[str, int] = field(default_factory=dict)  # the number of losses at the start of the latest attempt
    _losses: int = 0
    _latest_loss: dict[str, int] = field(default_factory=dict)  # by machine

    def note_start(self, cell: str) -> None:
        """Record that an attempt is submitted."""
        self._starts[cell] = self._losses

    def note_attempt(self, cell: str, outcome: Outcome, *, is_adopted: bool, lost_machine: str = "") -> bool:
        """Record the outcome of an attempt, and return whether an outage begins with this attempt.

        All attempts that one loss of a machine ended count once, because another attempt may run on another machine.

        Args:
            lost_machine: the name of the machine that was lost during the attempt; empty if none was.
            is_adopted: whether an earlier session submitted the attempt. If such an attempt is lost, this does not
                count towards an outage: after a power failure, all adopted attempts are lost, and an outage would
                prevent their retries.
        """
        if outcome.cause is Cause.INFRASTRUCTURE and not is_adopted:
            self._broken[cell] = self._loss(cell, lost_machine) if lost_machine else f"cell {cell}"
        else:
            self._broken.pop(cell, None)
        count = len(self._broken)
        if self.outage or len(set(self._broken.values())) <= max(1, self.cells * _OUTAGE_SHARE):
            return False
        self.outage = (
            f"outage: {count} of {self.cells} cells failed because of the infrastructure; cells are no longer retried"
        )
        return True

    def note_end(self, verdict: Verdict) -> bool:
        """Record the verdict of a cell that is not in quarantine, and return whether this verdict stops the matrix."""
        if verdict not in UNEXPECTED:
            return False
        self._failures += 1
        if self.max_failures is None or self._failures < self.max_failures or self.stopped:
            return False
        count = "a cell" if self._failures == 1 else f"{self._failures} cells"
        self.stopped = f"{count} did not pass: no more cells were started"
        return True

    def _loss(self, cell: str, machine: str) -> str:
        """Return which loss ended an attempt: the latest loss of the machine, or a new loss if it began later."""
        latest = self._latest_loss.get(machine)
        if latest is None or self._starts.get(cell, 0) >= latest:
            self._losses += 1
            latest = self._latest_loss[machine] = self._losses
        return f"loss {latest}"
