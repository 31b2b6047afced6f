"""A connection of the HTTP server ends if its client stops in the middle of a request or of a response."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from reference_server.http_connections import Connection, Server

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\n"
COMPLETE = HEAD + b"Content-Length: 0\r\n\r\n"
Application = Callable[[Any, Any, Any], Awaitable[None]]


GONE = (ConnectionResetError, asyncio.IncompleteReadError)


class Watched(Connection):
    """A connection that is checked very often."""

    interval = 0.01
    many_checks: asyncio.Event

    def _check(self) -> None:
        super()._check()
        if self._checks > 3 * self.patience:
            self.many_checks.set()


@asynccontextmanager
async def connected(application: Application) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    Watched.many_checks = asyncio.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = Server(application, seconds_to_end=5, connection=Watched)
        serving = asyncio.create_task(server.serve([listening]))
        reader, writer = await asyncio.open_connection(*listening.getsockname()[:2])
        try:
            async with asyncio.timeout(30):
                yield reader, writer
        finally:
            writer.close()
            server.should_exit = True
            await serving


async def respond(send: Any, body: bytes) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


async def read_all(_: Any, receive: Any, send: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    await respond(send, b"")


@pytest.mark.parametrize("sent", [b"", HEAD, HEAD + b"Content-Length: 9\r\n\r\nbegin"])
def test_a_client_that_sends_half_a_request_is_disconnected(sent: bytes) -> None:
    async def main() -> None:
        async with connected(read_all) as (reader, writer):
            writer.write(sent)
            with pytest.raises(GONE):
                await reader.readexactly(1)

    asyncio.run(main())


def test_a_client_that_reads_nothing_is_disconnected() -> None:
    async def main() -> None:
        sent = asyncio.Event()

        async def send_much(scope: Any, receive: Any, send: Any) -> None:
            del scope
            await receive()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for _ in range(1000):  # uvicorn waits until the client has read nearly all, or has gone away
                await send({"type": "http.response.body", "body": b"x" * 50_000, "more_body": True})
            sent.set()

        async with connected(send_much) as (reader, writer):
            writer.write(COMPLETE)
            await sent.wait()
            with pytest.raises(GONE):
                await reader.readexactly(50_000_000)

    asyncio.run(main())


async def respond_first(_: Any, receive: Any, send: Any) -> None:
    await respond(send, b"done")
    await receive()


@pytest.mark.parametrize("responds_before", [True, False])
def test_a_body_that_is_not_http_ends_its_connection_without_a_traceback(
    responds_before: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    head, body = HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"not a length\r\n"

    async def main() -> None:
        async with connected(respond_first) as (reader, writer):
            writer.write(head if responds_before else head + body)
            if responds_before:
                assert (await reader.readuntil(b"done")).startswith(b"HTTP/1.1 200 ")
                writer.write(body)
                assert await reader.read() == b""
            else:
                assert (await reader.read()).startswith(b"HTTP/1.1 400 ")

    asyncio.run(main())
    assert "Traceback" not in capfd.readouterr().err


def test_a_client_may_wait_long_for_its_response() -> None:
    async def main() -> None:
        async def think(_: Any, receive: Any, send: Any) -> None:
            await receive()
            await Watched.many_checks.wait()
            await respond(send, b"done")

        async with connected(think) as (reader, writer):
            writer.write(COMPLETE)
            assert (await reader.readuntil(b"done")).endswith(b"done")

    asyncio.run(main())
