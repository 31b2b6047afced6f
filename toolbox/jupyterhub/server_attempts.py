"""The state of attempts on the servers of a hub, in one session of a run.

`ServerAttempts` makes each change under one lock, and notifies the run. The backend decides about the changes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from toolbox.jupyterhub.server_request import ServerRequest
from toolbox.model.errors import describe, outcome_of
from toolbox.model.verdicts import Cause
from toolbox.model.workloads import AttemptState, AttemptStatus, EndedBy, Handle, Workload, WorkloadOutcome
from toolbox.system.cancellation import CancelScope

_ENDINGS: Final = {Cause.CAPACITY: EndedBy.NO_CAPACITY, Cause.CONFIGURATION: EndedBy.NOT_STARTED}


@dataclass(slots=True, eq=False)
class ServerAttempt:
    """An attempt of a cell, whose workload starts when its server is ready.

    Args:
        server: the server of the attempt.
        scope: the scope of the request that starts the workload.
        is_started: whether the workload was started on this machine.
        is_cancelled: whether the run cancelled the attempt.
        stop_following: cancels the coroutine that starts the server.
        settled: set when the workload was started, or the attempt is over.
    """

    handle: Handle
    workload: Workload
    server: ServerRequest
    scope: CancelScope
    is_started: bool = False
    is_cancelled: bool = False
    status: AttemptStatus = field(default_factory=lambda: AttemptStatus(AttemptState.SUBMITTED))
    stop_following: Callable[[], object] = lambda: None
    settled: threading.Event = field(default_factory=threading.Event)


class ServerAttempts:
    """The attempts of one session on the servers of one hub.

    Args:
        notify: called with the name of an attempt whose status has changed.
    """

    def __init__(self, notify: Callable[[str], None]) -> None:
        self._notify = notify
        self._lock = threading.RLock()
        self._by_name: dict[str, ServerAttempt] = {}
        self._is_closed = False

    def close(self) -> None:
        """Refuse further changes, because the target is closed."""
        with self._lock:
            self._is_closed = True
            for attempt in self._by_name.values():
                attempt.settled.set()

    @property
    def is_closed(self) -> bool:
        """Whether the target is closed."""
        return self._is_closed

    def add(self, attempt: ServerAttempt) -> ServerAttempt:
        """Add an attempt. If an attempt with its name exists and is not over, return that attempt instead."""
        with self._lock:
            existing = self._by_name.get(attempt.handle.name)
            if existing is not None and not existing.status.state.is_over:
                return existing
            self._by_name[attempt.handle.name] = attempt
            return attempt

    def get(self, name: str) -> ServerAttempt | None:
        """Return the attempt with this name; None if this session does not know it."""
        return self._by_name.get(name)

    def forget(self, name: str) -> None:
        """Remove an attempt."""
        with self._lock:
            self._by_name.pop(name, None)

    def show_waiting(self, attempt: ServerAttempt, reason: str) -> None:
        """Notify the run why an attempt waits for its server."""
        with self._lock:
            is_waiting = not (attempt.is_started or attempt.status.state.is_over or self._is_closed)
            if not is_waiting or attempt.status.message == reason:
                return
            attempt.status = AttemptStatus(AttemptState.SUBMITTED, message=reason)
        self._notify(attempt.handle.name)

    def note_start(self, attempt: ServerAttempt) -> None:
        """Record that the workload was started."""
        with self._lock:
            attempt.is_started = True
        attempt.settled.set()
        self.show_start(attempt)

    def show_start(self, attempt: ServerAttempt) -> None:
        """Notify the run that a workload was started, so that the run no longer shows the message of the hub."""
        if attempt.status.message:
            self._notify(attempt.handle.name)

    def cancel(self, attempt: ServerAttempt) -> None:
        """Record that the run cancels an attempt. If its workload has not started, the attempt ends at once."""
        with self._lock:
            attempt.is_cancelled = True
            is_started = attempt.is_started
        if not is_started:
            attempt.stop_following()
            attempt.scope.cancel("the attempt is cancelled")
            self.conclude(attempt, WorkloadOutcome(EndedBy.CANCELLED))

    def conclude(self, attempt: ServerAttempt, outcome: WorkloadOutcome) -> None:
        """End an attempt whose workload has not started. Do nothing if the attempt is over."""
        with self._lock:
            if attempt.is_started or attempt.status.state.is_over or self._is_closed:
                return
            attempt.status = attempt.status.become(AttemptState.ENDED, outcome)
        attempt.settled.set()
        self._notify(attempt.handle.name)


def outcome_of_failed_start(error: BaseException) -> WorkloadOutcome:
    """Return the outcome of an attempt whose server or workload could not be started."""
    _, cause = outcome_of(error)
    return WorkloadOutcome(_ENDINGS.get(cause or Cause.INTERNAL, EndedBy.LOST), message=describe(error))
