"""Removes what attempts leave on their targets: files, processes, objects of a cluster.

The removal runs in worker threads. If a target does not answer, a resumed run tries the removal again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from toolbox.ground.model.events import AttemptReleased
from toolbox.ground.model.workloads import Handle
from toolbox.matrix import unattended_attempts
from toolbox.matrix.cell_run import CellRun
from toolbox.matrix.plan import Plan
from toolbox.matrix.target_calls import TargetCalls
from toolbox.records.runs.layout import RunDirectory
from toolbox.records.runs.recorder import Recorder
from toolbox.records.runs.run_state import StepState


class AttemptCleanup:
    """Removes what the attempts of one run leave on its targets.

    Args:
        on_removal: called with the name of a target after the removal of abandoned attempts has been tried there.
    """

    def __init__(self, plan: Plan, recorder: Recorder, calls: TargetCalls, on_removal: Callable[[str], None]) -> None:
        self._plan = plan
        self._recorder = recorder
        self._calls = calls
        self._on_removal = on_removal
        self._attempts_on: Counter[str] = Counter()  # the number of attempts on each target that keeps attempts
        self._removing: set[str] = set()  # targets from which abandoned attempts are being removed

    def keeps(self, target: str) -> bool:
        """Return whether a target keeps the remains of attempts until they are removed."""
        return target in self._plan.targets and self._plan.targets[target].description.keeps_attempts

    def note_attempt(self, target: str) -> None:
        """Record that an attempt is about to be submitted to a target."""
        if self.keeps(target):
            self._attempts_on[target] += 1

    def release(self, run: CellRun) -> None:
        """Remove the remains of a cell's latest attempt from its target."""
        target = run.target
        if not self.keeps(target):
            return
        if run.handle is None:
            self._attempts_on[target] -= 1  # the attempt was never submitted
        else:
            released = AttemptReleased(run.step.identity, run.attempt)
            self._calls.release(target, run.handle, partial(self._note_removal, target, released))

    def release_past(self, earlier: StepState) -> None:
        """Remove the remains of attempts that ended in earlier sessions."""
        for attempt in earlier.attempts:
            if not self.keeps(attempt.target):
                continue
            self._attempts_on[attempt.target] += 0  # so that `teardown_run` includes the target
            if attempt.is_released or attempt.is_open:
                continue
            self.note_attempt(attempt.target)
            if attempt.is_abandoned:
                continue  # `discard` removes all abandoned attempts of a target together
            directory = RunDirectory(self._recorder.root).attempt(earlier.step, attempt.attempt).path
            handle, released = Handle(attempt.name, directory), AttemptReleased(earlier.step, attempt.attempt)
            self._calls.release(attempt.target, handle, partial(self._note_removal, attempt.target, released))

    def discard(self, waited_for: Iterable[str]) -> None:
        """Remove the remains of abandoned attempts.

        Args:
            waited_for: the targets for which blocked cells wait.
        """
        given_up = self._recorder.abandoned_attempts()
        for target, attempts in unattended_attempts.by_target(self._plan, self._recorder.root, given_up).items():
            if target not in self._removing:
                self._removing.add(target)
                removed, done = partial(self._note_removal, target), partial(self._discarded, target)
                self._calls.discard(target, attempts, removed, done)
        for target in waited_for:
            if target not in self._removing:
                self._on_removal(target)  # the configuration no longer has this target, so nothing can be removed

    def teardown_run(self) -> None:
        """Remove the remaining objects of the run from targets without attempts."""
        self._calls.teardown_run(target for target, count in self._attempts_on.items() if not count)

    def _note_removal(self, target: str, released: AttemptReleased) -> None:
        self._recorder.record(released, sync=False)
        if self.keeps(target):
            self._attempts_on[target] -= 1

    def _discarded(self, target: str) -> None:
        self._removing.discard(target)
        self._on_removal(target)
