"""Sends requests of httpx over connections of asyncio, for loads.

The transport of httpx needs about 0.1 ms of CPU time for each chunk of a response, so that a few thousand tokens per
second would overload a load generator. Only what the client of OpenAI's protocol needs is here: HTTP/1.1, with or
without TLS, without proxies.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from typing import Final

import httpx

from .http_body import HttpError, ResponseParser

_MOST_UNREAD: Final = 256 << 10
_PORTS: Final = {"http": 80, "https": 443}


class _Connection(asyncio.Protocol):
    """A connection, of which one task reads at a time."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._received = bytearray()
        self._waiting: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self.is_ended = False
        self.idle_since = 0.0

    @property
    def is_usable(self) -> bool:
        """Whether another request can be sent."""
        return not (self.is_ended or self._received or self.transport.is_closing())

    async def read(self) -> bytes:
        """Return the bytes that have arrived, or wait for some; nothing at the end. Raise OSError."""
        if not self._received and not self.is_ended:
            self._waiting = asyncio.get_running_loop().create_future()
            try:
                await self._waiting
            finally:
                self._waiting = None
        if not self._received and self._error:
            raise self._error
        content = bytes(self._received)
        self._received.clear()
        self.transport.resume_reading()
        return content

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) > _MOST_UNREAD:
            self.transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self.is_ended = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._error = exc
        self.is_ended = True
        self._wake()

    def _wake(self) -> None:
        if self._waiting and not self._waiting.done():
            self._waiting.set_result(None)


class _Body(httpx.AsyncByteStream):
    """The body of a response. Its connection is kept if the body was read to its end."""

    def __init__(self, transport: LoadTransport, connection: _Connection, parser: ResponseParser, first: bytes) -> None:
        self._transport = transport
        self._connection = connection
        self._parser = parser
        self._first = first

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._first:
            yield self._first
        while not self._parser.is_complete:
            if content := await _feed(self._connection, self._parser):
                yield content

    async def aclose(self) -> None:
        """Give the connection back, or close it."""
        head, parser = self._parser.head, self._parser
        self._transport.end(
            self._connection,
            is_usable=bool(head and head.keeps_connection and parser.is_complete and not parser.has_rest),
        )


class LoadTransport(httpx.AsyncBaseTransport):
    """Sends each request over a connection that no other request uses at this time.

    Args:
        idle_seconds: a connection that was idle for this time is not used again.
    """

    def __init__(self, tls: ssl.SSLContext | None, *, idle_seconds: float) -> None:
        self._tls = tls
        self._idle_seconds = idle_seconds
        self._idle: list[_Connection] = []  # the one that was used last is the last one

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and return its response as soon as the head is there."""
        content = _content(request)
        connection = self._idle_connection() or await self._connect(request.url)
        parser = ResponseParser()
        try:
            connection.transport.write(content)
            first = b""
            while parser.head is None:
                first = await _feed(connection, parser)
        except BaseException:
            self.end(connection, is_usable=False)
            raise
        body = _Body(self, connection, parser, first)
        return httpx.Response(parser.head.status, headers=list(parser.head.headers), stream=body)

    def end(self, connection: _Connection, *, is_usable: bool) -> None:
        """Keep a connection for another request, or close it."""
        if is_usable and connection.is_usable:
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.append(connection)
        else:
            connection.transport.abort()

    async def aclose(self) -> None:
        """Close all connections."""
        for connection in self._idle:
            connection.transport.abort()
        self._idle.clear()

    def _idle_connection(self) -> _Connection | None:
        oldest = asyncio.get_running_loop().time() - self._idle_seconds
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable and connection.idle_since > oldest:
                return connection
            connection.transport.abort()
        return None

    async def _connect(self, url: httpx.URL) -> _Connection:
        context = self._tls if url.scheme == "https" else None
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                _Connection, url.host, url.port or _PORTS[url.scheme], ssl=context
            )
        except OSError as error:  # also an error of TLS
            raise httpx.ConnectError(str(error)) from error
        return connection


async def _feed(connection: _Connection, parser: ResponseParser) -> bytes:
    """Return some bytes of the body, which may be none yet. Raise an error of httpx."""
    try:
        content = await connection.read()
        if content:
            return parser.feed(content)
        parser.feed_end()
    except HttpError as error:
        raise httpx.RemoteProtocolError(str(error)) from error
    except OSError as error:
        raise httpx.ReadError(str(error)) from error
    return b""


def _content(request: httpx.Request) -> bytes:
    """Return the bytes of a request."""
    lines = [f"{request.method} ".encode() + request.url.raw_path + b" HTTP/1.1"]
    lines += [name + b": " + value for name, value in request.headers.raw]
    if any(b"\r" in line or b"\n" in line or b"\0" in line for line in lines):
        raise httpx.LocalProtocolError("a header of the request contains a line break")
    return b"\r\n".join(lines) + b"\r\n\r\n" + request.content
