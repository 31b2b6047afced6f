"""Loads a server with requests: at a rate that does not depend on the server, or with a number of requests at a time.

With a rate (an open loop), the arrival of each request is determined before the first one is sent, and all times of a
request count from its arrival. A slow server or a slow client therefore cannot hide its delays by receiving fewer
requests ("coordinated omission"). With a concurrency (a closed loop), the next request is sent when one has ended.

`load_summary` computes figures from the samples.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from . import task_ends
from .answer_format import Answer, Case, Chunk, FaultError, InvalidRequestError, Limits

Arrivals = Literal["poisson", "constant"]


class LoadClient(Protocol):
    """Sends one request, and fills an answer that is a stream."""

    async def send(self, case: Case, answer: Answer) -> None:
        """Raise FaultError or InvalidRequestError."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """A part of a load, with either a rate or a concurrency.

    Args:
        rate: requests that arrive per second.
        concurrency: requests that are sent at a time.
        seconds: time in which requests arrive. The step also waits for the answers to the last ones.
        warm_up_seconds: time at the beginning whose requests are not measured.
        arrivals: `poisson` has random gaps, as independent users have; `constant` has equal gaps.
        seed: determines the random gaps.
        most_at_a_time: with a rate, requests that arrive while this many have no answer are not sent. They count as
            errors.
    """

    rate: float | None = None
    concurrency: int | None = None
    seconds: float
    warm_up_seconds: float = 0.0
    arrivals: Arrivals = "poisson"
    seed: int = 0
    most_at_a_time: int = 10_000

    def __post_init__(self) -> None:
        if (self.rate is None) == (self.concurrency is None):
            raise ValueError("a step has either a rate or a concurrency")
        if (self.rate is not None and not self.rate > 0) or (self.concurrency is not None and self.concurrency < 1):
            raise ValueError("a rate and a concurrency must be positive")
        if not 0 <= self.warm_up_seconds < self.seconds:
            raise ValueError("a step must be longer than its warm-up")


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What was measured of one request. All times are seconds since the beginning of the step.

    Args:
        arrived: when the request should have been sent.
        sent: when it was sent. A large difference to `arrived` is a fault of the client, or of `most_at_a_time`.
        ended: when its answer was complete, or the reason of the error was known.
        tokens: when tokens of the answer came, and how many at each time.
        error: why there is no complete answer, or the error of the server.
    """

    arrived: float
    sent: float
    ended: float
    tokens: Sequence[tuple[float, int]] = ()
    error: str | None = None


@dataclass
class _Load:
    """A step that runs."""

    client: LoadClient
    cases: Iterator[Case]
    limits: Limits
    begin: float
    samples: list[Sample] = field(default_factory=list)
    running: set[asyncio.Future[None]] = field(default_factory=set)

    async def request(self, arrived: float | None = None) -> None:
        """Send the next request, and add its sample."""
        now = asyncio.get_running_loop().time
        case = next(self.cases)
        sent = now() - self.begin
        answer = Answer(case=case.name, stream=True, limits=self.limits, clock=now)
        sending = asyncio.ensure_future(self.client.send(case, answer))
        is_late = True
        try:
            await asyncio.wait({sending}, timeout=self.limits.seconds)
            is_late = not sending.done()
        finally:
            await task_ends.ended(sending)
        error = f"no complete answer within {self.limits.seconds:g} s" if is_late else _error(sending, answer)
        self.samples.append(
            Sample(
                arrived=sent if arrived is None else arrived,
                sent=sent,
                ended=now() - self.begin,
                tokens=[(sent + seconds, count) for seconds, count in token_times(answer.chunks)],
                error=error,
            )
        )


def arrival_times(step: Step) -> Iterator[float]:
    """Yield when the requests of a step with a rate arrive, in seconds since its beginning."""
    assert step.rate
    draw = random.Random(step.seed)  # noqa: S311  # no secret depends on it
    for number in itertools.count(1):
        if step.arrivals == "constant":
            arrived = (number - 1) / step.rate
        else:
            arrived = draw.expovariate(step.rate) + (0.0 if number == 1 else arrived)
        if arrived >= step.seconds:
            return
        yield arrived


async def run(client: LoadClient, cases: Sequence[Case], step: Step, limits: Limits) -> Sequence[Sample]:
    """Send requests in the order of the cases, from the beginning again after the last one, and return the samples.

    Args:
        cases: requests for streams.
        limits: `seconds` limits each request, so that the step ends at most this time after its last arrival.
    """
    begin = asyncio.get_running_loop().time()
    all_chunks = replace(limits, chunks=sys.maxsize)  # a chunk that is not kept would be missing in the times
    load = _Load(client=client, cases=itertools.cycle(cases), limits=all_chunks, begin=begin)
    try:
        if step.rate is not None:
            await _open_loop(load, step)
        else:
            await asyncio.gather(*(_closed_loop(load, step) for _ in range(step.concurrency or 0)))
    finally:
        for request in list(load.running):
            await task_ends.ended(request)
    return sorted(load.samples, key=lambda sample: sample.arrived)


async def _open_loop(load: _Load, step: Step) -> None:
    now = asyncio.get_running_loop().time
    for arrived in arrival_times(step):
        await asyncio.sleep(max(0.0, load.begin + arrived - now()))
        if len(load.running) >= step.most_at_a_time:
            time = now() - load.begin
            error = f"not sent: {step.most_at_a_time} requests had no answer"
            load.samples.append(Sample(arrived=arrived, sent=time, ended=time, error=error))
            continue
        request = asyncio.ensure_future(load.request(arrived))
        load.running.add(request)
        request.add_done_callback(load.running.discard)
    await asyncio.gather(*load.running)


async def _closed_loop(load: _Load, step: Step) -> None:
    while asyncio.get_running_loop().time() - load.begin < step.seconds:
        await load.request()


def _error(sending: asyncio.Future[None], answer: Answer) -> str | None:
    try:
        sending.result()
    except (FaultError, InvalidRequestError) as error:
        return str(error)
    return f"{answer.error.code}: {answer.error.message}" if answer.error else None


def token_times(chunks: Sequence[Chunk]) -> Iterator[tuple[float, int]]:
    """Yield for each chunk with tokens its time since the request was sent, and its number of tokens.

    The number is that of the listed tokens, else the growth of the count, else 1 for a chunk with text.
    """
    counts: dict[int, int] = {}
    for chunk in chunks:
        before = counts.get(chunk.index, 0)
        total = chunk.part.generated_token_count
        if chunk.part.tokens:
            number = len(chunk.part.tokens)
        elif total is not None and chunk.part.text:
            number = max(total - before, 0)
        else:
            number = 1 if chunk.part.text else 0
        counts[chunk.index] = before + number
        if number:
            yield chunk.seconds, number
