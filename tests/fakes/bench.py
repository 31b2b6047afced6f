"""One run directory in which a matrix is run on fake machines, and run again as if it were resumed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.fakes.backend import Machines
from toolbox.matrix.plan import Plan, Selection
from toolbox.matrix.scheduler import Options, Scheduler
from toolbox.matrix.targets import PlannedTarget
from toolbox.model.events import AttemptEnded, AttemptSubmitted, CheckJudged, Event, Note, StepFinished, StepKind
from toolbox.model.workloads import TargetContext
from toolbox.runs import journal, run_reader, steps
from toolbox.runs.journal import Journal
from toolbox.runs.layout import RunDirectory
from toolbox.runs.recorder import Listener, Recorder
from toolbox.runs.steps import Step
from toolbox.system.redaction import Redactor

AT_ONCE: Final = {"backoff": {"first": 0.001, "most": 0.001}}
ONE_BY_ONE: Final = Options(jobs=1)
ALL: Final = Selection()


class Bench:
    """A run whose matrix has one axis, `x`. A cell is known by its value.

    Args:
        root: the run directory.
        planned: makes a plan of a matrix.
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
        **block: Any,
    ) -> Scheduler:
        """Run the cells; another time, go on with what the run did before.

        Args:
            x: the values of the axis.
            block: what else the matrix says.
        """
        matrix = {"axes": {"x": list(x)}, "retries": AT_ONCE, **block}
        plan = self._planned(matrix, *(targets or [machines.target("one")]), selection=selection)
        past = run_reader.fold(journal.read(self.root), self.root)
        with Journal(self.root) as opened:
            top = Step(self.root, Recorder(self.root, Redactor(), self.listeners, opened, past), "top")
            with steps.entered(top), steps.opened("test", kind=StepKind.PHASE) as step:
                scheduler = Scheduler(plan, options, step, {})
                scheduler.run()
        return scheduler

    def of(self, kind: type[Event]) -> list[Any]:
        """Return what was recorded of a kind, oldest first."""
        return [event for event in self.events if isinstance(event, kind)]

    def notes(self) -> list[str]:
        """Return the lines that a person is shown."""
        return [event.text for event in self.of(Note)]

    def ends(self) -> dict[str, StepFinished]:
        """Return how the cells ended, the last time."""
        return {event.name[2:]: event for event in self.of(StepFinished) if event.kind is StepKind.CELL}

    def verdicts(self) -> dict[str, str]:
        """Return their verdicts."""
        return {x: str(end.verdict) for x, end in self.ends().items()}

    def relation(self, x: str) -> tuple[bool | None, str]:
        """Return what the check said, the last time, that compares a cell with another one."""
        judged = [event for event in self.of(CheckJudged) if event.check == "relation" and event.step.endswith(f"={x}")]
        return judged[-1].passed, judged[-1].message

    def forget(self, event: type[Event], x: str = "") -> None:
        """Cut the journal before the first event of a kind (of a cell): as if the run had been killed there."""
        file = RunDirectory(self.root).journal
        lines = file.read_text().splitlines(keepends=True)
        signs = (f'"event": "{event.__name__}"', f'={x}"' if x else "")
        cut = next(index for index, line in enumerate(lines) if all(sign in line for sign in signs))
        file.write_text("".join(lines[:cut]))
        self.events.clear()

    def left_running(self, x: str, machines: Machines) -> Machines:
        """Begin to run cells, lose the orchestrator, and have the attempt of the first one run on the machines."""
        self.run(x, Machines())
        submitted = self.of(AttemptSubmitted)[0]
        self.forget(AttemptEnded, x[0])
        machines.submit(
            x[0], submitted.name, TargetContext("one", self.root.name, self.root, {}, tuple, lambda _: None)
        )
        return machines


def verdicts(scheduler: Scheduler) -> dict[str, str]:
    """Return the verdicts of the cells as the caller of the scheduler is told them."""
    return {result.name[2:]: str(result.outcome.verdict) for result in scheduler.results.values()}
