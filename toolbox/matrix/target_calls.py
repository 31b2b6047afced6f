"""Runs the blocking parts of attempts in worker threads: starts attempts, fetches their files, judges them.

Each result and each notification of a backend is put into one queue, which the thread of the scheduler reads. The
number of worker threads does not depend on the number of cells.
"""

from __future__ import annotations

import contextvars
import logging
import queue
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from toolbox.ground.extensions.protocols import Backend, teardown_of
from toolbox.ground.model.clusters import Access
from toolbox.ground.model.errors import (
    Cancelled,
    FilesLost,
    Interrupted,
    LimitExceeded,
    StepError,
    SubmissionUnknown,
    ToolboxError,
    describe,
    outcome_of,
)
from toolbox.ground.model.events import AttemptReleased, Note
from toolbox.ground.model.evidence import Evidence
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.ground.model.workloads import AttemptState, AttemptStatus, EndedBy, Handle, WorkloadOutcome
from toolbox.ground.system import cancellation, signals
from toolbox.ground.system.cancellation import CancelScope
from toolbox.matrix import attempt_judgement, unattended_attempts
from toolbox.matrix.cell_run import CellRun, Conclusion
from toolbox.matrix.targets import PlannedTarget
from toolbox.matrix.unattended_attempts import RemainingAttempt
from toolbox.records.runs.recorder import Recorder
from toolbox.records.runs.steps import Outcome
from toolbox.targets import staging

log = logging.getLogger(__name__)

Result = TypeVar("Result")
_MAX_THREADS: Final = 32
_CANCEL_SECONDS: Final = 2.0  # how long cancelled work may take to end; some targets need this time
_JUDGED: Final = (EndedBy.EXIT, EndedBy.SIGNAL)  # the checks decide the outcome, which does not contain the message


