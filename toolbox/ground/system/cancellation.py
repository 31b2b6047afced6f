"""Structured cancellation: cancelling a scope ends all tasks in the scope and in its nested scopes.

For each task, a function that ends the task is registered in the scope. Cancelling the scope calls these functions in
parallel. A task that is started in a cancelled scope is ended at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from toolbox.ground.model.errors import Cancelled
from toolbox.ground.system import signals
from toolbox.ground.system.context_values import ContextValue

log = logging.getLogger(__name__)


class CancelScope:
    """A region of the program that can be cancelled as a whole, from any thread."""

    def __init__(self, parent: CancelScope | None = None) -> None:
        self._lock = threading.Lock()
        self._reason: str | None = None
        self._endings: dict[object, Callable[[], object]] = {}
        self._cancelled = threading.Event()
        # If the parent is already cancelled, `add` cancels this new scope at once.
        self._leave_parent = parent.add(lambda: self.cancel(parent.reason or "")) if parent is not None else None

    @property
    def reason(self) -> str | None:
        """Why the scope was cancelled; None if it was not cancelled."""
        return self._reason

    def check(self) -> None:
        """Raise `Cancelled` if the scope was cancelled."""
        if self._reason is not None:
            raise Cancelled(self._reason)

    def sleep(self, seconds: float) -> None:
        """Wait for `seconds`. If the scope is cancelled, raise `Cancelled` at once."""
        self.wait(self._cancelled, seconds)
        self.check()

    def wait(self, event: threading.Event, seconds: float) -> None:
        """Wait for an event, at most for `seconds`. If the scope is cancelled, raise `Cancelled` soon."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not event.wait(min(left, signals.WAIT_SECONDS)):
            self.check()

    def add(self, ending: Callable[[], object]) -> Callable[[], None]:
        """Register a function that ends a task. If the scope is already cancelled, call the function at once.

        Returns:
            A function that unregisters `ending`, to be called when the task has ended.
        """
        key = object()
        with self._lock:
            self._endings[key] = ending
            is_cancelled = self._reason is not None
        if is_cancelled:
            ending()
        return lambda: self._remove(key)

    def cancel(self, reason: str) -> None:
        """End all tasks of the scope in parallel, and return when they have ended."""
        with self._lock:
            if self._reason is not None:
                return
            self._reason = reason
            self._cancelled.set()
            endings = list(self._endings.values())
        threads = [threading.Thread(target=_end, args=(ending,), daemon=True) for ending in endings]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def close(self) -> None:
        """Remove this scope from its parent."""
        if self._leave_parent is not None:
            self._leave_parent()

    def _remove(self, key: object) -> None:
        with self._lock:
            self._endings.pop(key, None)


_current: ContextValue[CancelScope] = ContextValue("cancel_scope")
entered = _current.entered


def current() -> CancelScope:
    """Return the current scope. If there is none, return a new scope that is never cancelled."""
    return _current.get() or CancelScope()


@contextmanager
def opened_by_process() -> Iterator[CancelScope]:
    """Open a scope inside the current scope. Threads without a context use the new scope too."""
    with opened() as scope, _current.entered_by_process(scope):
        yield scope


@contextmanager
def opened() -> Iterator[CancelScope]:
    """Open a scope inside the current scope."""
    scope = CancelScope(_current.get())
    try:
        with entered(scope):
            yield scope
    finally:
        scope.close()


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Open a scope inside the current scope, and cancel it if the body does not end within `seconds`.

    Raises:
        TimeoutError: the time has expired, and the tasks of the scope have ended.
    """
    over = f"the time limit of {seconds:g} s is over"
    with opened() as scope:
        timer = threading.Timer(seconds, scope.cancel, [over])
        timer.daemon = True
        timer.start()
        try:
            yield
        except Cancelled:
            if scope.reason != over:
                raise
            raise TimeoutError(over) from None
        finally:
            timer.cancel()


def _end(ending: Callable[[], object]) -> None:
    try:
        ending()
    except Exception:
        log.exception("a cancelled process or request could not be ended")
