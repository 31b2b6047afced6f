"""Runs the cells of a plan: starts each cell when a target has free capacity, and follows the cell to its verdict.

The thread that calls `Scheduler.run` makes and records all decisions. `TargetCalls` waits for targets in worker
threads, so this thread never blocks. `Admission` decides which cell starts next. `resumption` decides how a resumed run
continues a cell. `Comparisons` decides when a cell is compared with other cells. `StopRules` decides when to stop.
`AttemptCleanup` removes what attempts leave on targets.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Final

from toolbox.ground.model.clusters import Access
from toolbox.ground.model.errors import ToolboxError, describe
from toolbox.ground.model.events import MatrixPlanned, Note, ResultReused, StepKind
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.ground.model.workloads import Handle
from toolbox.ground.system import cancellation, environ, signals
from toolbox.matrix import resumption
from toolbox.matrix.admission import Admission
from toolbox.matrix.attempt_cleanup import AttemptCleanup
from toolbox.matrix.budget import Budget
from toolbox.matrix.cell_run import CellResult, CellRun, CellState, Conclusion, reused_outcome
from toolbox.matrix.comparisons import Comparisons
from toolbox.matrix.plan import Cell, Plan
from toolbox.matrix.pools import Pools
from toolbox.matrix.resumption import Beginning
from toolbox.matrix.stop_rules import StopRules
from toolbox.matrix.target_calls import TargetCalls
from toolbox.matrix.unattended_attempts import RemainingAttempt
from toolbox.records.runs.layout import StepDirectory
from toolbox.records.runs.steps import Outcome, Step

log = logging.getLogger(__name__)

_POLL_SECONDS: Final = 0.1
_SIGNAL_SECONDS: Final = 1.0  # the interval of checks for a signal that another thread has received
_STOP_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Options:
    """How to run a plan.

    Args:
        jobs: the number of cells that run at once; None for the number in the plan, or else one cell per target.
        fail_fast: cancel the run at the first cell that does not pass.
        max_failures: start no more cells after this number of failures.
        max_cost: start no cells that would make the run cost more than this; None for the limit in the plan.
        rerun_failed: repeat the cells that did not pass before the run was resumed.
    """

    jobs: int | None = None
    fail_fast: bool = False
    max_failures: int | None = None
    max_cost: float | None = None
    rerun_failed: bool = False


class Scheduler:
    """Runs the cells of one plan, once.

    Args:
        step: the step that encloses the cells.
        variables: environment variables of workloads on this machine.
        budget: what the run may still spend; None for no limit.
    """

    def __init__(
        self,
        plan: Plan,
        options: Options,
        step: Step,
        variables: Mapping[str, str],
        clusters: Mapping[str, Access] | None = None,
        *,
        budget: Budget | None = None,
    ) -> None:
        self._plan = plan
        self._options = options
        self._step = step
        self._jobs = options.jobs or plan.jobs or max(1, len(plan.targets))
        self._pools = Pools(plan.targets, self._jobs, plan.pools)
        self._budget = budget
        self._admission = Admission(self._pools, budget)
        self._calls = TargetCalls(
            plan.targets, step.recorder, variables, clusters or {}, jobs=self._jobs, on_change=self._check_status
        )
        self._cleanup = AttemptCleanup(plan, step.recorder, self._calls, self._admission.unblock)
        self._comparisons = Comparisons(plan)
        self.rules = StopRules(len(plan.cells), 1 if options.fail_fast else options.max_failures)
        past = step.recorder.past
        keys = {cell.id: f"{step.key}/{cell.id}" for cell in plan.cells}
        self._earlier = {cell: past.latest[key] for cell, key in keys.items() if key in past.latest}  # by cell id
        self._running: dict[str, CellRun] = {}  # attempts between start and conclusion, by the name of the attempt
        self._open_runs: list[CellRun] = []  # attempts that may be running although this session does not wait for them
        self._images = past.images  # the digests of the images of earlier attempts, by image name
        self._is_ending = False  # whether the running attempts are being ended
        self.results: dict[str, CellResult] = {}

    def run(self) -> None:
        """Run the cells until all have ended, or until the run ends.

        Raises:
            Cancelled: the run ends early. All attempts that were running have been ended.
            ToolboxError: the run cannot continue, for example because its journal cannot be written.
        """
        cells = self._plan.cells
        beginnings = [
            resumption.beginning(cell, self._earlier.get(cell.id), rerun_failed=self._options.rerun_failed)
            for cell in cells
        ]
        done = beginnings.count(Beginning.DONE)
        self._step.recorder.record(MatrixPlanned(self._step.identity, len(cells), self._jobs, done))
        unwatched = cancellation.current().add(self._calls.wake)
        with signals.deferred(self._calls.wake):
            try:
                for cell, beginning in zip(cells, beginnings, strict=True):
                    self._begin_cell(cell, beginning)
                self._cleanup.discard(self._admission.blocking)
                self._loop()
                self._cleanup.discard(self._admission.blocking)
                self._calls.settle()
                self._cleanup.teardown_run()
            except BaseException as error:
                with signals.shielded():
                    self._stop(describe(error))
                    self._calls.settle()
                    self._cleanup.teardown_run()
                raise
            finally:
                unwatched()
                self._calls.close()

    def _loop(self) -> None:
        while True:
            self._start_attempts()
            if not self._running and self._admission.is_idle(is_stopped=bool(self.rules.stopped)):
                self._close_uncompared()
                return
            self._calls.handle_results(self._admission.due_in(_SIGNAL_SECONDS))
            signals.check()
            cancellation.current().check()

    # From the start of a cell to the start of its attempt

    def _begin_cell(self, cell: Cell, beginning: Beginning) -> None:
        if cell.id in self._earlier:
            self._cleanup.release_past(self._earlier[cell.id])
        match beginning:
            case Beginning.NEW:
                self._admission.add(cell)
            case Beginning.SKIP:
                self._close(self._open(cell), Outcome(Verdict.SKIPPED, None, cell.skip), Conclusion(None))
            case Beginning.REUSE:
                self._close(self._open_reused(cell), reused_outcome(cell), Conclusion(None))
            case Beginning.DONE:
                self._restore(cell)
            case Beginning.AGAIN:
                self._admission.add_again(self._open(cell))
            case Beginning.CLEAR:
                self._admission.block(self._open(cell))
            case Beginning.ADOPT:
                run = self._open_adopted(cell, CellState.STARTING)
                self._count_adopted(run)
                self._calls.start(run, partial(self._started, run), partial(self._conclude, run))
            case Beginning.JUDGE:
                run = self._open_adopted(cell, CellState.JUDGING)
                run.history.pop()
                self._conclude(run, resumption.concluded(cell, self._earlier[cell.id]))

    def _restore(self, cell: Cell) -> None:
        """Load the result of a cell that ended in an earlier session."""
        result, uncompared = resumption.restored(cell, self._earlier[cell.id], self._step.recorder.root)
        self.results[cell.id] = result
        if result.counts:
            self._step.add(result.outcome)
        if result.outcome.verdict is not Verdict.SKIPPED:
            attempts = self._earlier[cell.id].attempts
            directory = StepDirectory(result.directory).attempt(attempts[-1].attempt).path if attempts else None
            self._comparisons.note(cell.id, uncompared, result.metrics, directory)

    def _open(self, cell: Cell) -> CellRun:
        step = self._step.locate(cell.name, StepKind.CELL, identity=cell.id)
        run = CellRun(cell, step, self._step, self._step.recorder.root.name)
        if step.earlier is not None:
            run.remember(step.earlier)
        run.begin()
        return run

    def _open_reused(self, cell: Cell) -> CellRun:
        """Open a cell that takes the result of an earlier run, and record the name of that run."""
        run = self._open(cell)
        reuse = cell.reuse
        self._step.recorder.record(ResultReused(run.step.identity, reuse.run, reuse.directory), sync=False)
        return run

    def _open_adopted(self, cell: Cell, state: CellState) -> CellRun:
        """Open a cell whose latest attempt was submitted by an earlier session."""
        run = self._open(cell)
        run.is_adopted = True
        run.become(state)
        self._begin_attempt(run)
        return run

    def _count_adopted(self, run: CellRun) -> None:
        """Count an attempt of an earlier session in the budget, with the time for which it has already run."""
        if self._budget is not None:
            attempt = self._earlier[run.cell.id].attempts[-1]
            elapsed = (datetime.now(UTC) - attempt.submitted).total_seconds()
            self._budget.begin(run.name, run.cell, run.target, seconds=0.0 if attempt.waiting else max(0.0, elapsed))

    def _start_attempts(self) -> None:
        self._admission.end_pauses()
        while not self.rules.stopped:
            for cell, earlier in self._admission.withdraw_unaffordable():
                self._close_unaffordable(cell, earlier)
            if (chosen := self._admission.next()) is None:
                return
            cell, earlier, target = chosen
            if self.rules.outage and earlier is not None and earlier.history and not earlier.is_unconfirmed:
                self._give_up(earlier)
                continue
            run = earlier or self._open(cell)
            run.submit(target)
            self.rules.note_start(cell.id)
            self._begin_attempt(run)
            if self._budget is not None:
                self._budget.begin(run.name, cell, target)
            self._calls.start(run, partial(self._started, run), partial(self._conclude, run))

    def _begin_attempt(self, run: CellRun) -> None:
        self._pools.reserve(run.target, run.cell)
        self._cleanup.note_attempt(run.target)
        self._running[run.name] = run

    # An attempt, from its start to its conclusion

    def _started(self, run: CellRun, handle: Handle) -> None:
        run.handle = handle
        run.become(CellState.RUNNING)
        self._pools.mark_reachable(run.target)
        if self._is_ending:
            self._calls.cancel(run)
        self._check_status(run.name)

    def _check_status(self, name: str) -> None:
        run = self._running.get(name)
        if run is None or run.state is not CellState.RUNNING:
            return
        status = self._calls.status(run)
        if not status.state.is_over:
            run.note_waiting(status.message)
            if self._budget is not None:
                self._budget.pay(name, is_paid=not run.waiting)
        else:
            run.become(CellState.JUDGING)
            self._calls.collect(run, status, partial(self._conclude, run))

    def _conclude(self, run: CellRun, conclusion: Conclusion) -> None:
        """Record the conclusion of an attempt, and compare the cell with other cells if all other checks passed."""
        conclusion = self._with_image_remark(conclusion)
        del self._running[run.name]
        self._pools.release(run.target, run.cell)
        if self._budget is not None:
            seconds = conclusion.seconds if conclusion.paid_seconds is None else conclusion.paid_seconds
            self._budget.end(run.name, seconds=seconds or None)
        outcome = run.combined_outcome(conclusion)
        if outcome.verdict is Verdict.CANCELLED and self._is_ending:
            outcome = replace(outcome, message=f"the attempt was cancelled: {self.rules.stopped}")
        if run.state is CellState.STARTING and outcome.cause in (Cause.INFRASTRUCTURE, Cause.CONFIGURATION):
            self._pools.mark_unreachable(run.target)
        if outcome.verdict is not Verdict.PASSED:
            self._end(run, conclusion, outcome)
            return
        self._comparisons.note(run.cell.id, outcome, conclusion.metrics, run.directory)
        if self._comparisons.postpone(run, conclusion):
            run.become(CellState.COMPARING)
        else:
            self._compare(run, conclusion)
        self._compare_waiting(run.cell.id)

    def _with_image_remark(self, conclusion: Conclusion) -> Conclusion:
        """Add a remark if an earlier attempt of the run had another image under the same name."""
        name, _, digest = conclusion.image.partition("@")
        if not digest or (earlier := self._images.setdefault(name, digest)) == digest:
            return conclusion
        text = f"the image {name} is {digest}, but was {earlier} in an earlier attempt of the run"
        return replace(conclusion, remark="; ".join(filter(None, [conclusion.remark, text])))

    def _compare(self, run: CellRun, conclusion: Conclusion) -> None:
        conclusion = self._comparisons.compared(run, conclusion)
        self._end(run, conclusion, run.combined_outcome(conclusion))

    def _compare_waiting(self, cell: str) -> None:
        """Compare the cells that were waiting for this cell."""
        for run, conclusion in self._comparisons.ready_after(cell):
            self._compare(run, conclusion)

    def _close_uncompared(self) -> None:
        """Close the cells that wait for a cell that does not end in this session. A resumed run compares them."""
        for run, conclusion, other in self._comparisons.withdraw():
            run.end(conclusion.outcome_before_comparisons(), conclusion, sync=True)
            message = f"the cell must be compared with `{other.name}`, which has not ended"
            self._close(run, Outcome(Verdict.CANCELLED, Cause.INTERRUPTED, message), conclusion)

    # The end of an attempt, and of a cell

    def _end(self, run: CellRun, conclusion: Conclusion, outcome: Outcome) -> None:
        """Record the end of an attempt. Another attempt may follow.

        Args:
            outcome: the outcome of the cell if no other attempt follows.
        """
        if conclusion.is_open:
            self._open_runs.append(run)
            outcome = replace(outcome, message=f"{outcome.message}\n{self._how_to_resume(run)}")
        else:
            attempt = outcome if outcome.verdict is Verdict.CANCELLED else conclusion.outcome_before_comparisons()
            run.end(attempt, conclusion, sync=self._cleanup.keeps(run.target))
            self._cleanup.release(run)
        lost_machine = conclusion.lost_machine
        if self.rules.note_attempt(run.cell.id, outcome, is_adopted=run.is_adopted, lost_machine=lost_machine):
            self._note(self.rules.outage)
            for each in self._admission.withdraw_paused(lambda paused: not paused.is_unconfirmed):
                self._give_up(each)
        if not outcome.verdict.is_pass and run.is_unconfirmed and self.rules.stopped:
            text = f"{outcome.message}\nthe deviation is not confirmed by another attempt: {self.rules.stopped}"
            outcome = Outcome(Verdict.CANCELLED, Cause.INTERRUPTED, text)
        is_over = self.rules.stopped or (self.rules.outage and not run.is_unconfirmed)
        is_final = outcome.verdict.is_pass or conclusion.is_open or is_over
        pause = None if is_final else run.seconds_until_retry()
        if pause is None:
            self._comparisons.note_end(run.cell.id, outcome, conclusion.metrics)
            self._close(run, outcome, conclusion)
            self._compare_waiting(run.cell.id)
        else:
            self._comparisons.forget(run.cell.id)
            self._admission.add_later(run, pause)

    def _how_to_resume(self, run: CellRun) -> str:
        command = f"{environ.program()} project resume {self._step.recorder.root}"
        return (
            f"attempt {run.attempt} stays open: `{command}` continues the attempt when `{run.target}` answers; "
            "with --abandon the attempt is given up, and the cell is tried again"
        )

    def _give_up(self, run: CellRun) -> None:
        """End a cell that waits for another attempt. Its outcome is the outcome of the latest attempt."""
        self._close(run, run.history[-1].outcome, Conclusion(None))

    def _close_unaffordable(self, cell: Cell, earlier: CellRun | None) -> None:
        """End a cell that would exceed the budget: skip it, or end it with the outcome of its latest attempt."""
        assert self._budget is not None, "only a budget makes cells unaffordable"
        reason = self._budget.refusal(cell)
        if not self.rules.over_budget:
            self.rules.over_budget = reason
            self._note(reason)
        run = earlier or self._open(cell)
        outcome = Outcome(Verdict.SKIPPED, None, reason)
        if run.history:
            latest = run.history[-1].outcome
            outcome = replace(latest, message=f"{latest.message}\nthe cell is not tried again: {reason}")
            if run.is_unconfirmed:
                text = f"{latest.message}\nthe deviation is not confirmed by another attempt: {reason}"
                outcome = Outcome(Verdict.CANCELLED, Cause.INTERRUPTED, text)
        self._comparisons.note_end(cell.id, outcome, {})
        self._close(run, outcome, Conclusion(None))
        self._compare_waiting(cell.id)

    def _close(self, run: CellRun, outcome: Outcome, conclusion: Conclusion) -> None:
        """Record the end of a cell."""
        cell = run.cell
        outcome = run.finish(outcome, conclusion)
        self.results[cell.id] = CellResult(
            cell.name, cell.settings, outcome, conclusion.metrics, run.step.directory, run.attempt, run.step.counts
        )
        if run.step.counts and self.rules.note_end(outcome.verdict):
            self._note(self.rules.stopped)
            self._close_waiting(self.rules.stopped)
            if self._options.fail_fast:
                self._end_running(self.rules.stopped)

    # When to stop

    def _note(self, text: str) -> None:
        self._step.recorder.record(Note(self._step.identity, text))

    def _close_waiting(self, reason: str) -> None:
        """Close the cells that wait for another attempt, which will not be started."""
        for run in self._admission.withdraw():
            self._close(run, Outcome(Verdict.CANCELLED, Cause.INTERRUPTED, reason), Conclusion(None))

    def _end_running(self, reason: str) -> None:
        self._is_ending = True
        self._calls.stop_starting(reason)
        for run in list(self._running.values()):
            self._calls.cancel(run)

    def _stop(self, reason: str) -> None:
        """End the running attempts, and wait until they have ended."""
        self.rules.stopped = reason
        deadline = time.monotonic() + _STOP_SECONDS
        self._end_running(reason)
        try:
            self._close_waiting(reason)
            while self._running and time.monotonic() < deadline:
                self._calls.handle_results(_SIGNAL_SECONDS)
            self._end_open_attempts()
            self._close_uncompared()
        except (OSError, ToolboxError) as error:
            log.warning("the run ends without a record of all its cells: %s", describe(error))
            self._wait_unrecorded(deadline)

    def _end_open_attempts(self) -> None:
        by_target: dict[str, list[RemainingAttempt]] = {}
        for run in self._open_runs:
            by_target.setdefault(run.target, []).append(
                RemainingAttempt(run.step.identity, run.attempt, run.name, run.target, run.cell.workload, run.directory)
            )
        for target, attempts in by_target.items():
            self._calls.end_open(target, attempts)

    def _wait_unrecorded(self, deadline: float) -> None:
        while time.monotonic() < deadline:
            runs = [run for run in self._running.values() if run.state is CellState.RUNNING]
            if all(self._calls.status(run).state.is_over for run in runs):
                return
            time.sleep(_POLL_SECONDS)
