"""The engine hands the events of its thread to the event loop, refuses what is too much, and reports its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from reference_server.engine import Engine
from reference_server.generation import (
    EngineError,
    Event,
    Generated,
    Limits,
    Options,
    OverloadedError,
    Request,
)
from reference_server.vocabulary import Vocabulary
from tests.features.inference.unit.projects.inference.models import CountingModel

LETTERS = Vocabulary("abcdefghijklmnopqrstuvwxyz")
LIMITS = Limits(max_sequence_length=10_000, max_new_tokens=9_999)


def request(text: str, length: int) -> Request:
    return LIMITS.prepare(LETTERS.encode(text), Options(max_new_tokens=length))


@asynccontextmanager
async def running(model: CountingModel, **options: int) -> AsyncIterator[Engine]:
    engine = Engine(model, LETTERS, LIMITS, **({"slots": 2} | options))
    try:
        yield engine
    finally:
        engine.stop()


def run(test: Callable[[Engine, CountingModel], Awaitable[None]], **options: int) -> None:
    """Run a test in an event loop, with an engine whose model counts."""

    async def main() -> None:
        model = CountingModel(len(LETTERS))
        async with running(model, **options) as engine:
            await test(engine, model)

    asyncio.run(main())


async def texts(engine: Engine, *requests: Request) -> list[str]:
    found = [""] * len(requests)
    async with engine.generate(requests) as events:
        async for index, event in events:
            if isinstance(event, Generated):
                found[index] += LETTERS.characters[event.token]
    return found


def test_each_event_has_the_index_of_its_request() -> None:
    async def test(engine: Engine, _: CountingModel) -> None:
        assert await texts(engine, request("a", 3), request("k", 2), request("x", 1)) == ["bcd", "lm", "y"]
        assert await texts(engine) == []

    run(test)


def test_many_clients_are_served_together() -> None:
    async def test(engine: Engine, _: CountingModel) -> None:
        found = await asyncio.gather(*(texts(engine, request("a", 5)) for _ in range(20)))
        assert found == [["bcdef"]] * 20

    run(test)


def test_a_client_that_goes_away_frees_its_place() -> None:
    async def test(engine: Engine, model: CountingModel) -> None:
        async with engine.generate([request("a", 9_000)]) as events:
            await anext(events)
        assert await texts(engine, request("k", 2)) == ["lm"]  # there is only one slot
        assert len(model.steps) < 9_000

    run(test, slots=1)


def test_a_cancelled_task_frees_its_place() -> None:
    async def test(engine: Engine, _: CountingModel) -> None:
        started = asyncio.Event()

        async def read() -> None:
            async with engine.generate([request("a", 9_000)]) as events:
                async for _ in events:
                    started.set()

        task = asyncio.create_task(read())
        await started.wait()
        async with engine.generate([request("k", 1)]) as waiting:
            task.cancel()
            assert [event.is_last async for _, event in waiting] == [False, True]
        with pytest.raises(asyncio.CancelledError):
            await task

    run(test, slots=1)


def test_too_many_requests_are_refused_as_a_whole() -> None:
    async def test(engine: Engine, _: CountingModel) -> None:
        async with engine.generate([request("a", 9_000)]):
            with pytest.raises(OverloadedError, match="has 1 requests, and accepts 3 at a time"):
                await texts(engine, *[request("k", 1)] * 3)
            assert await texts(engine, *[request("k", 1)] * 2) == ["l", "l"]
        assert await texts(engine, *[request("k", 1)] * 3) == ["l"] * 3

    run(test, most_jobs=3)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (EngineError("shard 1 ended"), "shard 1 ended"),
        (ZeroDivisionError("x"), r"the engine has failed: ZeroDivisionE"),
    ],
)
def test_a_failing_model_ends_all_requests(error: Exception, message: str) -> None:
    async def test(engine: Engine, model: CountingModel) -> None:
        events: list[Event] = []

        async def read() -> None:
            async with engine.generate([request("a", 9_000), request("b", 9_000)]) as iterator:
                async for _, event in iterator:
                    events.append(event)
                    model.error = error

        with pytest.raises(EngineError, match=message):
            await read()
        assert events
        with pytest.raises(EngineError, match=message):
            await engine.failure
        with pytest.raises(EngineError, match=message):
            await texts(engine, request("a", 1))

    run(test)


def test_an_idle_engine_can_be_failed_from_outside() -> None:
    async def test(engine: Engine, _: CountingModel) -> None:
        engine.fail(EngineError("shard 1 ended"))
        engine.fail(EngineError("shard 2 ended"))
        with pytest.raises(EngineError, match="shard 1 ended"):
            await engine.failure

    run(test)
