"""The received messages of one channel of a kernel. The connection to a Jupyter server has four of them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from queue import Empty
from typing import Any


class Channel:
    """The received messages of a channel. Threads and event loops may wait for messages."""

    def __init__(self, send: Any) -> None:
        self._send = send
        self._condition = threading.Condition()
        self._messages: deque[tuple[dict[str, Any], int]] = deque()
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self.waiting_bytes = 0

    def put(self, message: dict[str, Any], size: int) -> None:
        """Add a message, and wake the threads that wait for messages."""
        with self._condition:
            self._messages.append((message, size))
            self.waiting_bytes += size
            self._condition.notify_all()
            waiters, self._waiters = self._waiters, []
        for loop, event in waiters:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(event.set)

    def take(self, seconds: float) -> dict[str, Any]:
        """Return the next message. Raise Empty if there is none in time."""
        with self._condition:
            if not self._condition.wait_for(lambda: bool(self._messages), seconds):
                raise Empty
            return self._pop()

    async def get_msg(self, timeout: float | None = None) -> dict[str, Any]:
        """Return the next message. Raise Empty if there is none in time."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            event = asyncio.Event()
            with self._condition:
                if self._messages:
                    return self._pop()
                self._waiters.append((asyncio.get_running_loop(), event))
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise Empty
            try:
                await asyncio.wait_for(event.wait(), left)
            except (TimeoutError, asyncio.TimeoutError):
                raise Empty from None

    def send(self, message: dict[str, Any]) -> None:
        """Send a message to the kernel."""
        self._send(message)

    def _pop(self) -> dict[str, Any]:
        message, size = self._messages.popleft()
        self.waiting_bytes -= size
        return message

    def is_alive(self) -> bool:
        """Return True, because the connection itself reports its end."""
        return True

    def start(self) -> None:
        """Do nothing, because the connection exists already."""

    def stop(self) -> None:
        """Do nothing, because the connection ends all channels."""