class TargetCalls:
    """The attempts of a run on their targets.

    Args:
        variables: environment variables of workloads on this machine.
        on_change: called with the name of an attempt whose status has changed, in the thread that calls
            `handle_results`.
    """

    def __init__(
        self,
        targets: Mapping[str, PlannedTarget],
        recorder: Recorder,
        variables: Mapping[str, str],
        clusters: Mapping[str, Access],
        *,
        jobs: int,
        on_change: Callable[[str], None],
    ) -> None:
        self._targets = targets
        self._recorder = recorder
        self._variables = variables
        self._clusters = clusters
        self._on_change = on_change
        self._results: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        # Starts have threads of their own, because a start may wait long for a target that does not answer.
        self._starters = ThreadPoolExecutor(min(_MAX_THREADS, jobs), thread_name_prefix="start")
        self._threads = ThreadPoolExecutor(min(_MAX_THREADS, jobs + 2), thread_name_prefix="cells")
        self._removers = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="remove")
        self._open_work: set[Future[None]] = set()
        self._starting = CancelScope()
        self._collecting = CancelScope(cancellation.current())
        self._removing = CancelScope()  # without a parent, so that the removal continues when the run is cancelled
        self._backends: dict[str, Backend] = {}
        self._lock = threading.Lock()
        self._is_settled = False

    def handle_results(self, timeout: float) -> None:
        """Handle the queued results. If there are none, wait for the first result at most `timeout` seconds."""
        try:
            self._results.get(timeout=timeout)()
            while True:
                self._results.get_nowait()()
        except queue.Empty:
            return

    def wake(self) -> None:
        """Make `handle_results` return. A signal handler may call this, because the queue is reentrant."""
        self._results.put(_do_nothing)

    def start(self, run: CellRun, done: Callable[[Handle], None], failed: Callable[[Conclusion], None]) -> None:
        """Start an attempt, or adopt the attempt if an earlier session has started it."""
        self._do(
            partial(self._start, run),
            done,
            lambda error: failed(_not_started(error)),
            scope=self._starting,
            threads=self._starters,
        )

    def status(self, run: CellRun) -> AttemptStatus:
        """Return the status of an attempt that was started."""
        assert run.handle is not None, "the attempt was started"
        return self._backend(run.target).poll([run.handle])[run.handle]

    def collect(self, run: CellRun, status: AttemptStatus, done: Callable[[Conclusion], None]) -> None:
        """Fetch the files of an ended attempt, and run the checks that need no other cell."""

        def fail(error: BaseException) -> None:
            # Everything is still on the target: a resumed run can fetch and judge it without repeating the attempt.
            done(replace(_failure(error), is_open=isinstance(error, Cancelled)))

        self._do(partial(self._collect, run, status), done, fail, scope=self._collecting)

    def cancel(self, run: CellRun) -> None:
        """End an attempt early."""
        if run.handle is not None:
            cancel = partial(self._backend(run.target).cancel, run.handle)
            failed = partial(_warn, f"the workload of {run.cell.name} could not be ended")
            self._do(cancel, _do_nothing, failed, scope=self._removing)

    def end_open(self, target: str, attempts: Sequence[RemainingAttempt]) -> None:
        """End attempts that may be running, if their target answers now."""
        failed = partial(_warn, f"workloads on {target} may be running")
        self._do(
            lambda: unattended_attempts.end_workloads(self._backend(target), attempts),
            _do_nothing,
            failed,
            scope=self._removing,
            threads=self._removers,
        )

    def release(self, target: str, handle: Handle, done: Callable[[], None]) -> None:
        """Remove the remains of an attempt from its target. If that fails, a resumed run tries again."""
        release = partial(self._backend(target).release, handle)
        failed = partial(_warn, f"files of {handle.name} remain on {target}")
        self._do(release, lambda _: done(), failed, scope=self._removing)

    def discard(
        self,
        target: str,
        attempts: Sequence[RemainingAttempt],
        removed: Callable[[AttemptReleased], None],
        done: Callable[[], None],
    ) -> None:
        """Remove the remains of attempts that a person has given up. Stop if the target does not answer.

        Args:
            removed: called with the event of each attempt whose remains have been removed.
            done: called at the end.
        """

        def work() -> None:
            backend = self._backend(target)
            unattended_attempts.discard(backend, attempts, lambda event: self._results.put(partial(removed, event)))

        def failed(error: BaseException) -> None:
            _warn(f"files of attempts may remain on {target}", error)
            done()

        self._do(work, lambda _: done(), failed, scope=self._starting, threads=self._removers)

    def stop_starting(self, reason: str) -> None:
        """Stop waiting for targets that do not answer."""
        self._starting.cancel(reason)

    def settle(self) -> None:
        """Wait for the worker threads, and handle their results. From then on, no new work is started.

        Raises:
            Interrupted: a signal has arrived.
        """
        self._await_work()
        self._is_settled = True
        self.handle_results(0)

    def teardown_run(self, targets: Iterable[str]) -> None:
        """Remove the remaining objects of the run from targets without attempts."""
        for target in targets:
            try:
                teardown_run = teardown_of(self._backend(target))
                if teardown_run is not None:
                    teardown_run()
            except (ToolboxError, Cancelled, OSError) as error:
                _warn(f"files of the run remain on {target}", error)

    def close(self) -> None:
        """Wait for the worker threads, and close the connections to the targets.

        Raises:
            Interrupted: the third signal has arrived, which cancels the work of the threads.
        """
        try:
            with signals.shielded():
                self._await_work()
        except Interrupted as error:
            self._cancel_work(str(error))
            raise
        finally:
            self._collecting.close()
            for threads in (self._starters, self._threads, self._removers):
                threads.shutdown(wait=False, cancel_futures=True)
            for backend in self._backends.values():
                backend.close()

    def _await_work(self) -> None:
        """Wait until the worker threads have no work.

        The threads are not joined, because a signal that interrupts `Thread.join` makes later joins return early.
        """
        while self._open_work:
            signals.check()
            wait(self._open_work.copy(), timeout=signals.WAIT_SECONDS)

    def _cancel_work(self, reason: str) -> None:
        """Cancel the work of all threads, and wait a moment for its end. Files that are not removed yet remain."""
        for scope in (self._starting, self._collecting, self._removing):
            scope.cancel(reason)
        wait(self._open_work.copy(), timeout=_CANCEL_SECONDS)

    def _do(
        self,
        work: Callable[[], Result],
        done: Callable[[Result], None],
        failed: Callable[[BaseException], None],
        *,
        scope: CancelScope,
        threads: ThreadPoolExecutor | None = None,
    ) -> None:
        """Run `work` in a worker thread, and queue a call of `done` or `failed`. After `settle`, do nothing."""

        def call() -> None:
            try:
                with cancellation.entered(scope):
                    result = partial(done, work())
            except BaseException as error:  # noqa: BLE001  # the error becomes the outcome of the attempt
                self._results.put(partial(failed, error))
            else:
                self._results.put(result)

        if not self._is_settled:
            future = (threads or self._threads).submit(contextvars.copy_context().run, call)
            self._open_work.add(future)
            future.add_done_callback(self._open_work.discard)

    def _start(self, run: CellRun) -> Handle:
        if run.is_adopted and (handle := self._adopt(run)) is not None:
            return handle
        return self._backend(run.target).submit(run.cell.workload, run.name, run.directory)

    def _adopt(self, run: CellRun) -> Handle | None:
        """Return the handle of an attempt that an earlier session submitted; None if the target does not have it.

        Raises:
            SubmissionUnknown: the target does not answer, so the workload may be running there.
        """
        try:
            return self._backend(run.target).find(run.cell.workload, run.name, run.directory)
        except (ToolboxError, Cancelled, OSError) as error:
            verdict, cause = outcome_of(error)
            text = f"the attempt was submitted before the run was resumed, and may be running: {describe(error)}"
            raise SubmissionUnknown(text, verdict=verdict, cause=cause) from error

    def _collect(self, run: CellRun, status: AttemptStatus) -> Conclusion:
        assert run.handle is not None, "the attempt was started"
        if status.state is AttemptState.UNREACHABLE:
            message = f"the connection was lost, and the workload may still be running: {status.message}"
            lost = Outcome(Verdict.ERROR, Cause.INFRASTRUCTURE, message)
            return Conclusion(lost, is_open=True, lost_machine=run.target)
        try:
            self._backend(run.target).collect(run.handle, run.cell.workload)
        except FilesLost as error:
            return replace(_failure(error), lost_machine=error.machine or run.target)
        except LimitExceeded as error:
            return _failure(error)
        except (StepError, OSError) as error:
            # The files are still on the target: a resumed run can fetch them without repeating the attempt.
            return replace(_failure(error), is_open=True)
        self._recorder.sweep(run.step.identity, run.directory)
        outcome = status.outcome or WorkloadOutcome.parse(None)
        if outcome.may_remain:
            text = f"processes of {run.name} may still run on {run.target}, because the supervisor was killed"
            self._recorder.record(Note(run.step.identity, text))
        return self._judge(run, outcome)

    def _judge(self, run: CellRun, outcome: WorkloadOutcome) -> Conclusion:
        without_checks = attempt_judgement.outcome_without_checks(outcome)
        conclusion = Conclusion(
            without_checks,
            seconds=outcome.seconds,
            remark=_remark(outcome),
            host=outcome.host,
            accelerators=outcome.accelerators,
            image=outcome.image,
            paid_seconds=outcome.paid_seconds,
            lost_machine=_lost_machine(outcome, run.target),
        )
        expected = run.cell.expectations
        changed = staging.changed_files(run.cell.workload, run.directory)
        if without_checks is not None:
            cases = attempt_judgement.finished_cases(expected.checks, Evidence(run.directory, changed=changed))
            return replace(conclusion, cases=tuple(cases))
        metrics = expected.measure(run.directory)
        checks = [check for check in expected.checks if check.to is None]
        evidence = Evidence(run.directory, metrics, bounds=run.cell.bounds, changed=changed)
        judged = attempt_judgement.judge(checks, evidence)
        return replace(conclusion, metrics=metrics, judgements=tuple(judged))

    def _backend(self, target: str) -> Backend:
        with self._lock:
            if target not in self._backends:
                self._backends[target] = self._targets[target].open(
                    self._recorder,
                    self._clusters,
                    variables=self._variables,
                    notify=lambda name: self._results.put(partial(self._on_change, name)),
                )
            return self._backends[target]


