"""An attempt that runs, or ran, in pods: what is known of it here."""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

from toolbox.kubernetes.pods.description import Pod
from toolbox.kubernetes.pods.pod_logs import PodLogs
from toolbox.kubernetes.pods.stopping import Stop
from toolbox.model.workloads import LOG_BYTES, AttemptState, AttemptStatus, WorkloadOutcome
from toolbox.runs.layout import AttemptDirectory


@dataclass(slots=True)
class Attempt:
    """An attempt that runs, or ran, in pods.

    Args:
        job: the name of its Job.
        directory: of the attempt here, and `there`: in the pods.
        wait: how long it may take to start, and the server may be away, in seconds.
        pod: what its pods are like.
        log_bytes: the limit of each log.
        since: when it began to wait for its start, by the monotonic clock; the time in a queue is left out.
        submitted: when it was submitted, by the same clock.
        outcome: how it ended, before all of its logs are here too.
        is_cancelled: whether we asked for its end.
        is_discarded: whether we end it, so that no other pod takes the place of one that is gone.
        stop: how far that is, or what we were asked for; None where neither is to be.
        ask_at: when the server is asked about it, by the same clock: its end is only half told.
        is_asked: whether it is being asked.
        found: how it ended, though something of it may still run.
        patient_until: until when its pods may still say how they ended, by the same clock.
        logs: by the names of its pods, and `copying`: those that are being brought.
        unheard: since when there is a log that nobody follows yet, by the monotonic clock.
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
    logs: dict[str, PodLogs] = field(default_factory=dict)
    copying: dict[str, Future[None]] = field(default_factory=dict)
    unheard: dict[str, float] = field(default_factory=dict)

    @property
    def expected(self) -> int:
        """How many pods it has."""
        return self.pod.hosts * self.pod.slices

    @property
    def is_running(self) -> bool:
        """Whether nobody has been told of its end."""
        return self.status.state is AttemptState.RUNNING

    def ask_in(self, seconds: float) -> None:
        """Have the server asked about it so many seconds from now, or earlier where that is planned already."""
        at = time.monotonic() + seconds
        self.ask_at = at if self.ask_at is None else min(self.ask_at, at)

    def has_to_be_asked(self, now: float) -> bool:
        """Tell whether it is time for that, by the monotonic clock."""
        return self.ask_at is not None and now >= self.ask_at

    def place(self, index: int) -> Path:
        """Return where what is of its pod of this index goes: the first one is the cell to who looks at it."""
        return AttemptDirectory(self.directory).host(index).path
