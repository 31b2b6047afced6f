"""The transport of loads uses a connection again exactly if the server accepts another request on it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Collection, Iterator

import httpx
import pytest

from tests.features.inference.servers.inference.http_server import (
    EndConnectionError,
    HttpRequest,
    HttpServer,
    ResetConnectionError,
    Script,
    answering,
    response,
    serving,
)
from toolbox.features.inference.client.http_transport import IS_RESENT, LoadTransport

WHOLE = response({"a": 1})


def use(work: Callable[[httpx.AsyncClient], Awaitable[None]], idle_seconds: float = 60) -> None:
    async def run() -> None:
        transport = LoadTransport(None, idle_seconds=idle_seconds)
        async with httpx.AsyncClient(transport=transport, trust_env=False, timeout=None) as client:
            await work(client)

    asyncio.run(run())


def connections(server: HttpServer, requests: int, idle_seconds: float = 60) -> int:
    """Send some requests one after the other, and return the number of their connections."""

    async def work(client: httpx.AsyncClient) -> None:
        for _ in range(requests):
            assert (await client.get(server.url)).status_code == 200

    use(work, idle_seconds)
    return server.connections


def test_a_connection_is_used_again() -> None:
    with serving(answering(WHOLE), keeps_connections=True) as server:
        assert connections(server, 3) == 1


def test_a_connection_that_was_idle_is_not_used_again() -> None:
    with serving(answering(WHOLE), keeps_connections=True) as server:
        assert connections(server, 3, idle_seconds=0) == 3


def test_a_connection_that_the_server_announces_to_close_is_not_used_again() -> None:
    with serving(answering(response({"a": 1}, headers="Connection: Close\r\n"))) as server:
        assert connections(server, 3) == 3


def test_a_connection_with_more_than_the_response_is_not_used_again() -> None:
    with serving(answering(WHOLE + b"HTTP/1.1 500 X\r\n\r\n"), keeps_connections=True) as server:
        assert connections(server, 3) == 3


def test_a_connection_that_the_server_has_closed_is_not_used_again() -> None:
    with serving(answering(WHOLE)) as server:

        async def work(client: httpx.AsyncClient) -> None:
            await client.get(server.url)
            (connection,) = client._transport._idle  # type: ignore[attr-defined]
            assert await connection.read() == b""  # the end of the connection has arrived
            assert (await client.get(server.url)).json() == {"a": 1}

        use(work)
    assert server.connections == 2


def test_a_response_that_is_not_read_closes_its_connection() -> None:
    with serving(answering(response(b"a" * 1_000_000)), keeps_connections=True) as server:

        async def work(client: httpx.AsyncClient) -> None:
            for _ in range(2):
                async with client.stream("GET", server.url) as answer:
                    assert answer.status_code == 200

        use(work)
        assert server.connections == 2


def test_requests_at_the_same_time_have_connections_of_their_own() -> None:
    with serving(answering(WHOLE), keeps_connections=True) as server:

        async def work(client: httpx.AsyncClient) -> None:
            await asyncio.gather(*(client.get(server.url) for _ in range(4)))

        use(work)
        assert server.connections == 4


def test_a_large_response_is_whole() -> None:
    content = bytes(range(256)) * 20_000
    with serving(answering(response(content))) as server:

        async def work(client: httpx.AsyncClient) -> None:
            assert (await client.get(server.url)).content == content

        use(work)


def test_a_header_cannot_add_another_one() -> None:
    with serving(answering(WHOLE)) as server:

        async def work(client: httpx.AsyncClient) -> None:
            with pytest.raises(httpx.LocalProtocolError, match="header"):
                await client.get(server.url, headers={"X": "a\r\nY: b"})

        use(work)
        assert server.requests == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the server disconnected without a response"),
        (b"HTTP/1.1 103 Early Hints\r\n\r\n", "the server disconnected without a response"),
        (WHOLE[:-1], "without sending complete message body"),
        (b"HTTP/1.1 200 X\r\nX: " + b"a" * 70_000, "too long"),
        (b"HTTP/1.1 101 Switching\r\n\r\n", "without a pending proposal"),
        (b"<html>\r\n\r\n", "illegal status line"),
    ],
)
def test_a_response_that_is_not_whole_is_an_error(content: bytes, message: str) -> None:
    with serving(answering(content)) as server:

        async def work(client: httpx.AsyncClient) -> None:
            with pytest.raises(httpx.RemoteProtocolError, match=message):
                await client.get(server.url)

        use(work)


def test_an_informational_response_precedes_the_response() -> None:
    with serving(answering(b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" + WHOLE)) as server:
        assert connections(server, 1) == 1


def ending(end: type[Exception], *, at: Collection[int], first: bytes = b"") -> Script:
    """Return a script that ends the connection in place of the answers with some numbers, after some bytes."""
    numbers = itertools.count(1)

    def script(_: HttpRequest) -> Iterator[bytes]:
        if next(numbers) not in at:
            yield WHOLE
            return
        yield first
        raise end

    return script


@pytest.mark.parametrize("end", [EndConnectionError, ResetConnectionError])
def test_a_request_on_a_reused_connection_that_ends_is_sent_once_more(end: type[Exception]) -> None:
    with serving(ending(end, at=[2]), keeps_connections=True) as server:

        async def work(client: httpx.AsyncClient) -> None:
            answers = [await client.get(server.url) for _ in range(3)]
            assert [IS_RESENT in answer.extensions for answer in answers] == [False, True, False]

        use(work)
        assert (len(server.requests), server.connections) == (4, 2)


@pytest.mark.parametrize("end", [EndConnectionError, ResetConnectionError])
@pytest.mark.parametrize(
    ("at", "first", "requests"),
    [
        ([1], b"", 1),  # a new connection
        ([2, 3], b"", 3),  # the new connection ends, too
        ([2], b"HTTP/1.1 ", 2),  # bytes of the answer have arrived
        ([2], b"HTTP/1.1 103 Early Hints\r\n\r\n", 2),
    ],
)
def test_other_connections_that_end_are_errors(
    end: type[Exception], at: list[int], first: bytes, requests: int
) -> None:
    with serving(ending(end, at=at, first=first), keeps_connections=True) as server:

        async def work(client: httpx.AsyncClient) -> None:
            for _ in range(at[0] - 1):
                await client.get(server.url)
            with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
                await client.get(server.url)

        use(work)
        assert len(server.requests) == requests
