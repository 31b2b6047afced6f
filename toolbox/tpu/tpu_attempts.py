"""The state of attempts on TPUs, and of the TPUs that they use, in one session of a run."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Final

from toolbox.hosts.host_group import HostGroup
from toolbox.model.errors import describe, outcome_of
from toolbox.model.verdicts import Cause
from toolbox.model.workloads import AttemptState, AttemptStatus, EndedBy, Handle, Workload, WorkloadOutcome
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
