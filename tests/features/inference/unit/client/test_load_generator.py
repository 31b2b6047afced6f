"""A load arrives when it should, whatever the server does, and every request has a sample."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from tests.features.inference.fakes import virtual_time
from toolbox.features.inference.client import load_generator
from toolbox.features.inference.client.answer_format import Answer, Case, FaultError, InvalidRequestError, Limits
from toolbox.features.inference.client.load_generator import Sample, Step, arrival_times
from toolbox.features.inference.client.load_summary import Summary
from toolbox.features.inference.client.token_times import Tokens
from toolbox.ground.kit.server_answers import Generation, ServerError


class Samples:
    """Keeps what is recorded."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.delays: list[tuple[float, float]] = []

    def add(self, sample: Sample) -> None:
        self.samples.append(sample)

    def add_client_delay(self, time: float, delay: float) -> None:
        self.delays.append((time, delay))


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


def record(server: SlowServer, limits: Limits = LIMITS, **step: Any) -> Samples:
    recorder = Samples()
    virtual_time.run(load_generator.run(server, CASES, Step(**step), limits, recorder=recorder))
    recorder.samples.sort(key=lambda sample: sample.arrived)
    return recorder


def load(server: SlowServer, limits: Limits = LIMITS, **step: Any) -> Sequence[Sample]:
    return record(server, limits, **step).samples


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
    samples = load(server, concurrency=2, seconds=2.9)
    assert server.most == 2
    assert times(samples) == [(t, t, t + 1) for t in (0.0, 0.0, 1.0, 1.0, 2.0, 2.0)]


def test_the_cases_are_repeated_in_their_order() -> None:
    server = SlowServer(delay=1)
    load(server, concurrency=1, seconds=4.9)
    assert server.names == ["a", "b", "c", "a", "b"]


def test_a_request_without_an_answer_ends_at_its_limit() -> None:
    samples = load(SlowServer(delay=1000), Limits(seconds=5), rate=1, seconds=2, arrivals="constant")
    assert times(samples) == [(0.0, 0.0, 5.0), (1.0, 1.0, 6.0)]
    assert {sample.error for sample in samples} == {"the time limit of 5 s was exceeded"}


def test_requests_beyond_the_limit_are_errors_and_not_delays() -> None:
    server = SlowServer(delay=100)
    samples = load(server, Limits(seconds=1000), rate=10, seconds=1, arrivals="constant", most_at_a_time=3)
    assert len(samples) == 10
    assert [sample.error for sample in samples[3:]] == ["not sent: 3 requests had no answer"] * 7
    assert server.most == 3


def test_tokens_have_the_times_of_their_chunks() -> None:
    (sample,) = load(SlowServer(delay=1, gap=0.5, tokens=3), rate=1, seconds=1, arrivals="constant")
    assert sample.tokens == [Tokens(1.0, 1), Tokens(1.5, 1), Tokens(2.0, 1)]
    assert sample.ended == 2.5


def test_a_fault_and_an_error_of_the_server_are_errors() -> None:
    (sample,) = load(SlowServer(fault="half a stream"), rate=1, seconds=1, arrivals="constant")
    assert sample.error == "half a stream"

    class Refusing(SlowServer):
        async def send(self, case: Case, answer: Answer) -> None:
            await super().send(case, answer)
            answer.error = ServerError(code="overloaded", message="later", status=429)

    (sample,) = load(Refusing(), rate=1, seconds=1, arrivals="constant")
    assert sample.error == "overloaded: later"


def test_a_mistake_of_the_client_is_an_error_of_the_request() -> None:
    class Broken(SlowServer):
        async def send(self, case: Case, answer: Answer) -> None:
            del case, answer
            raise KeyError("x")

    (sample,) = load(Broken(), rate=1, seconds=1, arrivals="constant")
    assert sample.error == "the client cannot handle the answer: KeyError: 'x'"


@pytest.mark.parametrize("step", [{"rate": 5.0}, {"concurrency": 3}])
def test_an_invalid_request_ends_the_step_at_once(step: dict[str, Any]) -> None:
    class Strict(SlowServer):
        async def send(self, case: Case, answer: Answer) -> None:
            if case.name == "c":
                raise InvalidRequestError("unknown field")
            await super().send(case, answer)

    server = Strict(delay=1000)
    with pytest.raises(InvalidRequestError, match="the case c: unknown field"):
        load(server, **step, seconds=1000)
    assert server.running == 0
    assert len(server.names) < 10


