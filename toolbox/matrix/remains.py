"""What attempts leave on their targets (files, processes, objects of a cluster), and its removal.

Removal happens in other threads. A target that does not answer keeps what is there; a resumed run tries again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from toolbox.matrix import abandoned
from toolbox.matrix.abandoned import Left
from toolbox.matrix.cell_progress import CellRun
from toolbox.matrix.executions import Executions
from toolbox.matrix.plan import Plan
from toolbox.model.events import AttemptReleased
from toolbox.model.workloads import Handle
from toolbox.runs.layout import RunDirectory
from toolbox.runs.recorder import Recorder
from toolbox.runs.run_state import StepState


class Remains:
    """What the attempts of one run have on its targets.

    Args:
        on_removal: called with a target when the removal of abandoned attempts from it has been tried.
    """

    def __init__(
        self, plan: Plan, recorder: Recorder, executions: Executions, on_removal: Callable[[str], None]
    ) -> None:
        self._plan = plan
        self._recorder = recorder
        self._executions = executions
        self._on_removal = on_removal
        self._held_by: Counter[str] = Counter()  # attempts per target; only targets that keep attempts
        self._removing: set[str] = set()  # targets from which abandoned attempts are being removed

    def keeps(self, target: str) -> bool:
        """Return whether a target keeps what an attempt leaves until that is removed."""
        return target in self._plan.targets and self._plan.targets[target].description.keeps_attempts

    def hold(self, target: str) -> None:
        """Record that an attempt is about to be on a target."""
        if self.keeps(target):
            self._held_by[target] += 1

    def release(self, run: CellRun) -> None:
        """Remove the latest attempt of a cell from its target."""
        target = run.target
        if not self.keeps(target):
            return
        if run.handle is None:
            self._held_by[target] -= 1  # it never was there
        else:
            self._release(target, run.handle, AttemptReleased(run.step.identity, run.attempt))

    def release_past(self, before: StepState) -> None:
        """Remove the attempts of a cell that ended before the run was resumed."""
        for attempt in before.attempts:
            if not self.keeps(attempt.target):
                continue
            self._held_by[attempt.target] += 0  # the run may have left more than attempts there
            if attempt.is_released or attempt.is_open:
                continue
            self.hold(attempt.target)
            if attempt.is_abandoned:
                continue  # `discard` removes all of a target at once
            directory = RunDirectory(self._recorder.root).attempt(before.step, attempt.attempt).path
            handle = Handle(attempt.name, directory)
            self._release(attempt.target, handle, AttemptReleased(before.step, attempt.attempt))

    def discard(self, waited_for: Iterable[str]) -> None:
        """Remove the attempts that a person has given up.

        Args:
            waited_for: targets for whose removal cells wait. They wait until it has been tried once.
        """
        given_up = self._recorder.abandoned_attempts()
        for target, found in abandoned.left(self._plan, self._recorder.root, given_up).items():
            if target not in self._removing:
                self._removing.add(target)
                self._executions.discard(target, found, self._released_abandoned, partial(self._discarded, target))
        for target in waited_for:
            if target not in self._removing:
                self._on_removal(target)  # the run no longer has such a target

    def teardown_run(self) -> None:
        """Remove what else the run has on targets where it has no attempt any more."""
        self._executions.teardown_run(target for target, count in self._held_by.items() if not count)

    def _release(self, target: str, handle: Handle, event: AttemptReleased) -> None:
        def done() -> None:
            self._recorder.record(event, sync=False)
            self._held_by[target] -= 1

        self._executions.release(target, handle, done)

    def _released_abandoned(self, left: Left) -> None:
        left.note_removal(self._recorder)
        if self.keeps(left.target):
            self._held_by[left.target] -= 1

    def _discarded(self, target: str) -> None:
        self._removing.discard(target)
        self._on_removal(target)
