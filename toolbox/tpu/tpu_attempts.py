"""The state of attempts on TPUs, and of the TPUs that they use, in one session of a run.

`Attempts` makes every change under one lock, and notifies the run. The backend `tpu_vm` decides what changes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from toolbox.hosts.host_group import HostGroup
from toolbox.model.errors import describe, outcome_of
from toolbox.model.resources import expiry_of
from toolbox.model.verdicts import Cause
from toolbox.model.workloads import (
    AttemptState,
    AttemptStatus,
    EndedBy,
    Handle,
    Timeouts,
    Workload,
    WorkloadOutcome,
)
from toolbox.system.cancellation import CancelScope
from toolbox.tpu.fleet import Tpu

_ENDINGS: Final = {Cause.CAPACITY: EndedBy.NO_CAPACITY, Cause.CONFIGURATION: EndedBy.NOT_STARTED}


@dataclass(slots=True, eq=False)
class Attempt:
    """An attempt of a cell.

    Args:
        deadline: the monotonic time until which the workload must have started.
        starting: the scope of the request that starts the workload.
        may_exist: whether an earlier session may have started the workload.
        is_absent: whether the TPU does not have the workload that an earlier session may have started.
        is_started: whether the group of the TPU has the attempt.
        is_cancelled: whether the run cancelled the attempt.
        submitted: the monotonic time at which this session submitted or adopted the attempt.
        settled: set when the workload has started, or the attempt is over.
    """

    handle: Handle
    workload: Workload
    tpu: Tpu
    deadline: float
    starting: CancelScope
    may_exist: bool = False
    is_absent: bool = False
    is_started: bool = False
    is_starting: bool = False
    is_cancelled: bool = False
    submitted: float = field(default_factory=time.monotonic)
    status: AttemptStatus = field(default_factory=lambda: AttemptStatus(AttemptState.SUBMITTED))
    settled: threading.Event = field(default_factory=threading.Event)

    @property
    def label(self) -> str:
        """The directories of the cell and of the attempt, for messages."""
        return "/".join(self.handle.directory.parts[-2:])

    @property
    def is_waiting(self) -> bool:
        """Whether the attempt waits for its TPU."""
        return not (self.is_started or self.is_starting or self.is_absent or self.status.state.is_over)


@dataclass(slots=True, eq=False)
class Machines:
    """The workers of a TPU.

    Args:
        group: runs the attempts; None until all workers are ready.
        is_preparing: whether a thread asks the workers whether they are ready.
        unusable: why no other attempt may use the TPU; empty if another attempt may use it.
        unready: why the workers are not ready.
    """

    tpu: Tpu
    group: HostGroup | None = None
    is_preparing: bool = False
    unusable: str = ""
    unready: str = ""

    @property
    def exist(self) -> bool:
        """Whether the TPU exists, as far as known."""
        return self.tpu.ending is None and not self.tpu.is_deleted

    @property
    def are_usable(self) -> bool:
        """Whether further attempts may use the TPU."""
        return self.exist and not self.unusable

    def outlast(self, timeouts: Timeouts) -> bool:
        """Return whether an attempt that starts now must end before the expiry of the TPU."""
        expiry = expiry_of(self.tpu.nodes[0].labels) if self.tpu.nodes else None
        longest = timedelta(seconds=(timeouts.run or 0) + timeouts.grace)
        return expiry is None or datetime.now(UTC) + longest < expiry


class Attempts:
    """The attempts of one session on the TPUs of one target, and the workers of these TPUs.

    Args:
        notify: called with the name of an attempt whose status has changed.
    """

    def __init__(self, notify: Callable[[str], None]) -> None:
        self._notify = notify
        self._lock = threading.RLock()
        self._by_name: dict[str, Attempt] = {}
        self._machines: dict[str, Machines] = {}  # by the name of the TPU
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether the target is closed, so that no attempt changes any more."""
        return self._is_closed

    def close(self) -> list[HostGroup]:
        """Refuse further changes, and return the groups to close."""
        with self._lock:
            self._is_closed = True
            return [machines.group for machines in self._machines.values() if machines.group is not None]

    def add(
        self, handle: Handle, workload: Workload, tpu: Tpu, scope: CancelScope, *, may_exist: bool = False
    ) -> Attempt:
        """Add an attempt, or return the known attempt with this name.

        Args:
            scope: the scope of the target.
            may_exist: whether an earlier session may have started the workload.
        """
        with self._lock:
            attempt = self._by_name.get(handle.name)
            if attempt is None or attempt.tpu is not tpu:
                deadline = time.monotonic() + workload.timeouts.wait
                attempt = Attempt(handle, workload, tpu, deadline, CancelScope(scope), may_exist=may_exist)
                self._by_name[handle.name] = attempt
            self._machines.setdefault(tpu.name, Machines(tpu))
        return attempt

    def get(self, name: str) -> Attempt | None:
        """Return the attempt with this name; None if this session does not know it."""
        return self._by_name.get(name)

    def forget(self, name: str) -> None:
        """Remove an attempt."""
        with self._lock:
            self._by_name.pop(name, None)

    def names(self) -> list[str]:
        """Return the names of all attempts."""
        with self._lock:
            return list(self._by_name)

    def on(self, tpu: Tpu) -> list[Attempt]:
        """Return the attempts that use a TPU."""
        with self._lock:
            return [attempt for attempt in self._by_name.values() if attempt.tpu is tpu]

    # The workers of a TPU

    def machines(self, name: str) -> Machines | None:
        """Return the workers of the TPU that has this name now; None if there are no such workers."""
        return self._machines.get(name)

    def machines_of(self, attempt: Attempt) -> Machines:
        """Return the workers of an attempt's TPU. If the TPU was deleted, another one may have its name."""
        machines = self._machines.get(attempt.tpu.name)
        return machines if machines is not None and machines.tpu is attempt.tpu else Machines(attempt.tpu)

    def remove_machines(self, name: str) -> HostGroup | None:
        """Remove the workers of a TPU, and return their group, which is to be closed; None if there is no group."""
        with self._lock:
            machines = self._machines.pop(name, None)
        return machines.group if machines is not None else None

    def begin_preparing(self, machines: Machines) -> list[Attempt]:
        """Return the attempts on a TPU if one of them waits, and no thread prepares the workers yet."""
        with self._lock:
            attempts = self.on(machines.tpu)
            if machines.is_preparing or self._is_closed or not any(attempt.is_waiting for attempt in attempts):
                return []
            machines.is_preparing = True
            return attempts

    def set_group(self, machines: Machines, group: HostGroup) -> bool:
        """Let attempts run in a group, and return True. Return False if the TPU was deleted, or the target closed."""
        with self._lock:
            if self._is_closed or self._machines.get(machines.tpu.name) is not machines:
                return False
            machines.group = group
            return True

    # The states of an attempt

    def show_waiting(self, attempt: Attempt, reason: str) -> None:
        """Show why an attempt waits for its TPU."""
        with self._lock:
            if not attempt.is_waiting or attempt.status.message == reason:
                return
            attempt.status = AttemptStatus(AttemptState.SUBMITTED, message=reason)
        self._notify(attempt.handle.name)

    def begin_starting(self, machines: Machines) -> list[Attempt]:
        """Return the attempts to start now: those that wait for workers which are ready."""
        with self._lock:
            if machines.group is None:
                return []
            waiting = [attempt for attempt in self.on(machines.tpu) if attempt.is_waiting]
            for attempt in waiting:
                attempt.is_starting = True
            return waiting

    def note_start(self, attempt: Attempt) -> None:
        """Record that the group has the attempt."""
        with self._lock:
            attempt.is_started = True
            had_message = bool(attempt.status.message)
            if attempt.status.state is AttemptState.SUBMITTED:
                attempt.status = attempt.status.become(AttemptState.RUNNING)
                attempt.settled.set()
        if had_message:
            self._notify(attempt.handle.name)

    def cancel(self, attempt: Attempt) -> None:
        """Record that the run cancels an attempt. An attempt that waits for its TPU ends at once."""
        with self._lock:
            attempt.is_cancelled = True
            is_waiting = attempt.is_waiting
        attempt.starting.cancel("the attempt is cancelled")
        if is_waiting:
            self.conclude(attempt, WorkloadOutcome(EndedBy.CANCELLED))

    def conclude(self, attempt: Attempt, outcome: WorkloadOutcome) -> None:
        """End an attempt, unless it is over. A cancelled attempt that has not started ends as cancelled."""
        if attempt.is_cancelled and not attempt.is_started:
            outcome = WorkloadOutcome(EndedBy.CANCELLED)
        host = attempt.tpu.name if outcome.ended_by is EndedBy.LOST else outcome.host
        outcome = replace(outcome, host=host, paid_seconds=paid_seconds(attempt, outcome))
        self._become(attempt, AttemptStatus(AttemptState.ENDED, outcome))

    def lose_contact(self, attempt: Attempt, message: str) -> None:
        """Record that an attempt can no longer be followed, unless it is over."""
        self._become(attempt, AttemptStatus(AttemptState.UNREACHABLE, message=message))

    def _become(self, attempt: Attempt, status: AttemptStatus) -> None:
        with self._lock:
            if attempt.status.state.is_over or self._is_closed:
                return
            attempt.status = attempt.status.become(status.state, status.outcome, status.message)
        attempt.settled.set()
        self._notify(attempt.handle.name)


def is_judged(attempt: Attempt) -> bool:
    """Return whether checks would judge the files of an attempt."""
    outcome = attempt.status.outcome
    return outcome is not None and outcome.ended_by in (EndedBy.EXIT, EndedBy.SIGNAL)


def paid_seconds(attempt: Attempt, outcome: WorkloadOutcome) -> float:
    """Return the time for which a TPU cost money because of an attempt: while it was up, also without a workload.

    If an earlier session submitted the attempt, only the time of the workload counts before the adoption.
    """
    if attempt.tpu.up_since is None:
        return outcome.seconds
    return round(max(outcome.seconds, time.monotonic() - max(attempt.tpu.up_since, attempt.submitted)), 3)


def outcome_of_failed_start(error: BaseException) -> WorkloadOutcome:
    """Return the outcome of an attempt that could not be started."""
    _, cause = outcome_of(error)
    return WorkloadOutcome(_ENDINGS.get(cause or Cause.INTERNAL, EndedBy.LOST), message=describe(error))
