"""Bounds from earlier values: the formulas, and the bounds of a series. docs/bounds.md derives and compares them.

`update_bounds` calls this, and `toolbox.results.bounds_file` writes what it returns. Nothing here reads or writes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context
from typing import Final

import numpy as np
from numpy.typing import NDArray

from toolbox.model.bounds import REPORTED_FROM, Bound, Method
from toolbox.results.series import Series

CONFIDENCE: Final = 0.999
RATIO: Final = 1.2
LEAST_SHARE: Final = 0.015
"""A range by `torchprime` or `prediction` goes no less than this share of the mean to either side."""
WINDOW: Final = 30
_LOOK_BACK: Final = 500  # values in which a change is looked for: what lies before them changes nothing in the window
_DIGITS: Final = 6
_LARGEST: Final = 1e150  # the squares of larger numbers overflow


def bound_of(series: Series, *, method: Method = Method.PREDICTION, confidence: float = CONFIDENCE) -> Bound | None:
    """Return the bounds of a series with 6 significant digits, rounded outward; None where it has too few values.

    `prediction` looks at the last 30 values since the last confirmed change, the others at all values.

    Raises:
        ValueError: as for `interval`, such as for a value that is too large. The message does not name the series.
    """
    begin = _begin(series.values) if method is Method.PREDICTION else 0
    values, runs = series.values[begin:], series.runs[begin:]
    if len(values) < REPORTED_FROM:
        return None
    lower, upper, mean = interval(values, method, confidence)
    return Bound(
        lower=_rounded(lower, ROUND_FLOOR),
        upper=_rounded(upper, ROUND_CEILING),
        mean=_rounded(mean, ROUND_HALF_EVEN),
        samples=len(values),
        method=method,
        unit=series.unit,
        confidence=None if method is Method.RATIO else confidence,
        since=runs[0].started,
        until=runs[-1].started,
    )


def interval(
    values: Sequence[float] | NDArray[np.float64], method: Method, confidence: float = CONFIDENCE
) -> tuple[float, float, float]:
    """Return the lower bound, the upper bound and the mean of these values, in their unit.

    Raises:
        ValueError: fewer than two values, one that is no finite number, a confidence that is not above 0.5 and
            below 1, or a method without a formula.
    """
    sample = np.asarray(values, dtype=np.float64)
    if len(sample) < 2:  # noqa: PLR2004  # one value has no spread
        raise ValueError(f"bounds need at least 2 values, there are {len(sample)}")
    wrong = sample[~(np.abs(sample) < _LARGEST)]
    if wrong.size:
        raise ValueError(f"bounds need finite numbers below {_LARGEST:g}, one is {wrong[0]}")
    mean = float(sample.mean())
    if method is Method.RATIO:
        _refuse(confidence)
        near, far = mean / RATIO, mean * RATIO
        return min(near, far), max(near, far), mean
    half = float(half_width(sample, method, confidence))
    return mean - half, mean + half, mean


def half_width(samples: NDArray[np.float64], method: Method, confidence: float = CONFIDENCE) -> NDArray[np.float64]:
    """Return how far the bounds of samples are from their means, by `torchprime` or `prediction`.

    A sample is the last axis: the simulation of the false alarms takes 200,000 of them at once.

    `torchprime`: max(t s / sqrt(n), 0.015 |mean|, max - mean, mean - min), the interval of torchprime's
    `update_step_time.py`, which widens a confidence interval of the mean.
    `prediction`: max(t s sqrt(1 + 1/n), 0.015 |mean|), the prediction interval of one further value (Hahn and Meeker,
    Statistical Intervals, chapter 4).
    t is the two-sided critical value of Student's distribution with n - 1 degrees of freedom, s the standard
    deviation with n - 1.

    Raises:
        ValueError: a confidence that is not above 0.5 and below 1, or another method.
    """
    from scipy.special import stdtrit  # not scipy.stats, which takes a second to import

    _refuse(confidence)
    n = samples.shape[-1]
    mean: NDArray[np.float64] = samples.mean(axis=-1)
    spread: NDArray[np.float64] = stdtrit(n - 1, (1 + confidence) / 2) * samples.std(axis=-1, ddof=1)
    least: NDArray[np.float64] = LEAST_SHARE * np.abs(mean)
    if method is Method.PREDICTION:
        return np.maximum(spread * math.sqrt(1 + 1 / n), least)
    if method is Method.TORCHPRIME:
        furthest: NDArray[np.float64] = np.maximum(samples.max(axis=-1) - mean, mean - samples.min(axis=-1))
        return np.maximum(np.maximum(spread / math.sqrt(n), least), furthest)
    raise ValueError(f"bounds by the method {method} have no half-width")


def _refuse(confidence: float) -> None:
    if not 0.5 < confidence < 1:  # noqa: PLR2004
        raise ValueError(f"the confidence is {confidence}, a number above 0.5 and below 1 was expected")


def _begin(values: NDArray[np.float64]) -> int:
    """Return where the last 30 values since the last confirmed change begin."""
    from toolbox.results import changes

    begin = max(0, len(values) - _LOOK_BACK)
    found = changes.detect(values[begin:])
    confirmed = [begin + change.index for change in found if change.state is changes.State.CONFIRMED]
    return max(0, len(values) - WINDOW, *confirmed)


def _rounded(value: float, rounding: str) -> float:
    return float(Context(prec=_DIGITS, rounding=rounding).create_decimal_from_float(value))
