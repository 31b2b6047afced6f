"""The state of attempts on TPUs, and of the TPUs that they use, in one session of a run.

`TpuAttempts` makes every change under one lock, and notifies the run. The backend `tpu_vm` decides what changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from toolbox.features.tpu.fleet import Tpu
from toolbox.ground.model.resources import expiry_of
from toolbox.ground.model.workloads import (
    AttemptState,
    AttemptStatus,
    EndedBy,
    Handle,
    Timeouts,
    Workload,
    WorkloadOutcome,
)
from toolbox.ground.system.cancellation import CancelScope
from toolbox.targets.attempt_book import Attempt, AttemptBook
from toolbox.targets.host_group import HostGroup


@dataclass(slots=True, eq=False)
class TpuAttempt(Attempt):
    """An attempt of a cell.

    Args:
        deadline: the monotonic time until which the workload must have started.
        starting: the scope of the request that starts the workload.
        may_exist: whether an earlier session may have started the workload.
        is_absent: whether the TPU does not have the workload that an earlier session may have started.
        is_started: whether the group of the TPU has the attempt.
        is_cancelled: whether the run cancelled the attempt.
        submitted: the monotonic time at which this session submitted or adopted the attempt.
    """

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

    @property
    def label(self) -> str:
        """The directories of the cell and of the attempt, for messages."""
        return "/".join(self.directory.parts[-2:])

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


class TpuAttempts:
    """The attempts of one session on the TPUs of one target, and the workers of these TPUs.

    Args:
        notify: called with the name of an attempt whose status has changed.
    """

    def __init__(self, notify: Callable[[str], None]) -> None:
        self.book: AttemptBook[TpuAttempt] = AttemptBook(notify)
        self._lock = self.book.lock
        self._machines: dict[str, Machines] = {}  # by the name of the TPU

    def close(self) -> list[HostGroup]:
        """Refuse further changes, and return the groups to close."""
        with self._lock:
            self.book.close()
            return [machines.group for machines in self._machines.values() if machines.group is not None]

    def add(
        self, handle: Handle, workload: Workload, tpu: Tpu, scope: CancelScope, *, may_exist: bool = False
    ) -> TpuAttempt:
        """Add an attempt, or return the attempt with this name.

        Args:
            scope: the scope of the target.
            may_exist: whether an earlier session may have started the workload.
        """
        deadline = time.monotonic() + workload.timeouts.wait
        with self._lock:
            self._machines.setdefault(tpu.name, Machines(tpu))
            return self.book.add(TpuAttempt(handle, workload, tpu, deadline, CancelScope(scope), may_exist=may_exist))

    def on(self, tpu: Tpu) -> list[TpuAttempt]:
        """Return the attempts that use a TPU."""
        return [attempt for attempt in self.book.attempts() if attempt.tpu is tpu]

    # The workers of a TPU

    def machines(self, name: str) -> Machines | None:
        """Return the workers of the TPU that has this name now; None if there are no such workers."""
        return self._machines.get(name)

    def machines_of(self, attempt: TpuAttempt) -> Machines:
        """Return the workers of an attempt's TPU. If the TPU was deleted, another one may have its name."""
        machines = self._machines.get(attempt.tpu.name)
        return machines if machines is not None and machines.tpu is attempt.tpu else Machines(attempt.tpu)

    def remove_machines(self, name: str) -> HostGroup | None:
        """Remove the workers of a TPU, and return their group, which is to be closed; None if there is no group."""
        with self._lock:
            machines = self._machines.pop(name, None)
        return machines.group if machines is not None else None

    def begin_preparing(self, machines: Machines) -> list[TpuAttempt]:
        """Return the attempts on a TPU if one of them waits, and no thread prepares the workers yet."""
        with self._lock:
            attempts = self.on(machines.tpu)
            if machines.is_preparing or self.book.is_closed or not any(attempt.is_waiting for attempt in attempts):
                return []
            machines.is_preparing = True
            return attempts

    def set_group(self, machines: Machines, group: HostGroup) -> bool:
        """Let attempts run in a group, and return True. Return False if the TPU was deleted, or the target closed."""
        with self._lock:
            if self.book.is_closed or self._machines.get(machines.tpu.name) is not machines:
                return False
            machines.group = group
            return True

    # The states of an attempt

    def begin_starting(self, machines: Machines) -> list[TpuAttempt]:
        """Return the attempts to start now: those that wait for workers which are ready."""
        with self._lock:
            if machines.group is None:
                return []
            waiting = [attempt for attempt in self.on(machines.tpu) if attempt.is_waiting]
            for attempt in waiting:
                attempt.is_starting = True
            return waiting

    def note_start(self, attempt: TpuAttempt) -> None:
        """Record that the group has the attempt."""
        attempt.is_started = True
        self.book.change(attempt, AttemptStatus(AttemptState.RUNNING))

    def cancel(self, attempt: TpuAttempt) -> None:
        """Record that the run cancels an attempt. An attempt that waits for its TPU ends at once."""
        with self._lock:
            attempt.is_cancelled = True
            is_waiting = attempt.is_waiting
        attempt.starting.cancel("the attempt is cancelled")
        if is_waiting:
            self.conclude(attempt, WorkloadOutcome(EndedBy.CANCELLED))

    def conclude(self, attempt: TpuAttempt, outcome: WorkloadOutcome) -> None:
        """End an attempt, unless it is over. A cancelled attempt that has not started ends as cancelled."""
        if attempt.is_cancelled and not attempt.is_started:
            outcome = WorkloadOutcome(EndedBy.CANCELLED)
        host = attempt.tpu.name if outcome.ended_by is EndedBy.LOST else outcome.host
        outcome = replace(outcome, host=host, paid_seconds=paid_seconds(attempt, outcome))
        self.book.change(attempt, AttemptStatus(AttemptState.ENDED, outcome))


def is_judged(attempt: TpuAttempt) -> bool:
    """Return whether checks would judge the files of an attempt."""
    outcome = attempt.status.outcome
    return outcome is not None and outcome.ended_by in (EndedBy.EXIT, EndedBy.SIGNAL)


def paid_seconds(attempt: TpuAttempt, outcome: WorkloadOutcome) -> float:
    """Return the time for which a TPU cost money because of an attempt: while it was up, also without a workload.

    If an earlier session submitted the attempt, only the time of the workload counts before the adoption.
    """
    if attempt.tpu.up_since is None:
        return outcome.seconds
    return round(max(outcome.seconds, time.monotonic() - max(attempt.tpu.up_since, attempt.submitted)), 3)
