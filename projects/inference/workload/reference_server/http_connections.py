"""
The connections of the HTTP server.

They end if their client neither sends the rest of a request nor reads the rest of a response. Otherwise, clients that
stop in the middle would occupy memory and file descriptors until they end. uvicorn itself limits only the time between
two requests.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol


class Connection(H11Protocol):
    """
    A connection to a client.

    Attributes:
        interval: seconds between two checks of the client.
        patience: number of checks without any progress after which the connection ends.
    """

    interval = 10.0
    patience = 3
    _awaited: object = None
    _checks = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        self._timer = self.loop.call_later(self.interval, self._check)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._timer.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are not HTTP. uvicorn itself would fail if another response has begun, or begins later."""
        if self.cycle:
            self.cycle.disconnected = True  # drops what the application sends
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def _check(self) -> None:
        awaited = self._next_from_client()
        self._checks = self._checks + 1 if awaited == self._awaited else 1
        self._awaited = awaited
        if awaited and self._checks > self.patience:
            self.transport.abort()
        else:
            self._timer = self.loop.call_later(self.interval, self._check)

    def _next_from_client(self) -> object:
        """Return what the client must do next, or None. The value changes when the client makes progress."""
        unread = self.transport.get_write_buffer_size()
        if unread:
            return "read", unread
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            return "send the rest of the request after", self.cycle
        return None


class Server(uvicorn.Server):
    """
    The HTTP server, which leaves the handling of signals to the program.

    Args:
        seconds_to_end: time that requests have to end after `should_exit` is set.
    """

    def __init__(self, application: Any, *, seconds_to_end: int, connection: type[Connection] = Connection) -> None:
        config = uvicorn.Config(
            application,
            http=connection,
            ws="none",
            lifespan="off",
            log_level="warning",
            timeout_graceful_shutdown=seconds_to_end,
        )
        super().__init__(config)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing, where uvicorn would set handlers."""
        yield