def _processes(count: int) -> str:
    return "a process" if count == 1 else f"{count} processes"


def _remark(outcome: WorkloadOutcome) -> str:
    parts = [outcome.message] if outcome.ended_by in _JUDGED and outcome.message else []
    if outcome.leftovers:
        parts.append(f"{_processes(outcome.leftovers)} of the workload had to be killed")
    if outcome.oom_kills > 0:
        killed = _processes(outcome.oom_kills)
        parts.append(f"the kernel killed {killed} for want of memory in a cgroup of the workload, maybe shared")
    if outcome.changed_startup_files:
        parts.append(f"startup files of the shell changed while the workload ran: {outcome.changed_startup_files}")
    if outcome.log_dropped:
        parts.append(f"the logs have reached their size limit: {outcome.log_dropped} bytes were dropped")
    return "; ".join(parts)


def _lost_machine(outcome: WorkloadOutcome, target: str) -> str:
    """Return the machine that was lost during an attempt: its name, or its target's if unknown; empty if none was."""
    match outcome.ended_by:
        case EndedBy.LOST:
            return outcome.host or target
        case EndedBy.EVICTED:
            return outcome.host
        case _:
            return ""


def _failure(error: BaseException) -> Conclusion:
    if not isinstance(error, ToolboxError | Cancelled | OSError):
        log.error("an attempt could not be run or judged", exc_info=error)
    verdict, cause = outcome_of(error)
    return Conclusion(Outcome(verdict, cause, describe(error)))


def _not_started(error: BaseException) -> Conclusion:
    """Return the conclusion of a failed submission, which is open unless the error proves that nothing was started."""
    is_proof = isinstance(error, ToolboxError | Cancelled | OSError) and not isinstance(error, SubmissionUnknown)
    return replace(_failure(error), is_open=not is_proof)


def _do_nothing(*_: object) -> None:
    return


def _warn(what: str, error: BaseException) -> None:
    log.warning("%s: %s", what, describe(error))
