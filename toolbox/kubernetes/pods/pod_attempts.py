"""The state that the tracker keeps for an attempt in pods."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from toolbox.kubernetes.pods.description import Pod
from toolbox.kubernetes.pods.pod_logs import LiveCopy
from toolbox.kubernetes.pods.stopping import Stop
from toolbox.model.workloads import LOG_BYTES, AttemptState, AttemptStatus, WorkloadOutcome
from toolbox.runs.layout import AttemptDirectory


@dataclass(slots=True)
class Attempt:
    """An attempt that runs, or ran, in pods. All times are monotonic.

    Args:
        name: the name of the attempt.
        job: the name of its Job.
        directory: the local directory of the attempt.
        there: the directory of the attempt in the pods.
        wait: the number of seconds that the start may take, and that the server may be unavailable.
        pod: the description of its pods.
        log_bytes: the maximum size of each log.
        since: when it began to wait for its start; time in a queue does not count.
        submitted: when it was submitted.
        status: the status that the backend reports.
        outcome: how it ended; set before its logs have been written.
        has_started: whether all of its pods have started.
        is_cancelled: whether the run cancelled it.
        is_discarded: whether the run deletes its Job, so that a lost pod is not replaced.
        stop: the progress of its cancellation or deletion; None if it is not being stopped.
        ask_at: when to ask the server for its state, because the watches have not yet shown how it ended.
        is_asked: whether the server is being asked.
        found: how it ended, while some of its pods may still run.
        patient_until: until when its pods may still report how they ended.
        logs: the live copies of its logs, by the name of the pod.
    """

    name: str
    job: str
    directory: Path
    there: str
    wait: float
    pod: Pod
    log_bytes: int = LOG_BYTES
    since: float = field(default_factory=time.monotonic)
    submitted: float = field(default_factory=time.monotonic)
    status: AttemptStatus = field(default_factory=lambda: AttemptStatus(AttemptState.RUNNING))
    outcome: WorkloadOutcome | None = None
    has_started: bool = False
    is_cancelled: bool = False
    is_discarded: bool = False
    stop: Stop | None = None
    ask_at: float | None = None
    is_asked: bool = False
    found: WorkloadOutcome | None = None
    patient_until: float | None = None
    logs: dict[str, LiveCopy] = field(default_factory=dict)

    @property
    def expected(self) -> int:
        """The number of pods that the attempt should have."""
        return self.pod.hosts * self.pod.slices

    @property
    def is_running(self) -> bool:
        """Whether the end of the attempt has not been reported yet."""
        return self.status.state is AttemptState.RUNNING

    def ask_in(self, seconds: float) -> None:
        """Ask the server for the attempt's state after this many seconds, unless an earlier time is planned."""
        at = time.monotonic() + seconds
        self.ask_at = at if self.ask_at is None else min(self.ask_at, at)

    def has_to_be_asked(self, now: float) -> bool:
        """Return whether it is time to ask the server for the attempt's state."""
        return self.ask_at is not None and now >= self.ask_at

    def place(self, index: int) -> Path:
        """Return the local directory for a pod's logs and files. That of the first pod is that of the attempt."""
        return AttemptDirectory(self.directory).host(index).path
