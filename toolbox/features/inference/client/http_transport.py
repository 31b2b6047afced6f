"""Sends requests of httpx over connections of asyncio, for loads. h11 speaks HTTP/1.1, as it does below httpx.

The transport of httpx needs about 0.1 ms of CPU time for each chunk of a response, so that a few thousand tokens per
second would overload a load generator. Only what the client of OpenAI's protocol needs is here: HTTP/1.1, with or
without TLS, without proxies.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from typing import Final

import h11
import httpx

_MAX_UNREAD: Final = 256 << 10
_MAX_HEAD_BYTES: Final = 64 << 10
_PORTS: Final = {"http": 80, "https": 443}
IS_RESENT: Final = "topgallant_is_resent"
"""The extension of a response whose request was sent twice: the server had closed the connection that was reused."""


class _Connection(asyncio.Protocol):
    """A connection, of which one task reads at a time.

    Args:
        http: the state of the requests and responses.
    """

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD_BYTES)
        self._received = bytearray()
        self._waiting: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self.is_ended = False
        self.is_answering = False  # whether bytes have arrived since the last request was sent
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
        self.is_answering = True
        self._received += data
        if len(self._received) > _MAX_UNREAD:
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

    def __init__(self, transport: LoadTransport, connection: _Connection) -> None:
        self._transport = transport
        self._connection = connection

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while isinstance(event := await _event(self._connection), h11.Data):
            yield bytes(event.data)

    async def aclose(self) -> None:
        """Give the connection back, or close it."""
        self._transport.end(self._connection)


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
        """Send a request, and return its response as soon as the head is there.

        A server may close an idle connection while a request is on its way, without an announcement; llama-server does
        so after each stream. If a reused connection ends before any byte of the answer, the request is sent once more,
        on a new connection (RFC 9112, section 9.3.1), and the response has the extension `IS_RESENT`. A request for a
        text changes nothing on the server, so it may be sent twice.
        """
        if connection := self._idle_connection():
            try:
                return await self._exchange(connection, request)
            except (httpx.RemoteProtocolError, httpx.ReadError):
                if connection.is_answering or not connection.is_ended:
                    raise
        response = await self._exchange(await self._connect(request.url), request)
        if connection:
            response.extensions[IS_RESENT] = True
        return response

    async def _exchange(self, connection: _Connection, request: httpx.Request) -> httpx.Response:
        try:
            connection.is_answering = False
            connection.transport.write(_content(connection.http, request))
            while isinstance(event := await _event(connection), h11.InformationalResponse):
                pass  # the response follows
        except BaseException:
            connection.transport.abort()
            raise
        assert isinstance(event, h11.Response)  # all else would be an error of the protocol
        return httpx.Response(event.status_code, headers=list(event.headers), stream=_Body(self, connection))

    def end(self, connection: _Connection) -> None:
        """Keep a connection for another request, or close it."""
        http = connection.http
        is_complete = http.our_state is http.their_state is h11.DONE and not http.trailing_data[0]
        if is_complete and connection.is_usable:
            http.start_next_cycle()
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


async def _event(connection: _Connection) -> object:
    """Return the next event of the response, as h11 calls its parts. Raise an error of httpx."""
    try:
        while (event := connection.http.next_event()) is h11.NEED_DATA:
            content = await connection.read()
            if not content and connection.http.their_state is h11.SEND_RESPONSE:
                raise httpx.RemoteProtocolError("the server disconnected without a response")
            connection.http.receive_data(content)
    except h11.RemoteProtocolError as error:
        raise httpx.RemoteProtocolError(str(error)) from error
    except OSError as error:
        raise httpx.ReadError(str(error)) from error
    return event


def _content(http: h11.Connection, request: httpx.Request) -> bytes:
    """Return the bytes of a request. Raise an error of httpx."""
    try:
        head = h11.Request(method=request.method, target=request.url.raw_path, headers=request.headers.raw)
        events = [head, h11.Data(data=request.content), h11.EndOfMessage()]
        return b"".join(http.send(event) or b"" for event in events)
    except h11.LocalProtocolError as error:
        raise httpx.LocalProtocolError(str(error)) from error
