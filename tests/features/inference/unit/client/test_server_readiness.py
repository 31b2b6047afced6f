"""The wait for a server ends when it is ready, when it has ended, or when the time is over."""

from __future__ import annotations

import asyncio
import time

import pytest

from toolbox.features.inference.client.answer_format import FaultError
from toolbox.features.inference.client.server_readiness import NotReadyError, Probe, wait_until_ready


def failing(times: int, calls: list[str], name: str = "probe") -> Probe:
    async def probe() -> None:
        calls.append(name)
        if calls.count(name) <= times:
            raise FaultError("HTTP status 503")

    return probe


def test_a_probe_is_repeated_until_it_succeeds() -> None:
    calls: list[str] = []
    asyncio.run(wait_until_ready({"GET /health": failing(3, calls)}, 30))
    assert calls == ["probe"] * 4


def test_each_new_reason_is_said_once() -> None:
    reasons = iter(["refused", "refused", "HTTP status 503", "HTTP status 503", None])
    said: list[str] = []

    async def probe() -> None:
        reason = next(reasons)
        if reason:
            raise FaultError(reason)

    asyncio.run(wait_until_ready({"GET /health": probe}, 30, say=said.append))
    assert said == ["GET /health: refused", "GET /health: HTTP status 503"]


def test_each_protocol_must_be_ready() -> None:
    calls: list[str] = []
    probes = {"GET": failing(1, calls, "http"), "ModelInfo": failing(1, calls, "grpc")}
    asyncio.run(wait_until_ready(probes, 30))
    assert calls == ["http", "http", "grpc", "grpc"]


def test_the_last_fault_is_in_the_message() -> None:
    with pytest.raises(NotReadyError, match=r"^the server was not ready within 0.1 s: GET /health: HTTP status 503$"):
        asyncio.run(wait_until_ready({"GET /health": failing(1000, [])}, 0.1))


def test_a_probe_without_an_answer_does_not_extend_the_time() -> None:
    async def probe() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(NotReadyError, match="GET: no answer"):
        asyncio.run(wait_until_ready({"GET": probe}, 0.1))


@pytest.mark.parametrize("is_asked", [True, False])
def test_the_end_of_the_server_ends_the_wait_at_once(is_asked: bool) -> None:
    async def main() -> None:
        end: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def probe() -> None:
            asyncio.get_running_loop().call_soon(end.set_result, "the server ended with status 1")
            if is_asked:
                await asyncio.get_running_loop().create_future()
            raise FaultError("connection refused")

        await wait_until_ready({"GET": probe}, 100, server_end=end)

    started = time.monotonic()
    with pytest.raises(NotReadyError, match="the server ended with status 1 before it was ready"):
        asyncio.run(main())
    assert time.monotonic() - started < 4  # a probe without an answer takes 5 s


def test_the_end_is_noticed_although_a_probe_swallows_its_cancellation() -> None:
    # As a connection does that is refused in the moment of its cancellation.
    async def main() -> None:
        end: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def probe() -> None:
            asyncio.get_running_loop().call_soon(end.set_result, "the server ended")
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                raise FaultError("connection refused") from None

        await wait_until_ready({"GET": probe}, 100, server_end=end)

    with pytest.raises(NotReadyError, match="before it was ready"):
        asyncio.run(main())
