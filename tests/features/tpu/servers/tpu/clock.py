"""The time of the test server, and the thread that executes what happens later.

A frozen clock stands still until `advance`, so that a test decides when a state changes. `advance` also moves a running
clock, so that no test waits for a long time limit.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

_LONG: Final = 3600.0  # seconds; a wait without any event


@dataclass(order=True, slots=True)
class _Event:
    """An action at a time."""

    time: float
    number: int
    action: Callable[[], None] = field(compare=False)


class Clock:
    """A clock whose one thread executes events in the order of their times.

    Args:
        frozen: whether time stands still, except for `advance`.
    """

    def __init__(self, *, frozen: bool = False) -> None:
        self.failures: list[str] = []  # tracebacks of actions that have failed
        self._frozen_at = time.time() if frozen else None
        self._skipped = 0.0
        self._numbers = itertools.count()
        self._events: list[_Event] = []
        self._changed = threading.Condition()
        self._is_busy = self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="tpu-clock", daemon=True)

    def start(self) -> None:
        """Begin to execute events."""
        self._thread.start()

    def stop(self) -> None:
        """Execute no more events."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        self._thread.join()

    def now(self) -> float:
        """Return the time in seconds since the epoch."""
        return (time.time() if self._frozen_at is None else self._frozen_at) + self._skipped

    def call_later(self, seconds: float, action: Callable[[], None]) -> None:
        """Execute an action after a time."""
        with self._changed:
            heapq.heappush(self._events, _Event(self.now() + seconds, next(self._numbers), action))
            self._changed.notify_all()

    def run(self, action: Callable[[], None]) -> None:
        """Execute an action on the thread of the clock, wait for its end, and raise its exception."""
        if threading.current_thread() is self._thread:
            action()
            return
        result: Future[None] = Future()

        def act() -> None:
            try:
                action()
            except Exception as error:  # noqa: BLE001 - it is raised where the caller waits
                result.set_exception(error)
            else:
                result.set_result(None)

        self.call_later(0, act)
        result.result()

    def advance(self, seconds: float | None = None) -> None:
        """Move the clock forward and wait until all events up to that time are over.

        Args:
            seconds: how far; None moves to the next event.
        """
        with self._changed:
            self._settle()
            if seconds is None:
                seconds = max(self._events[0].time - self.now(), 0) if self._events else 0.0
            until = self.now() + seconds
            while self._events and self._events[0].time <= until and not self._is_stopped:
                self._skipped += max(self._events[0].time - self.now(), 0)
                self._changed.notify_all()
                self._settle()
            self._skipped += max(until - self.now(), 0)
            self._changed.notify_all()

    def _settle(self) -> None:
        """Wait until no event is due or in execution."""
        self._changed.wait_for(lambda: self._is_stopped or (not self._is_busy and self._due_in() > 0))

    def _due_in(self) -> float:
        """Return the seconds until the next event."""
        return self._events[0].time - self.now() if self._events else _LONG

    def _run(self) -> None:
        while event := self._next():
            try:
                event.action()
            except Exception:  # noqa: BLE001 - the clock goes on; the server reports the failure at its end
                self.failures.append(traceback.format_exc())
            with self._changed:
                self._is_busy = False
                self._changed.notify_all()

    def _next(self) -> _Event | None:
        """Wait for the next event; return None after `stop`."""
        with self._changed:
            while not self._is_stopped:
                seconds = self._due_in()
                if seconds <= 0:
                    self._is_busy = True
                    return heapq.heappop(self._events)
                self._changed.wait(_LONG if self._frozen_at is not None else seconds)
        return None
