"""An event loop whose clock jumps to the next timer instead of waiting for it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    """Reports that time has passed at once."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if timeout and not ready:
            self.time += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """The loop. Its time begins at 0 seconds."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.time

    def advance(self, seconds: float) -> None:
        """Let time pass while no other code runs, as a computation does."""
        self._virtual.time += seconds


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine as `asyncio.run` does, without waiting."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
