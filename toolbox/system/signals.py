"""Raises SIGINT, SIGTERM and SIGHUP as exceptions in the main thread, or holds them back where they would do harm.

The command line installs the handlers; importing this module does not.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from toolbox.model.errors import Interrupted

log = logging.getLogger(__name__)

# The first signal ends the run. The second one is only counted. The third one ends the cleanup as well.
_TIMEOUT: Final = 3


def _do_nothing() -> None:
    return


class _State:
    """The signals that have arrived. Only the main thread and its signal handlers use it."""

    received: list[int]
    is_shielded: bool
    is_deferred: bool
    wake: Callable[[], object]  # called when a signal arrives while signals are deferred

    def __init__(self) -> None:
        self.received = []
        self.is_shielded = False
        self.is_deferred = False
        self.wake = _do_nothing


_state = _State()


def install() -> None:
    """Make SIGINT, SIGTERM, SIGHUP (the terminal is gone) and a deadline raise `Interrupted` in the main thread.

    A signal that `nohup` has set to be ignored stays ignored.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _handle)


@contextmanager
def deadline(seconds: float | None) -> Iterator[None]:
    """Interrupt the body after `seconds`, if it takes longer."""
    signal.setitimer(signal.ITIMER_REAL, seconds or 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def first() -> int | None:
    """Return the first signal that arrived; None if there was none."""
    return _state.received[0] if _state.received else None


@contextmanager
def shielded() -> Iterator[None]:
    """Hold signals back: they are recorded, and only the third one raises."""
    before, _state.is_shielded = _state.is_shielded, True
    try:
        yield
    finally:
        _state.is_shielded = before


@contextmanager
def exposed() -> Iterator[None]:
    """Let signals raise inside of a shielded region. A signal that was held back raises now."""
    before, _state.is_shielded = _state.is_shielded, False
    try:
        if _state.received:
            raise Interrupted(_state.received[0])
        yield
    finally:
        _state.is_shielded = before


@contextmanager
def deferred(wake: Callable[[], object] | None = None) -> Iterator[None]:
    """Let no signal interrupt the body. Call `check` at a safe point, to raise for signals that arrived.

    Args:
        wake: called in the signal handler, between any two instructions: it must not take a lock.

    In code that hands locks to other threads, an exception from a signal handler is dangerous: raised between the
    acquisition of a lock and the line that would release it, it leaves the other threads waiting forever.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = (_state.is_deferred, _state.wake)
    _state.is_deferred, _state.wake = True, wake or _state.wake
    try:
        yield
    finally:
        _state.is_deferred, _state.wake = before


def check() -> None:
    """Raise `Interrupted` if a signal was deferred. Do nothing in other threads, and in a shielded region."""
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and _state.received and not _state.is_shielded:
        raise Interrupted(_state.received[0])


def _handle(number: int, _frame: FrameType | None) -> None:
    _state.received.append(number)
    count = len(_state.received)
    if count == 1 and not _state.is_shielded:
        if _state.is_deferred:
            _state.wake()
            return
        raise Interrupted(number)
    if count >= _TIMEOUT:
        raise Interrupted(_state.received[0])
    left = _TIMEOUT - count
    log.warning("%s: the run is ending and cleans up; %d more to stop that too", signal.Signals(number).name, left)
