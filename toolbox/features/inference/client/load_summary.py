"""Computes the figures of a load from its samples: latencies, throughput, errors and goodput.

Latencies and errors describe the requests that arrived after the warm-up. The figures per second count the events from
the end of the warm-up to the end of the step, also those of requests that arrived earlier. So if a server answers half
of its requests before the end of the step, its rate is half of the offered rate, even if it answers the others later.
Each latency has its number of samples. A percentile is absent if fewer than one sample is expected above it: p99 needs
100 samples.
"""

from __future__ import annotations

import math
import random
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from .load_generator import Sample, Step

PERCENTILES: Final = (50, 90, 95, 99)
MAX_MESSAGES: Final = 100
OTHER_MESSAGES: Final = "other errors"
_MESSAGE_CHARACTERS: Final = 1000
_MAX_VALUES: Final = 1_000_000  # of a time, for its percentiles


@dataclass(frozen=True, kw_only=True)
class Objectives:
    """Latencies, in seconds, that a good request does not exceed. None stands for no limit.

    Args:
        first_token: time to the first token. An answer without a token does not meet this objective.
        per_token: mean time between tokens.
        end_to_end: time until the end of the answer.
    """

    first_token: float | None = None
    per_token: float | None = None
    end_to_end: float | None = None


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """The distribution of a time in seconds.

    Args:
        samples: number of values behind the percentiles.
        percentiles: the values by their percent.
    """

    samples: int
    mean: float | None
    largest: float | None
    percentiles: dict[int, float | None]


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The figures of a step.

    Args:
        seconds: the time of the step after its warm-up, to which the figures per second refer.
        requests: requests that arrived in this time.
        errors: those of them that have no complete answer, and were not refused.
        error_messages: the errors, with their numbers.
        refused: requests that the server refused for now: 429 or 503 with `Retry-After`.
        resent: requests that were sent twice, because the server had closed the connection that was reused.
        offered_rate: requests per second that arrived in this time.
        completed_rate: requests per second that were answered without an error in this time.
        goodput: requests per second that were answered in this time, and met all objectives.
        tokens_per_second: generated tokens per second that came in this time.
        first_token: the time from the arrival of a request to its first token.
        between_tokens: the times between consecutive chunks with tokens, divided by the tokens of the later one.
        per_token: for each request with two tokens or more, the mean time between its tokens.
        end_to_end: the time from the arrival of a request to the end of its answer.
        client_delay: with a rate, the time from the arrival of a request until it was sent. With a concurrency, how
            late a timer of the client was. If this is not small, the client was overloaded.
    """

    seconds: float
    requests: int
    errors: int
    error_messages: Mapping[str, int]
    refused: int
    resent: int
    offered_rate: float
    completed_rate: float
    goodput: float
    tokens_per_second: float
    first_token: Distribution
    between_tokens: Distribution
    per_token: Distribution
    end_to_end: Distribution
    client_delay: Distribution


class Times:
    """Values of a time, in a limited memory: of more than `most` values, a random part of this size is kept."""

    def __init__(self, most: int = _MAX_VALUES) -> None:
        self._most = most
        self._values = array("d")
        self._number = 0
        self._sum = 0.0
        self._largest: float | None = None
        self._draw = random.Random(0)  # noqa: S311  # no secret depends on it

    def add(self, value: float | None) -> None:
        """Add a value. None stands for no value."""
        if value is None:
            return
        self._number += 1
        self._sum += value
        self._largest = value if self._largest is None else max(self._largest, value)
        if len(self._values) < self._most:
            self._values.append(value)
        elif (place := self._draw.randrange(self._number)) < self._most:  # Vitter's algorithm R
            self._values[place] = value

    def distribution(self) -> Distribution:
        """Return the distribution of the values."""
        ordered = sorted(self._values)
        return Distribution(
            samples=len(ordered),
            mean=self._sum / self._number if ordered else None,
            largest=self._largest,
            percentiles={percent: percentile(ordered, percent) for percent in PERCENTILES},
        )


@dataclass
class Summary:
    """Collects the samples of a step, in a limited memory."""

    step: Step
    objectives: Objectives = field(default_factory=Objectives)
    all_requests: int = 0
    all_errors: int = 0
    _requests: int = 0
    _errors: Counter[str] = field(default_factory=Counter)
    _refused: int = 0
    _resent: int = 0
    _completed: int = 0
    _good: int = 0
    _tokens: int = 0
    _first_token: Times = field(default_factory=Times)
    _between_tokens: Times = field(default_factory=Times)
    _per_token: Times = field(default_factory=Times)
    _end_to_end: Times = field(default_factory=Times)
    _client_delay: Times = field(default_factory=Times)

    def add(self, sample: Sample) -> None:
        """Add a request that has ended."""
        self.all_requests += 1
        self.all_errors += sample.error is not None and not sample.is_refused
        self._tokens += sum(tokens.number for tokens in sample.tokens if self._is_in_time(tokens.time))
        if sample.error is None and self._is_in_time(sample.ended):
            self._completed += 1
            self._good += _is_good(sample, self.objectives)
        if sample.arrived < self.step.warm_up_seconds:
            return
        self._requests += 1
        if self.step.rate is not None:
            self._client_delay.add(max(sample.sent - sample.arrived, 0.0))  # a timer may be a nanosecond early
        self._resent += sample.is_resent
        if sample.is_refused:
            self._refused += 1
            return
        if sample.error is not None:
            self._add_error(sample.error)
            return
        self._first_token.add(first_token(sample))
        self._per_token.add(per_token(sample))
        self._end_to_end.add(sample.ended - sample.arrived)
        for gap in gaps(sample):
            self._between_tokens.add(gap)

    def add_client_delay(self, time: float, delay: float) -> None:
        """Add how late the client was at a time of the step."""
        if self._is_in_time(time):
            self._client_delay.add(max(delay, 0.0))

    def _is_in_time(self, time: float) -> bool:
        return self.step.warm_up_seconds <= time < self.step.seconds

    def _add_error(self, error: str) -> None:
        message = error[:_MESSAGE_CHARACTERS]
        if message not in self._errors and len(self._errors) >= MAX_MESSAGES - 1:
            message = OTHER_MESSAGES
        self._errors[message] += 1

    def figures(self) -> Figures:
        """Return the figures of the samples so far."""
        seconds = self.step.seconds - self.step.warm_up_seconds
        return Figures(
            seconds=seconds,
            requests=self._requests,
            errors=self._errors.total(),
            error_messages=dict(self._errors.most_common()),
            refused=self._refused,
            resent=self._resent,
            offered_rate=self._requests / seconds,
            completed_rate=self._completed / seconds,
            goodput=self._good / seconds,
            tokens_per_second=self._tokens / seconds,
            first_token=self._first_token.distribution(),
            between_tokens=self._between_tokens.distribution(),
            per_token=self._per_token.distribution(),
            end_to_end=self._end_to_end.distribution(),
            client_delay=self._client_delay.distribution(),
        )


def first_token(sample: Sample) -> float | None:
    """Return the time from the arrival of a request to its first token, or None if it has none."""
    return sample.tokens[0].time - sample.arrived if sample.tokens else None


def per_token(sample: Sample) -> float | None:
    """Return the mean time between the tokens of each text of a request, or None if no text has two tokens.

    The tokens of the first chunk came together, so that the time until the last chunk is that of the other tokens.
    """
    total, number = 0.0, 0
    for seconds, count in _waits(sample):
        total += seconds
        number += count
    return total / number if number else None


def gaps(sample: Sample) -> Iterator[float]:
    """Yield the times between consecutive tokens of a text. Tokens that came together have equal parts of the time."""
    for seconds, count in _waits(sample):
        for _ in range(count):
            yield seconds / count


def _waits(sample: Sample) -> Iterator[tuple[float, int]]:
    """Yield, for each chunk after the first of a text, the time since the previous chunk, and its number of tokens."""
    last: dict[int, float] = {}
    for time, count, generation in sample.tokens:
        if generation in last:
            yield time - last[generation], count
        last[generation] = time


def _is_good(sample: Sample, objectives: Objectives) -> bool:
    pairs = [
        (first_token(sample), objectives.first_token),
        (per_token(sample), objectives.per_token),
        (sample.ended - sample.arrived, objectives.end_to_end),
    ]
    if not sample.tokens and objectives.first_token is not None:
        return False
    return all(limit is None or time is None or time <= limit for time, limit in pairs)


def percentile(ordered: Sequence[float], percent: float) -> float | None:
    """Return a percentile of sorted values, interpolated linearly, or None if there are too few values."""
    if len(ordered) * (100 - percent) < 100:  # noqa: PLR2004  # one value beyond the percentile
        return None
    place = (len(ordered) - 1) * percent / 100
    lower = math.floor(place)
    upper = min(lower + 1, len(ordered) - 1)
    return ordered[lower] + (ordered[upper] - ordered[lower]) * (place - lower)
