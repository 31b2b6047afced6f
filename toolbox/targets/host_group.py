"""Runs each attempt on several machines at once: for example on all workers of a TPU slice.

If a workload fails on one machine, or the machine is lost, the workloads on the other machines cannot continue without
this machine and are ended. The logs and files of the first machine are those of the attempt. The logs and files of the
other machines are in `hosts/1/`, `hosts/2/` and so on. `group_endings.py` decides how the attempt ended.
"""

from __future__ import annotations

import contextvars
import dataclasses
import logging
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from toolbox.ground.extensions.protocols import Backend
from toolbox.ground.model.errors import Cancelled, LimitExceeded, SubmissionUnknown, ToolboxError
from toolbox.ground.model.workloads import (
    AttemptState,
    AttemptStatus,
    EndedBy,
    Handle,
    TargetContext,
    Timeouts,
    Workload,
    WorkloadOutcome,
)
from toolbox.ground.system import cancellation, filesystem
from toolbox.ground.system.cancellation import CancelScope
from toolbox.records.runs.layout import AttemptDirectory
from toolbox.targets import group_endings
from toolbox.targets.attempt_book import Attempt, AttemptBook
from toolbox.targets.group_endings import Ending

log = logging.getLogger(__name__)

Result = TypeVar("Result")
_END_SECONDS: Final = 15.0  # in addition to the grace of the workload
_EXPECTED: Final = (ToolboxError, Cancelled, OSError)


@dataclass(frozen=True, slots=True)
class Member:
    """One machine of a group.

    Args:
        name: the name of the machine in messages, such as `worker 2`.
        open: returns the backend of the machine.
        variables: environment variables that tell a workload its place in the group.
    """

    name: str
    open: Callable[[TargetContext], Backend]
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _GroupAttempt(Attempt):
    """An attempt on all machines of the group.

    Args:
        handles: the handle on each machine.
        statuses: the last known status on each machine.
        ended: the indices of the machines on which the attempt is over, in the order of time.
        is_submitted: whether all machines have answered the submission.
        is_stopping: whether the workloads are being ended.
        is_cancelled: whether the run cancelled the attempt.
    """

    handles: Sequence[Handle]
    grace: float
    statuses: list[AttemptStatus]
    ended: list[int] = field(default_factory=list)
    is_submitted: bool = False
    is_stopping: bool = False
    is_cancelled: bool = False
    timer: threading.Timer | None = None

    @property
    def open_machines(self) -> list[int]:
        """The indices of the machines on which the attempt is not over."""
        return [index for index in range(len(self.handles)) if index not in self.ended]

    def end_on(self, index: int, status: AttemptStatus) -> None:
        """Record that the attempt is over on a machine."""
        self.statuses[index] = status
        self.ended.append(index)

    def stop_timer(self) -> None:
        """Stop the timer that limits the end of the workloads."""
        if self.timer is not None:
            self.timer.cancel()


