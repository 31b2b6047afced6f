"""Raises SIGINT, SIGTERM and SIGHUP as exceptions in the main thread, or defers them where they would do harm.

Importing this module does not install the signal handlers. The command line calls `install`.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Final

from toolbox.ground.model.errors import Interrupted

log = logging.getLogger(__name__)

WAIT_SECONDS: Final = 0.1
"""The longest single wait of the main thread: a signal that the system delivers to another thread does not end it."""
# The first signal ends the run, the second signal is only counted, and the third signal ends the cleanup too.
_SIGNALS_TO_END_CLEANUP: Final = 3


@dataclass(slots=True)
class _State:
    """The signals that have arrived. Only the main thread and its signal handlers use this object."""

    received: list[int] = field(default_factory=list)
    is_shielded: bool = False
    is_deferred: bool = False
    wake: Callable[[], object] = lambda: None  # called when a signal arrives while signals are deferred


_state = _State()


def install() -> None:
    """Make SIGINT, SIGTERM, SIGHUP and the deadline (SIGALRM) raise `Interrupted` in the main thread.

    A signal that the process already ignores, for example because of `nohup`, stays ignored.
    """
    for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        if signal.getsignal(signal_number) is not signal.SIG_IGN:
            signal.signal(signal_number, _handle)


@contextmanager
def deadline(seconds: float | None) -> Iterator[None]:
    """Interrupt the body of the `with` statement after `seconds`; None for no limit."""
    signal.setitimer(signal.ITIMER_REAL, seconds or 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def forget_deadline() -> None:
    """Forget that the deadline of an ended run has passed, so that it does not interrupt the next run."""
    _state.received[:] = [number for number in _state.received if number != signal.SIGALRM]


def first() -> int | None:
    """Return the number of the first signal that arrived; None if no signal has arrived."""
    return _state.received[0] if _state.received else None


def cleanup_has_ended() -> bool:
    """Return whether the third signal has arrived, after which nothing more is cleaned up."""
    return len(_state.received) >= _SIGNALS_TO_END_CLEANUP


@contextmanager
def shielded() -> Iterator[None]:
    """Only record the signals that arrive while the body runs. The third signal raises `Interrupted` nevertheless."""
    previous, _state.is_shielded = _state.is_shielded, True
    try:
        yield
    finally:
        _state.is_shielded = previous


@contextmanager
def exposed() -> Iterator[None]:
    """Let signals raise `Interrupted` while the body runs, inside of a shielded region.

    If a signal has already arrived, raise `Interrupted` at once.
    """
    previous, _state.is_shielded = _state.is_shielded, False
    try:
        if _state.received:
            raise Interrupted(_state.received[0])
        yield
    finally:
        _state.is_shielded = previous


@contextmanager
def deferred(wake: Callable[[], object] | None = None) -> Iterator[None]:
    """Don't raise `Interrupted` for the first signal while the body runs. Call `check` at a safe point to raise it.

    Use this for code with locks that other threads need: an exception from a signal handler, after a lock was acquired
    and before the `try` statement that releases it, would leave the other threads waiting forever.

    Args:
        wake: a function that the signal handler calls. It must not acquire a lock that the main thread may hold.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = (_state.is_deferred, _state.wake)
    _state.is_deferred, _state.wake = True, wake or _state.wake
    try:
        yield
    finally:
        _state.is_deferred, _state.wake = previous


def check() -> None:
    """Raise `Interrupted` if a signal has arrived, or in a shielded region, if the third signal has arrived.

    Do nothing outside of the main thread.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and (cleanup_has_ended() if _state.is_shielded else _state.received):
        raise Interrupted(_state.received[0])


def _handle(signal_number: int, _frame: FrameType | None) -> None:
    _state.received.append(signal_number)
    count = len(_state.received)
    if count == 1 and not _state.is_shielded:
        if _state.is_deferred:
            _state.wake()
            return
        raise Interrupted(signal_number)
    if cleanup_has_ended():
        raise Interrupted(_state.received[0])
    name, signals_left = signal.Signals(signal_number).name, _SIGNALS_TO_END_CLEANUP - count
    log.warning("%s: the run is cleaning up; send %d more to stop the cleanup", name, signals_left)
