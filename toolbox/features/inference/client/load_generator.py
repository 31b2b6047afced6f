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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from . import task_ends
from .answer_format import Answer, Case, FaultError, InvalidRequestError, Limits
from .token_times import TimedAnswer, Tokens

Arrivals = Literal["poisson", "constant"]
MAX_AT_A_TIME: Final = 10_000
# After an error, a closed loop waits before its next request: this time, and twice as long after each further error.
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 10.0
_SECONDS_BETWEEN_TIMERS: Final = 0.05


class LoadClient(Protocol):
    """Sends one request, and fills an answer that is a stream."""

    async def send(self, case: Case, answer: Answer) -> None:
        """Raise FaultError or InvalidRequestError."""


class Recorder(Protocol):
    """Receives what is measured."""

    def add(self, sample: Sample) -> None:
        """Receive a request that has ended."""

    def add_client_delay(self, time: float, delay: float) -> None:
        """Receive how late the client was, at a time of the step."""


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
    most_at_a_time: int = MAX_AT_A_TIME

    def __post_init__(self) -> None:
        if (self.rate is None) == (self.concurrency is None):
            raise ValueError("a step has either a rate or a concurrency")
        if (self.rate is not None and not self.rate > 0) or (self.concurrency is not None and self.concurrency < 1):
            raise ValueError("a rate and a concurrency must be positive")
        if not 0 <= self.warm_up_seconds < self.seconds:
            raise ValueError("a step must be longer than its warm-up")

    @property
    def name(self) -> str:
        """The name of the step, such as `rate=0.5` or `concurrency=8`."""
        return f"rate={self.rate:g}" if self.rate is not None else f"concurrency={self.concurrency}"


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What was measured of one request. All times are seconds since the beginning of the step.

    Args:
        case: the name of the case.
        arrived: when the request should have been sent.
        sent: when it was sent. If this is much later than `arrived`, the client was overloaded.
        ended: when its answer was complete, or the reason of the error was known.
        tokens: the tokens of the answer, in the order in which they came.
        error: why there is no complete answer, or the error of the server.
        is_refused: whether the error is a refusal: 429 or 503 with `Retry-After`.
        is_resent: whether the request was sent twice, because the server had closed the connection that was reused.
    """

    case: str = ""
    arrived: float
    sent: float
    ended: float
    tokens: Sequence[Tokens] = ()
    error: str | None = None
    is_refused: bool = False
    is_resent: bool = False


@dataclass
class _Load:
    """A step that runs.

    Args:
        clock: the seconds since the beginning of the step.
        failure: has an exception as soon as a request is invalid, or cannot be recorded.
    """

    client: LoadClient
    cases: Iterator[Case]
    limits: Limits
    recorder: Recorder
    clock: Callable[[], float]
    failure: asyncio.Future[None]
    running: set[asyncio.Future[bool]] = field(default_factory=set)

    async def request(self, arrived: float | None = None) -> bool:
        """Send the next request, add its sample, and return whether the answer is complete and not an error."""
        case = next(self.cases)
        sent = self.clock()
        answer = TimedAnswer(case=case.name, stream=True, limits=self.limits, clock=self.clock)
        sending = asyncio.ensure_future(self.client.send(case, answer))
        is_late = True
        try:
            await asyncio.wait({sending}, timeout=self.limits.seconds)
            is_late = not sending.done()
        finally:
            await task_ends.ended(sending)
        error = f"the time limit of {self.limits.seconds:g} s was exceeded" if is_late else self._error(sending, answer)
        self.recorder.add(
            Sample(
                case=case.name,
                arrived=sent if arrived is None else arrived,
                sent=sent,
                ended=self.clock(),
                tokens=answer.tokens,
                error=error,
                is_refused=not is_late and answer.error is not None and answer.error.retry_after is not None,
                is_resent=answer.is_resent,
            )
        )
        return error is None

    def end_request(self, request: asyncio.Future[bool]) -> None:
        """Forget a request that has ended, and note if it has failed."""
        self.running.discard(request)
        if not request.cancelled() and (error := request.exception()) and not self.failure.done():
            self.failure.set_exception(error)

    def _error(self, sending: asyncio.Future[None], answer: Answer) -> str | None:
        if sending.cancelled():
            return "the request was cancelled"
        error = sending.exception()
        if isinstance(error, InvalidRequestError):
            raise InvalidRequestError(f"the case {answer.case}: {error}")
        if isinstance(error, FaultError):
            return str(error)
        if error is not None:  # a mistake of this package must not end the load
            return f"the client cannot handle the answer: {type(error).__name__}: {error}"
        return f"{answer.error.code}: {answer.error.message}" if answer.error else None


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


async def run(client: LoadClient, cases: Sequence[Case], step: Step, limits: Limits, *, recorder: Recorder) -> None:
    """Send requests in the order of the cases, from the beginning again after the last one, and record the samples.

    Args:
        cases: requests for streams.
        limits: `seconds` limits each request, so that the step ends at most twice this time after its last arrival.

    Raises:
        InvalidRequestError: a request cannot be sent. The step has ended at once.
    """
    loop = asyncio.get_running_loop()
    begin = loop.time()
    load = _Load(
        client=client,
        cases=itertools.cycle(cases),
        limits=limits,
        recorder=recorder,
        clock=lambda: loop.time() - begin,
        failure=loop.create_future(),
    )
    sending = asyncio.ensure_future(_open_loop(load, step) if step.rate is not None else _closed_loops(load, step))
    try:
        await asyncio.wait({sending, load.failure}, return_when=asyncio.FIRST_COMPLETED)
        (load.failure if load.failure.done() else sending).result()
    finally:
        await task_ends.ended(sending)
        for request in list(load.running):
            request.cancel()
        for request in list(load.running):
            await task_ends.ended(request)
        load.failure.cancel()


async def _open_loop(load: _Load, step: Step) -> None:
    for arrived in arrival_times(step):
        await asyncio.sleep(max(0.0, arrived - load.clock()))
        if reason := _reason_not_to_send(load, step, arrived):
            time = load.clock()
            case = next(load.cases).name
            load.recorder.add(Sample(case=case, arrived=arrived, sent=time, ended=time, error=f"not sent: {reason}"))
            continue
        request = asyncio.ensure_future(load.request(arrived))
        load.running.add(request)
        request.add_done_callback(load.end_request)
    if load.running:
        await asyncio.wait(load.running)


def _reason_not_to_send(load: _Load, step: Step, arrived: float) -> str | None:
    if len(load.running) >= step.most_at_a_time:
        return f"{step.most_at_a_time} requests had no answer"
    if load.clock() - arrived > load.limits.seconds:  # else an overloaded client would need many times `step.seconds`
        return f"the client was more than {load.limits.seconds:g} s late"
    return None


async def _closed_loops(load: _Load, step: Step) -> None:
    timer = asyncio.ensure_future(_record_client_delays(load))
    loops = [asyncio.ensure_future(_closed_loop(load, step)) for _ in range(step.concurrency or 0)]
    try:
        await asyncio.gather(*loops)
    finally:
        for task in (timer, *loops):
            task.cancel()
        for task in (timer, *loops):
            await task_ends.ended(task)


async def _closed_loop(load: _Load, step: Step) -> None:
    pause = _FIRST_PAUSE
    while load.clock() < step.seconds:
        if await load.request():
            pause = _FIRST_PAUSE
            continue
        if load.clock() + pause >= step.seconds:
            return
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


async def _record_client_delays(load: _Load) -> None:
    """Record how late a timer of the client fires. A closed loop has no other times that are planned."""
    while True:
        planned = load.clock() + _SECONDS_BETWEEN_TIMERS
        await asyncio.sleep(_SECONDS_BETWEEN_TIMERS)
        load.recorder.add_client_delay(planned, load.clock() - planned)