@pytest.mark.parametrize("step", [{"rate": 5.0}, {"concurrency": 3}])
def test_a_request_that_cannot_be_recorded_ends_the_step_at_once(step: dict[str, Any]) -> None:
    class Full(Samples):
        def add(self, sample: Sample) -> None:
            del sample
            raise OSError("no space left on device")

    server = SlowServer(delay=5)
    with pytest.raises(OSError, match="no space"):
        virtual_time.run(load_generator.run(server, CASES, Step(**step, seconds=1000), LIMITS, recorder=Full()))
    assert len(server.names) < 60


@pytest.mark.parametrize("arrivals", ["poisson", "constant"])
def test_a_queue_that_grows_is_seen_in_the_latencies_and_not_in_the_rate(arrivals: str) -> None:
    class Queue(SlowServer):
        """Answers one request after the other, a second each."""

        def __init__(self) -> None:
            super().__init__(delay=1)
            self._turn = asyncio.Lock()

        async def send(self, case: Case, answer: Answer) -> None:
            async with self._turn:
                await super().send(case, answer)

    samples = load(Queue(), Limits(seconds=1000), rate=2, seconds=100, arrivals=arrivals)
    end = 0.0
    for sample in samples:  # Lindley's recursion
        end = max(end, sample.arrived) + 1
        assert sample.ended == pytest.approx(end, abs=1e-3)
    summary = Summary(Step(rate=2, seconds=100))
    for sample in samples:
        summary.add(sample)
    assert summary.figures().offered_rate == pytest.approx(2, rel=0.15)
    assert summary.figures().completed_rate == pytest.approx(1, rel=0.05)


def test_a_closed_loop_waits_longer_after_each_error() -> None:
    server = SlowServer(delay=0, fault="no connection")
    sent = [sample.sent for sample in load(server, concurrency=1, seconds=60)]
    assert sent == pytest.approx([0, 0.1, 0.3, 0.7, 1.5, 3.1, 6.3, 12.7, 22.7, 32.7, 42.7, 52.7])


def test_a_closed_loop_continues_at_once_after_an_answer() -> None:
    class Recovering(SlowServer):
        async def send(self, case: Case, answer: Answer) -> None:
            self._fault = "no connection" if len(self.names) < 3 else None
            await super().send(case, answer)

    sent = [sample.sent for sample in load(Recovering(delay=1), concurrency=1, seconds=7)]
    assert sent == pytest.approx([0, 1.1, 2.3, 3.7, 4.7, 5.7, 6.7])


def test_requests_that_a_busy_client_would_send_too_late_are_errors() -> None:
    class Busy(SlowServer):
        async def send(self, case: Case, answer: Answer) -> None:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, virtual_time.VirtualTimeLoop)
            loop.advance(1)
            await super().send(case, answer)

    samples = load(Busy(delay=0), Limits(seconds=5), rate=10, seconds=10, arrivals="constant")
    assert len(samples) == 100
    assert {s.error for s in samples} == {None, "not sent: the client was more than 5 s late"}
    assert max(sample.ended for sample in samples) < 17


def test_a_closed_loop_records_how_late_the_client_is() -> None:
    class Busy(SlowServer):
        async def send(self, case: Case, answer: Answer) -> None:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, virtual_time.VirtualTimeLoop)
            await super().send(case, answer)
            loop.advance(0.4)

    delays = [delay for _, delay in record(Busy(delay=0.1), concurrency=1, seconds=10).delays]
    assert max(delays) == pytest.approx(0.4, abs=0.05)
    assert max(delay for _, delay in record(SlowServer(), concurrency=1, seconds=10).delays) == pytest.approx(0)


def test_a_load_that_is_cancelled_ends_its_requests() -> None:
    server = SlowServer(delay=1000)

    async def main() -> None:
        running = asyncio.ensure_future(
            load_generator.run(server, CASES, Step(rate=5, seconds=100), LIMITS, recorder=Samples())
        )
        await asyncio.sleep(10)
        running.cancel()
        await asyncio.wait({running})

    virtual_time.run(main())
    assert server.names
    assert server.running == 0


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
