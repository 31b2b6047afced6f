"""Runs a matrix on fake machines in one run directory, and resumes that run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.fakes.backend import Machines
from tests.fakes.ledger import MemoryLedger
from toolbox.ground.model.events import (
    AttemptEnded,
    AttemptSubmitted,
    CheckJudged,
    Event,
    Note,
    StepFinished,
    StepKind,
)
from toolbox.ground.model.workloads import TargetContext
from toolbox.ground.system.redaction import Redactor
from toolbox.matrix import expected_costs
from toolbox.matrix.budget import Budget
from toolbox.matrix.plan import Plan, Selection
from toolbox.matrix.scheduler import Options, Scheduler
from toolbox.matrix.targets import PlannedTarget
from toolbox.orchestration import spending
from toolbox.records.results.records import EarlierTime
from toolbox.records.runs import journal, run_reader, steps
from toolbox.records.runs.journal import Journal
from toolbox.records.runs.layout import RunDirectory
from toolbox.records.runs.recorder import Listener, Recorder
from toolbox.records.runs.run_state import RunState
from toolbox.records.runs.steps import Step

AT_ONCE: Final = {"backoff": {"first": 0.001, "most": 0.001}}
ONE_BY_ONE: Final = Options(jobs=1)
ALL: Final = Selection()


class Bench:
    """A run whose matrix has one axis, `x`. A cell is identified by its value of `x`.

    Args:
        root: run directory.
        planned: function that makes a plan of a matrix.
    """

    def __init__(self, root: Path, planned: Callable[..., Plan]) -> None:
        self.root = root
        self._planned = planned
        self.events: list[Event] = []
        self.listeners: list[Listener] = [self.events.append]
        root.mkdir()

    def run(
        self,
        x: Any,
        machines: Machines,
        *targets: PlannedTarget,
        options: Options = ONE_BY_ONE,
        selection: Selection = ALL,
        max_cost: float | None = None,
        **block: Any,
    ) -> Scheduler:
        """Run the cells. Every later call resumes the run.

        Args:
            x: values of the axis.
            max_cost: the highest cost of the run. Each attempt is expected to take 1.5 s, as fake attempts do.
            block: further keys of the matrix.
        """
        matrix = {"axes": {"x": list(x)}, "retries": AT_ONCE, **block}
        plan = self._planned(matrix, *(targets or [machines.target("one")]), selection=selection)
        past = run_reader.fold(journal.read(self.root), self.root)
        with Journal(self.root) as opened:
            top = Step(self.root, Recorder(self.root, Redactor(), self.listeners, opened, past), "top")
            with steps.entered(top), steps.opened("test", kind=StepKind.PHASE) as step:
                scheduler = Scheduler(plan, options, step, {}, budget=_budget(plan, max_cost, past))
                scheduler.run()
        return scheduler

    def of(self, kind: type[Event]) -> list[Any]:
        """Return the recorded events of a type, oldest first."""
        return [event for event in self.events if isinstance(event, kind)]

    def notes(self) -> list[str]:
        """Return the notes that the terminal shows."""
        return [event.text for event in self.of(Note)]

    def ends(self) -> dict[str, StepFinished]:
        """Return the latest `StepFinished` of each cell, by value of `x`."""
        return {event.name[2:]: event for event in self.of(StepFinished) if event.kind is StepKind.CELL}

    def verdicts(self) -> dict[str, str]:
        """Return the latest verdict of each cell, by value of `x`."""
        return {x: str(end.verdict) for x, end in self.ends().items()}

    def relation(self, x: str) -> tuple[bool | None, str]:
        """Return whether a cell's latest check `relation` passed, and the message of that check."""
        judged = [event for event in self.of(CheckJudged) if event.check == "relation" and event.step.endswith(f"={x}")]
        return judged[-1].passed, judged[-1].message

    def forget(self, event: type[Event], x: str = "") -> None:
        """Cut the journal before the first event of a type, or of a type and a cell, as a kill at that moment would."""
        file = RunDirectory(self.root).journal
        lines = file.read_text().splitlines(keepends=True)
        signs = (f'"event": "{event.__name__}"', f'={x}"' if x else "")
        cut = next(index for index, line in enumerate(lines) if all(sign in line for sign in signs))
        file.write_text("".join(lines[:cut]))
        self.events.clear()

    def left_running(self, x: str, machines: Machines) -> Machines:
        """Leave the journal of a run that was killed during the first attempt, which still runs on `machines`."""
        self.run(x, Machines())
        submitted = self.of(AttemptSubmitted)[0]
        self.forget(AttemptEnded, x[0])
        machines.submit(
            x[0],
            submitted.name,
            TargetContext("one", self.root.name, self.root, {}, tuple, lambda _: None, MemoryLedger()),
        )
        return machines


def _budget(plan: Plan, max_cost: float | None, past: RunState) -> Budget | None:
    if max_cost is None:
        return None
    times = {(cell.id, target): EarlierTime(1.5, 9) for cell in plan.cells for target in cell.targets}
    costs = expected_costs.of_plan(plan, times, currency="USD")
    return Budget(max_cost, costs, spent=spending.spent(costs, past))


def verdicts(scheduler: Scheduler) -> dict[str, str]:
    """Return the verdicts of the cells in the results of the scheduler, by value of `x`."""
    return {result.name[2:]: str(result.outcome.verdict) for result in scheduler.results.values()}
