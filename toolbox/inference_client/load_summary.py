"""Computes the figures of a load from its samples: latencies, throughput, errors and goodput.

Only requests that arrived after the warm-up count. A latency has the number of samples behind it, and a percentile is
absent if fewer than one sample is expected beyond it: p99 needs 100 samples.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from .load_generator import Sample, Step

PERCENTILES: Final = (50, 90, 95, 99)


@dataclass(frozen=True, kw_only=True)
class Objectives:
    """Latencies, in seconds, that a good request does not exceed. None stands for no limit.

    Args:
        first_token: time to the first token.
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
        samples: number of values.
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
        offered_rate: requests per second that arrived.
        completed_rate: requests per second without an error.
        goodput: requests per second without an error that meet all objectives.
        tokens_per_second: generated tokens per second that came in this time.
        first_token: the time from the arrival of a request to its first token.
        between_tokens: the times between consecutive chunks with tokens, divided by the tokens of the later one.
        per_token: for each request with two tokens or more, the mean time between its tokens.
        end_to_end: the time from the arrival of a request to the end of its answer.
        client_delay: the time from the arrival of a request until it was sent. If it is not small, the client was
            overloaded.
    """

    seconds: float
    requests: int
    errors: int
    offered_rate: float
    completed_rate: float
    goodput: float
    tokens_per_second: float
    first_token: Distribution
    between_tokens: Distribution
    per_token: Distribution
    end_to_end: Distribution
    client_delay: Distribution


def figures(samples: Sequence[Sample], step: Step, objectives: Objectives | None = None) -> Figures:
    """Return the figures of a step."""
    limits = objectives or Objectives()
    measured = [sample for sample in samples if sample.arrived >= step.warm_up_seconds]
    complete = [sample for sample in measured if sample.error is None]
    seconds = step.seconds - step.warm_up_seconds
    in_time = [
        count for sample in samples for time, count in sample.tokens if step.warm_up_seconds <= time < step.seconds
    ]
    return Figures(
        seconds=seconds,
        requests=len(measured),
        errors=len(measured) - len(complete),
        offered_rate=len(measured) / seconds,
        completed_rate=len(complete) / seconds,
        goodput=sum(_is_good(sample, limits) for sample in complete) / seconds,
        tokens_per_second=sum(in_time) / seconds,
        first_token=distribution([time for sample in complete if (time := first_token(sample)) is not None]),
        between_tokens=distribution([gap for sample in complete for gap in _gaps(sample)]),
        per_token=distribution([time for sample in complete if (time := per_token(sample)) is not None]),
        end_to_end=distribution([sample.ended - sample.arrived for sample in complete]),
        client_delay=distribution([sample.sent - sample.arrived for sample in measured]),
    )


def first_token(sample: Sample) -> float | None:
    """Return the time from the arrival of a request to its first token, or None if it has none."""
    return sample.tokens[0][0] - sample.arrived if sample.tokens else None


def per_token(sample: Sample) -> float | None:
    """Return the mean time between the tokens of a request, or None if there are fewer than two.

    The tokens of the first chunk came together, so that the time until the last chunk is that of the other tokens.
    """
    later = sum(count for _, count in sample.tokens[1:])
    return (sample.tokens[-1][0] - sample.tokens[0][0]) / later if later else None


def _gaps(sample: Sample) -> Sequence[float]:
    times = sample.tokens
    return [(time - before) / count for (before, _), (time, count) in itertools.pairwise(times) for _ in range(count)]


def _is_good(sample: Sample, objectives: Objectives) -> bool:
    pairs = [
        (first_token(sample), objectives.first_token),
        (per_token(sample), objectives.per_token),
        (sample.ended - sample.arrived, objectives.end_to_end),
    ]
    return all(limit is None or time is None or time <= limit for time, limit in pairs)


def distribution(values: Sequence[float]) -> Distribution:
    """Return the distribution of some times."""
    ordered = sorted(values)
    return Distribution(
        samples=len(ordered),
        mean=math.fsum(ordered) / len(ordered) if ordered else None,
        largest=ordered[-1] if ordered else None,
        percentiles={percent: percentile(ordered, percent) for percent in PERCENTILES},
    )


def percentile(ordered: Sequence[float], percent: float) -> float | None:
    """Return a percentile of sorted values, interpolated linearly, or None if there are too few values."""
    if len(ordered) * (100 - percent) < 100:  # noqa: PLR2004  # one value beyond the percentile
        return None
    place = (len(ordered) - 1) * percent / 100
    lower = math.floor(place)
    upper = min(lower + 1, len(ordered) - 1)
    return ordered[lower] + (ordered[upper] - ordered[lower]) * (place - lower)
