"""SIGINT, SIGTERM and SIGHUP as exceptions of the main thread, held back where a run must not be torn apart.

The command line installs the handlers; importing this sets none.
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

# One to end the run, one for impatience; who sends a third means it.
_PATIENCE: Final = 3


def _nobody() -> None:
    return


class _State:
    """What has arrived. Only the main thread and its signal handlers touch it."""

    received: list[int]
    is_shielded: bool
    is_deferred: bool
    wake: Callable[[], object]  # where signals are deferred

    def __init__(self) -> None:
        self.received = []
        self.is_shielded = False
        self.is_deferred = False
        self.wake = _nobody


_state = _State()


def install() -> None:
    """Have SIGINT, SIGTERM, SIGHUP (a terminal that is gone) and a deadline raise `Interrupted` in the main thread.

    What `nohup` has had ignored stays ignored.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _handle)


@contextmanager
def deadline(seconds: float | None) -> Iterator[None]:
    """Interrupt the body after so many seconds, if it takes longer."""
    signal.setitimer(signal.ITIMER_REAL, seconds or 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def first() -> int | None:
    """Return the first signal that arrived, or None."""
    return _state.received[0] if _state.received else None


@contextmanager
def shielded() -> Iterator[None]:
    """Hold signals back: they are remembered, and the third one raises all the same."""
    before, _state.is_shielded = _state.is_shielded, True
    try:
        yield
    finally:
        _state.is_shielded = before


@contextmanager
def exposed() -> Iterator[None]:
    """Let signals raise inside of a shielded region; one that was held back raises now."""
    before, _state.is_shielded = _state.is_shielded, False
    try:
        if _state.received:
            raise Interrupted(_state.received[0])
        yield
    finally:
        _state.is_shielded = before


@contextmanager
def deferred(wake: Callable[[], object] | None = None) -> Iterator[None]:
    """Let no signal tear the body apart; the caller asks for those that came, with `check`, where it is ready.

    Args:
        wake: called in the handler of a signal, between two instructions of anything: it may take no lock.

    An exception out of nowhere is no way to leave code that hands locks to other threads: one that is raised between
    the acquiring of a lock and the line that would release it leaves the others waiting for ever.
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
    """Raise `Interrupted` for a signal that was deferred, in the main thread, unless the region is shielded."""
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
    if count >= _PATIENCE:
        raise Interrupted(_state.received[0])
    left = _PATIENCE - count
    log.warning("%s: the run is ending and cleans up; %d more to stop that too", signal.Signals(number).name, left)
