"""Keeps the attempts on one target in one session of a run. Each backend has a book, and decides what changes in it.

All backends keep the same promises through their book: a name stands for one attempt, a final status never changes, and
the run is notified of each change that it may act on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Generic, TypeVar

from toolbox.ground.model.errors import describe, outcome_of
from toolbox.ground.model.verdicts import Cause
from toolbox.ground.model.workloads import AttemptState, AttemptStatus, EndedBy, Handle, WorkloadOutcome

_ENDINGS: Final = {Cause.CAPACITY: EndedBy.NO_CAPACITY, Cause.CONFIGURATION: EndedBy.NOT_STARTED}


@dataclass(slots=True, eq=False)
class Attempt:
    """What every backend knows about an attempt. Backends extend this class.

    Args:
        status: the last known status, which only the book changes.
        settled: set when the workload has started, or the attempt is over.
    """

    handle: Handle
    status: AttemptStatus = field(init=False, default_factory=lambda: AttemptStatus(AttemptState.SUBMITTED))
    settled: threading.Event = field(init=False, default_factory=threading.Event)

    @property
    def name(self) -> str:
        """The name of the attempt."""
        return self.handle.name

    @property
    def key(self) -> str:
        """The key of the attempt in its book."""
        return self.name

    @property
    def directory(self) -> Path:
        """The directory of the attempt in the run directory."""
        return self.handle.directory


SomeAttempt = TypeVar("SomeAttempt", bound=Attempt)


class AttemptBook(Generic[SomeAttempt]):
    """The attempts on one target, by their keys.

    Args:
        notify: called with the name of an attempt that is over, or whose message has changed; without the lock, unless
            the caller holds it.

    Attributes:
        lock: held during each change. A backend may hold it to change its own fields of an attempt.
        is_closed: whether the target is closed, so that nothing changes any more.
    """

    def __init__(self, notify: Callable[[str], None]) -> None:
        self.lock = threading.RLock()
        self.is_closed = False
        self._notify = notify
        self._attempts: dict[str, SomeAttempt] = {}

    def add(self, attempt: SomeAttempt) -> SomeAttempt:
        """Add an attempt, and return it. If the book has an attempt with its key, return that attempt instead.

        An unreachable attempt is replaced, because its target may answer again.
        """
        with self.lock:
            existing = self._attempts.get(attempt.key)
            if existing is not None and existing.status.state is not AttemptState.UNREACHABLE:
                return existing
            self._attempts[attempt.key] = attempt
            return attempt

    def get(self, key: str) -> SomeAttempt | None:
        """Return an attempt; None if the book does not have it."""
        return self._attempts.get(key)

    def __getitem__(self, key: str) -> SomeAttempt:
        return self._attempts[key]

    def forget(self, key: str) -> None:
        """Remove an attempt."""
        with self.lock:
            self._attempts.pop(key, None)

    def is_open(self, attempt: SomeAttempt) -> bool:
        """Return whether the status of an attempt can still change."""
        return not (self.is_closed or attempt.status.state.is_over)

    def attempts(self) -> list[SomeAttempt]:
        """Return all attempts."""
        with self.lock:
            return list(self._attempts.values())

    def open_attempts(self) -> list[SomeAttempt]:
        """Return the attempts whose status can still change; none if the book is closed."""
        return [attempt for attempt in self.attempts() if self.is_open(attempt)]

    def change(self, attempt: SomeAttempt, status: AttemptStatus) -> bool:
        """Change the status of an attempt, and return whether it was changed.

        Nothing changes if the attempt has already reached a later state, if it was removed, or if the book is closed.
        """
        with self.lock:
            before, is_known = attempt.status, self._attempts.get(attempt.key) is attempt
            if self.is_closed or not is_known or not before.state.may_become(status.state):
                return False
            attempt.status = status
            if status.state is not AttemptState.SUBMITTED:
                attempt.settled.set()
        if status.state.is_over or status.message != before.message:
            self._notify(attempt.name)
        return True

    def show_waiting(self, attempt: SomeAttempt, reason: str) -> None:
        """Show why an attempt has not started yet."""
        self.change(attempt, AttemptStatus(AttemptState.SUBMITTED, message=reason))

    def close(self) -> None:
        """Refuse further changes, and end the waits for attempts."""
        with self.lock:
            self.is_closed = True
            for attempt in self._attempts.values():
                attempt.settled.set()


def outcome_of_failed_start(error: BaseException) -> WorkloadOutcome:
    """Return the outcome of an attempt that could not be started."""
    _, cause = outcome_of(error)
    return WorkloadOutcome(_ENDINGS.get(cause, EndedBy.LOST), message=describe(error))
