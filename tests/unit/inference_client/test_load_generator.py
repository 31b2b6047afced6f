"""A load arrives when it should, whatever the server does, and every request has a sample."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

import pytest

from tests.fakes import virtual_time
from toolbox.inference_client import load_generator
from toolbox.inference_client.answer_format import (
    Answer,
    Case,
    Chunk,
    FaultError,
    Generation,
    Limits,
    ServerError,
    Token,
)
from toolbox.inference_client.load_generator import Sample, Step, arrival_times, token_times

CASES = [Case(name=name, protocol="completions", request={}) for name in "abc"]
LIMITS = Limits(seconds=60)


class SlowServer:
    """Answers each request after a time with one token per `gap` seconds."""

    def __init__(self, delay: float = 1.0, gap: float = 0.0, tokens: int = 1, fault: str | None = None) -> None:
        self._delay, self._gap, self._tokens, self._fault = delay, gap, tokens, fault
        self.names: list[str] = []
        self.running = self.most = 0

    async def send(self, case: Case, answer: Answer) -> None:
        self.names.append(case.name)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(self._delay)
            for _ in range(self._tokens):
                answer.add(0, Generation(text="x"), {})
                await asyncio.sleep(self._gap)
            if self._fault:
                raise FaultError(self._fault)
        finally:
            self.running -= 1


def load(server: SlowServer, limits: Limits = LIMITS, **step: object) -> Sequence[Sample]:
    return virtual_time.run(load_generator.run(server, CASES, Step(**step), limits))  # type: ignore[arg-type]


def times(samples: Sequence[Sample]) -> list[tuple[float, float, float]]:
    return [(round(s.arrived, 6), round(s.sent, 6), round(s.ended, 6)) for s in samples]


def test_requests_arrive_although_no_answer_has_come() -> None:
    samples = load(SlowServer(delay=10), rate=2, seconds=2, arrivals="constant")
    assert times(samples) == [(0.0, 0.0, 10.0), (0.5, 0.5, 10.5), (1.0, 1.0, 11.0), (1.5, 1.5, 11.5)]


def test_the_arrivals_do_not_depend_on_the_server() -> None:
    fast = load(SlowServer(delay=0), rate=5, seconds=20)
    slow = load(SlowServer(delay=30), rate=5, seconds=20)
    assert [sample.arrived for sample in fast] == [sample.arrived for sample in slow]
    assert len(fast) > 50


@pytest.mark.parametrize("most", [1, 10])
def test_the_time_of_a_busy_client_counts_from_the_arrival(most: int) -> None:
    class Busy(SlowServer):
        async def send(self, case: Case, answer: Answer) -> None:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, virtual_time.VirtualTimeLoop)
            if not self.names:
                loop.advance(2.5)
            await super().send(case, answer)

    samples = load(Busy(delay=10), rate=1, seconds=3, arrivals="constant", most_at_a_time=most)
    assert [sample.arrived for sample in samples] == [0.0, 1.0, 2.0]
    assert [sample.sent for sample in samples] == [0.0, 2.5, 2.5]


def test_random_arrivals_have_the_rate_and_depend_on_the_seed() -> None:
    first = list(arrival_times(Step(rate=10, seconds=1000)))
    assert len(first) == pytest.approx(10_000, rel=0.03)
    assert first == list(arrival_times(Step(rate=10, seconds=1000)))
    assert first != list(arrival_times(Step(rate=10, seconds=1000, seed=1)))
    gaps = [later - earlier for earlier, later in itertools.pairwise(first)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert deviation == pytest.approx(mean, rel=0.05)  # as an exponential distribution has


def test_a_concurrency_sends_the_next_request_after_an_answer() -> None:
    server = SlowServer(delay=1)
    samples = load(server, concurrency=2, seconds=3)
    assert server.most == 2
    assert times(samples) == [(t, t, t + 1) for t in (0.0, 0.0, 1.0, 1.0, 2.0, 2.0)]


def test_the_cases_are_repeated_in_their_order() -> None:
    server = SlowServer(delay=1)
    load(server, concurrency=1, seconds=5)
    assert server.names == ["a", "b", "c", "a", "b"]


def test_a_request_without_an_answer_ends_at_its_limit() -> None:
    samples = load(SlowServer(delay=1000), Limits(seconds=5), rate=1, seconds=2, arrivals="constant")
    assert times(samples) == [(0.0, 0.0, 5.0), (1.0, 1.0, 6.0)]
    assert {sample.error for sample in samples} == {"no complete answer within 5 s"}


def test_requests_beyond_the_limit_are_errors_and_not_delays() -> None:
    server = SlowServer(delay=100)
    samples = load(server, Limits(seconds=1000), rate=10, seconds=1, arrivals="constant", most_at_a_time=3)
    assert len(samples) == 10
    assert [sample.error for sample in samples[3:]] == ["not sent: 3 requests had no answer"] * 7
    assert server.most == 3


def test_tokens_have_the_times_of_their_chunks() -> None:
    (sample,) = load(SlowServer(delay=1, gap=0.5, tokens=3), rate=1, seconds=1, arrivals="constant")
    assert sample.tokens == [(1.0, 1), (1.5, 1), (2.0, 1)]
    assert sample.ended == 2.5


def test_every_chunk_counts_whatever_an_answer_keeps() -> None:
    server = SlowServer(delay=1, gap=0.5, tokens=9)
    (sample,) = load(server, Limits(seconds=60, chunks=2), rate=1, seconds=1, arrivals="constant")
    assert len(sample.tokens) == 9


def test_a_fault_and_an_error_of_the_server_are_errors() -> None:
    (sample,) = load(SlowServer(fault="half a stream"), rate=1, seconds=1, arrivals="constant")
    assert sample.error == "half a stream"

    class Refusing(SlowServer):
        async def send(self, case: Case, answer: Answer) -> None:
            await super().send(case, answer)
            answer.error = ServerError(code="overloaded", message="later", status=429)

    (sample,) = load(Refusing(), rate=1, seconds=1, arrivals="constant")
    assert sample.error == "overloaded: later"


def test_a_load_that_is_cancelled_ends_its_requests() -> None:
    server = SlowServer(delay=1000)

    async def main() -> None:
        running = asyncio.ensure_future(load_generator.run(server, CASES, Step(rate=5, seconds=100), LIMITS))
        await asyncio.sleep(10)
        running.cancel()
        await asyncio.wait({running})

    virtual_time.run(main())
    assert server.names
    assert server.running == 0


def chunk(seconds: float, part: Generation, index: int = 0) -> Chunk:
    return Chunk(index=index, seconds=seconds, part=part, raw={})


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([Generation(), Generation(text="a"), Generation(text="bc")], [(1, 1), (2, 1)]),
        ([Generation(text="ab", tokens=[Token("a"), Token("b")])], [(0, 2)]),
        ([Generation(tokens=[Token("a")]), Generation(text="a")], [(0, 1), (1, 1)]),
        ([Generation(text="a"), Generation(text="bcd", generated_token_count=4)], [(0, 1), (1, 3)]),
        ([Generation(text="a"), Generation(generated_token_count=1)], [(0, 1)]),
        ([Generation(text="a", generated_token_count=1)] * 2, [(0, 1)]),
    ],
)  # fmt: skip
def test_tokens_are_counted_by_what_the_server_tells(
    parts: Sequence[Generation], expected: Sequence[tuple[float, int]]
) -> None:
    assert list(token_times([chunk(float(time), part) for time, part in enumerate(parts)])) == expected


@pytest.mark.parametrize(
    "step",
    [
        {"seconds": 1},
        {"seconds": 1, "rate": 1, "concurrency": 1},
        {"seconds": 1, "rate": 0},
        {"seconds": 1, "rate": float("nan")},
        {"seconds": 1, "concurrency": 0},
        {"seconds": 1, "rate": 1, "warm_up_seconds": 1},
        {"seconds": 0, "rate": 1},
    ],
)
def test_a_step_that_makes_no_sense_is_refused(step: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"step|positive"):
        Step(**step)  # type: ignore[arg-type]