class HostGroup:
    """Executes workloads on all machines of a group. It implements `toolbox.ground.extensions.protocols.Backend`.

    Args:
        context: the target of the attempts.
        threads: runs the requests to the machines. The methods of the group must not be called in these threads.
        lost_seconds: how many seconds a machine may be unreachable until it counts as lost.
    """

    def __init__(
        self, context: TargetContext, members: Sequence[Member], threads: Executor, *, lost_seconds: float
    ) -> None:
        self._members = members
        self._threads = threads
        self._lost_seconds = lost_seconds
        self._book: AttemptBook[_GroupAttempt] = AttemptBook(context.notify)
        self._lock = self._book.lock
        self._machines = [
            member.open(dataclasses.replace(context, name=f"{context.name}, {member.name}", notify=self._handle_change))
            for member in members
        ]

    def submit(self, workload: Workload, name: str, directory: Path) -> Handle:
        """See `Backend`. If only some machines start the workload, the attempt ends soon."""
        attempt = self._add(workload.timeouts, name, directory)
        results = self._on_each(
            lambda index: self._machines[index].submit(
                self._placed(workload, index), name, filesystem.make_directory(attempt.handles[index].directory)
            )
        )
        for handle in attempt.handles[1:]:  # one copy of the sent files is enough
            shutil.rmtree(AttemptDirectory(handle.directory).sources, ignore_errors=True)
        errors = [error for error in results if isinstance(error, BaseException)]
        if len(errors) == len(results) and not any(isinstance(error, SubmissionUnknown) for error in errors):
            self._book.forget(name)
            raise errors[0]
        if any(isinstance(error, Cancelled) for error in errors):
            attempt.is_cancelled = True
        self._submitted(attempt, results)
        return attempt.handle

    def poll(self, handles: Iterable[Handle]) -> Mapping[Handle, AttemptStatus]:
        """See `Backend`."""
        return {handle: self._book[handle.name].status for handle in handles}

    def collect(self, handle: Handle, workload: Workload) -> None:
        """See `Backend`. Skip the machines that were lost, because their files cannot be fetched."""
        with self._lock:
            attempt = self._book[handle.name]
            reachable = [i for i, status in enumerate(attempt.statuses) if status.state is AttemptState.ENDED]
            outcome = attempt.status.outcome
        results = self._on_each(
            lambda index: self._machines[index].collect(attempt.handles[index], workload), reachable
        )
        errors = [error for error in results if isinstance(error, BaseException)]
        for error in errors:
            if isinstance(error, LimitExceeded | Cancelled) or outcome is None or group_endings.is_good(outcome):
                raise error
            log.warning("files of %s are missing: %s", handle.name, error)
        if outcome is not None and len(self._members) > 1:
            _write_outcomes(AttemptDirectory(handle.directory), attempt.statuses[0], outcome)

    def cancel(self, handle: Handle) -> None:
        """See `Backend`."""
        attempt = self._book[handle.name]
        attempt.is_cancelled = True
        self._stop(attempt)

    def release(self, handle: Handle) -> None:
        """See `Backend`."""
        results = self._on_each(lambda index: self._machines[index].release(self._handle(handle, index)))
        for error in results:
            if isinstance(error, BaseException):
                raise error
        self._book.forget(handle.name)

    def find(self, workload: Workload, name: str, directory: Path) -> Handle | None:
        """See `Backend`. If only some machines have the attempt, the attempt ends soon."""
        attempt = self._add(workload.timeouts, name, directory)
        results = self._on_each(
            lambda index: self._machines[index].find(
                self._placed(workload, index), name, filesystem.make_directory(attempt.handles[index].directory)
            )
        )
        for error in results:
            if isinstance(error, BaseException):
                self._book.forget(name)
                raise error
        if not any(results):
            self._book.forget(name)
            return None
        self._submitted(attempt, results)
        return attempt.handle

    def end_all(self, outcome: WorkloadOutcome) -> None:
        """End all attempts with the same outcome, because the machines no longer exist. Send no request to them."""
        for attempt in self._book.open_attempts():
            self._conclude(attempt, AttemptStatus(AttemptState.ENDED, outcome))

    def close(self) -> None:
        """See `Backend`."""
        self._book.close()
        for attempt in self._book.attempts():
            attempt.stop_timer()
        for machine in self._machines:
            machine.close()

    # The submission of an attempt

    def _handle(self, handle: Handle, index: int) -> Handle:
        return Handle(handle.name, AttemptDirectory(handle.directory).host(index).path)

    def _placed(self, workload: Workload, index: int) -> Workload:
        """Return the workload for one machine."""
        variables = {**workload.env, **self._members[index].variables}
        timeouts = dataclasses.replace(workload.timeouts, wait=min(self._lost_seconds, workload.timeouts.wait))
        return dataclasses.replace(workload, env=variables, timeouts=timeouts)

    def _add(self, timeouts: Timeouts, name: str, directory: Path) -> _GroupAttempt:
        whole = Handle(name, directory)
        handles = [self._handle(whole, index) for index in range(len(self._members))]
        statuses = [AttemptStatus(AttemptState.SUBMITTED)] * len(handles)
        return self._book.add(_GroupAttempt(whole, handles, timeouts.grace, statuses))

    def _submitted(self, attempt: _GroupAttempt, results: Sequence[Handle | BaseException | None]) -> None:
        """Record which machines have started an attempt."""
        with self._lock:
            for index, result in enumerate(results):
                if not isinstance(result, Handle):
                    self._lose(attempt, index, result or "the attempt was never started there")
            attempt.is_submitted = True
        self._book.change(attempt, AttemptStatus(AttemptState.RUNNING))
        self._review(attempt)

    # The end of an attempt

    def _handle_change(self, name: str) -> None:
        """Handle a notification of a machine."""
        if (attempt := self._book.get(name)) is not None:
            self._review(attempt)

    def _review(self, attempt: _GroupAttempt) -> None:
        """Check whether an attempt has ended, or must be ended because a machine has failed."""
        with self._lock:
            if not attempt.is_submitted or not self._book.is_open(attempt):
                return
            for index in attempt.open_machines:
                handle = attempt.handles[index]
                status = self._machines[index].poll([handle])[handle]
                if status.state.is_over:
                    attempt.end_on(index, status)
            has_ended = not attempt.open_machines
            outcomes = [group_endings.outcome_of(attempt.statuses[index]) for index in attempt.ended]
            has_failed = not all(map(group_endings.is_good, outcomes))
        if has_ended:
            self._conclude(attempt, self._ended(attempt))
        elif has_failed:
            self._stop(attempt)

    def _stop(self, attempt: _GroupAttempt) -> None:
        """End the workloads of an attempt on all machines, and stop waiting for them after a while."""
        with self._lock:
            if attempt.is_stopping or not self._book.is_open(attempt):
                return
            attempt.is_stopping = True
            attempt.timer = threading.Timer(attempt.grace + _END_SECONDS, self._give_up, [attempt])
            attempt.timer.daemon = True
            attempt.timer.start()
            for index in attempt.open_machines:
                self._threads.submit(self._cancel_on, attempt, index)

    def _cancel_on(self, attempt: _GroupAttempt, index: int) -> None:
        try:
            with cancellation.entered(CancelScope()):  # end the workload even if the run is cancelled
                self._machines[index].cancel(attempt.handles[index])
        except _EXPECTED as error:
            with self._lock:
                self._lose(attempt, index, error)
            self._review(attempt)

    def _give_up(self, attempt: _GroupAttempt) -> None:
        with self._lock:
            for index in attempt.open_machines:
                text = f"the workload did not end within {attempt.grace + _END_SECONDS:.0f} s after it was cancelled"
                self._lose(attempt, index, text)
        self._review(attempt)

    def _lose(self, attempt: _GroupAttempt, index: int, reason: BaseException | str) -> None:
        """Record that an attempt is lost on a machine, unless it is over there."""
        # The errors of a backend name its target, which is the machine.
        text = str(reason) if isinstance(reason, ToolboxError) else f"{self._members[index].name}: {reason}"
        if index in attempt.open_machines:
            attempt.end_on(index, AttemptStatus(AttemptState.UNREACHABLE, message=text))

    def _ended(self, attempt: _GroupAttempt) -> AttemptStatus:
        """Return the final status of an attempt that is over on all machines."""
        statuses = [attempt.statuses[index] for index in attempt.ended]
        if all(status.state is AttemptState.UNREACHABLE for status in statuses):
            return statuses[0]
        endings = [Ending(self._members[index].name, attempt.statuses[index]) for index in attempt.ended]
        outcome = group_endings.conclude(endings)
        if attempt.is_cancelled and any(ending.outcome.ended_by is EndedBy.CANCELLED for ending in endings):
            # The other workloads may have failed as a consequence.
            outcome = dataclasses.replace(outcome, ended_by=EndedBy.CANCELLED)
        return AttemptStatus(AttemptState.ENDED, outcome)

    def _conclude(self, attempt: _GroupAttempt, status: AttemptStatus) -> None:
        self._book.change(attempt, status)
        attempt.stop_timer()

    def _on_each(
        self, work: Callable[[int], Result], indices: Iterable[int] | None = None
    ) -> list[Result | BaseException]:
        """Call a function for each machine in parallel, and return the results, or the expected errors."""

        def tried(index: int) -> Result | BaseException:
            try:
                return work(index)
            except _EXPECTED as error:
                return error

        chosen = range(len(self._members)) if indices is None else indices
        futures = [self._threads.submit(contextvars.copy_context().run, tried, index) for index in chosen]
        return [future.result() for future in futures]


def _write_outcomes(directory: AttemptDirectory, first: AttemptStatus, outcome: WorkloadOutcome) -> None:
    """Write the outcome of the first machine to `hosts/0/`, and the outcome of the attempt to its directory."""
    own = directory.first_host
    filesystem.make_directory(own.path)
    for place, written in ((own, group_endings.outcome_of(first)), (directory, outcome)):
        filesystem.write_json(place.outcome, written.as_json())
        if written.exit_code is None:
            place.exit_code.unlink(missing_ok=True)
        else:
            filesystem.write_text(place.exit_code, f"{written.exit_code}\n")
