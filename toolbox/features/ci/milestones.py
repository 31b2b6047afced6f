"""Says how far the runs of a comment are: phases, the first failure, each quarter of the cells, leases, the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from toolbox.ground.model.events import (
    ClusterChosen,
    Event,
    LeaseAwaited,
    LeaseLost,
    MatrixPlanned,
    RunFinished,
    RunStarted,
    StepFinished,
    StepKind,
)
from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.text import duration, tally, truncate

_QUARTERS: Final = 4
_LONGEST: Final = 300


@dataclass(slots=True)
class Milestones:
    """The milestones of one or several runs.

    Args:
        past: the lines about milestones that were reached.
        cells: the number of planned cells of the current run.
        ended: the number of cells of the current run with each verdict.
        waiting: what the run waits for, by the name of the cluster.
    """

    past: list[str] = field(default_factory=list)
    cells: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    waiting: dict[str, str] = field(default_factory=dict)
    has_failure: bool = False

    @property
    def lines(self) -> Sequence[str]:
        """The lines to show: the milestones in their order, then what the run waits for."""
        return [truncate(" ".join(clean(line).split()), _LONGEST) for line in (*self.past, *self.waiting.values())]

    def apply(self, event: Event) -> bool:
        """Take an event into account. Return whether it is a milestone."""
        before = (len(self.past), dict(self.waiting))
        match event:
            case RunStarted():
                self.cells, self.has_failure = 0, False
                self.ended.clear()
                self.past.append(f"the run {event.run} has started")
            case MatrixPlanned():
                self.cells += event.cells - event.done
            case StepFinished():
                self._step(event)
            case LeaseAwaited():
                self.waiting[event.cluster] = f"waiting for the cluster {event.cluster}: {event.message}"
            case LeaseLost():
                self.past.append(f"the lease of {event.cluster} was lost: {event.message}")
            case ClusterChosen():
                if self.waiting.pop(event.cluster, None) is not None:
                    self.past.append(f"the wait for the cluster {event.cluster} is over")
            case RunFinished():
                self.waiting.clear()
                self.past.append(f"the run ended: {_verdict(event)} in {duration(event.seconds)}")
            case _:
                pass
        return before != (len(self.past), self.waiting)

    def _step(self, event: StepFinished) -> None:
        if event.counts and event.kind is not StepKind.PHASE and not event.verdict.is_pass and not self.has_failure:
            self.has_failure = True
            self.past.append(f"the first failure: {event.name}: {_verdict(event)}")
        if event.kind is StepKind.PHASE and "/" not in event.step:
            self.past.append(f"{event.name}: {_verdict(event)} in {duration(event.seconds)}")
        elif event.kind is StepKind.CELL:
            self._cell(event)

    def _cell(self, event: StepFinished) -> None:
        quarter = self._quarter()
        self.ended[event.verdict] += 1
        if self._quarter() > quarter:
            self.past.append(f"{self.ended.total()} of {self.cells} cells: {tally(self.ended, 0)}")

    def _quarter(self) -> int:
        return self.ended.total() * _QUARTERS // self.cells if self.cells else 0


def _verdict(event: StepFinished | RunFinished) -> str:
    return f"{event.verdict} ({event.cause})" if event.cause else str(event.verdict)
