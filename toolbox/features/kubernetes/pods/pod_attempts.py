"""The state that the tracker keeps for an attempt in pods."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from toolbox.features.kubernetes.pods.description import Pod
from toolbox.features.kubernetes.pods.pod_logs import LiveCopy
from toolbox.features.kubernetes.pods.stopping import Stop
from toolbox.ground.model.workloads import LOG_BYTES, AttemptState
from toolbox.records.runs.layout import AttemptDirectory
from toolbox.targets.attempt_book import Attempt


@dataclass(slots=True)
class Inquiry:
    """When to ask the server for the state of an attempt, because the watches have not yet shown how it ended.

    Args:
        due: the monotonic time; None if there is no need to ask.
        is_running: whether the server is being asked.
        patient_until: until when the pods may still report how they ended; None if they are not ending.
    """

    due: float | None = None
    is_running: bool = False
    patient_until: float | None = None

    def plan(self, seconds: float) -> None:
        """Ask after this many seconds, unless an earlier time is planned."""
        at = time.monotonic() + seconds
        self.due = at if self.due is None else min(self.due, at)

    def is_due(self, now: float) -> bool:
        """Return whether it is time to ask."""
        return self.due is not None and now >= self.due


@dataclass(slots=True, eq=False)
class PodAttempt(Attempt):
    """An attempt that runs, or ran, in pods. All times are monotonic.

    Args:
        job: the name of its Job.
        there: the directory of the attempt in the pods.
        wait: the number of seconds that the start may take, and that the server may be unavailable.
        log_bytes: the maximum size of each log.
        submitted: when it was submitted.
        queued_until: until when it waited in a queue. This time does not count as waiting for the start.
        stop: the progress of its cancellation or deletion; None if it is not being stopped.
        logs: the live copies of its logs, by the name of the pod.
    """

    job: str
    there: str
    wait: float
    pod: Pod
    log_bytes: int = LOG_BYTES
    submitted: float = field(default_factory=time.monotonic)
    queued_until: float = 0.0
    stop: Stop | None = None
    inquiry: Inquiry = field(default_factory=Inquiry)
    logs: dict[str, LiveCopy] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The name of its Job, which is a label of its pods."""
        return self.job

    @property
    def expected(self) -> int:
        """The number of pods that the attempt should have."""
        return self.pod.hosts * self.pod.slices

    @property
    def is_open(self) -> bool:
        """Whether the outcome of the attempt has not been decided."""
        return self.status.state.may_become(AttemptState.ENDING)

    @property
    def has_started(self) -> bool:
        """Whether all of its pods have started."""
        return self.status.state is not AttemptState.SUBMITTED and (self.stop is None or self.stop.has_started)

    @property
    def is_cancelled(self) -> bool:
        """Whether the run cancelled it."""
        return self.stop is not None and self.stop.is_cancellation

    @property
    def is_discarded(self) -> bool:
        """Whether the run deletes its Job, so that a lost pod is not replaced."""
        return self.stop is not None and self.stop.is_discard

    def close_logs(self) -> None:
        """Stop copying its logs."""
        for copy in list(self.logs.values()):
            copy.close()

    def await_logs(self, seconds: float) -> None:
        """Wait until no logs are being fetched from its pods, at most for `seconds`."""
        deadline = time.monotonic() + seconds
        for copy in list(self.logs.values()):
            if copy.fetching.acquire(timeout=max(0.0, deadline - time.monotonic())):
                copy.fetching.release()

    def is_late(self, now: float) -> bool:
        """Return whether the attempt has waited too long for its start."""
        return self.is_open and not self.has_started and now - max(self.submitted, self.queued_until) > self.wait

    def place(self, index: int | None) -> AttemptDirectory:
        """Return the local directory of the pod with this index. The first pod has the directory of the attempt.

        Args:
            index: the index; None for a pod without an index, which is the only pod of its attempt.
        """
        return AttemptDirectory(self.directory).host(index or 0)
