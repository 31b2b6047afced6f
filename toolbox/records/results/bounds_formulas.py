"""Computes the bounds of a series from its earlier values. docs/bounds.md derives and compares the formulas.

`update_bounds` calls this module, and `toolbox.records.results.bounds_file` writes the bounds. This module does no I/O.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context
from typing import Final

import numpy as np
from numpy.typing import NDArray

from toolbox.ground.model.bounds import REPORTED_FROM, Bound, Direction, Method
from toolbox.records.results import change_points, pooled_noise
from toolbox.records.results.pooled_noise import Noise
from toolbox.records.results.series import Series

CONFIDENCE: Final = 0.999
RATIO: Final = 1.2
LEAST_SHARE: Final = 0.015
"""The minimum distance of bounds from the mean, as a share of the mean, for `torchprime` and `prediction`."""
WINDOW: Final = 30
POWER: Final = 0.9
"""The probability with which a run fails if its value is worse by exactly the smallest detectable change."""
_DIGITS: Final = 6


def bound_of(series: Series, *, method: Method = Method.PREDICTION, confidence: float = CONFIDENCE) -> Bound | None:
    """Return the bounds of a series with 6 significant digits, rounded outward; None if it has too few values.

    `prediction` uses the last 30 values since the last confirmed change, the other methods use all values.

    Raises:
        ValueError: a value is too large, or the confidence or method is wrong. The message does not name the series.
    """
    begin = _begin(series.values) if method is Method.PREDICTION else 0
    latest = series.latest(len(series.values) - begin)
    return None if len(latest.values) < REPORTED_FROM else computed(latest, method, confidence)


def computed(series: Series, method: Method, confidence: float, noise: Noise | None = None) -> Bound:
    """Return the bounds from all values of a series, with 6 significant digits, rounded outward.

    Args:
        noise: the noise of earlier levels, which replaces the noise of the values; None for the noise of the values.
            With `noise`, the method is always `prediction`.

    Raises:
        ValueError: a value is too large, or the confidence or the method is wrong.
    """
    if noise is None:
        lower, upper, mean = interval(series.values, method, confidence)
        spread = float(series.values.std(ddof=1))
    else:
        method = Method.PREDICTION
        lower, upper, mean = interval_with_noise(series.values, noise, confidence)
        spread = math.sqrt(noise.at(mean))
    change = smallest_detected(lower, upper, mean, spread, series.direction)
    return Bound(
        lower=_rounded(lower, ROUND_FLOOR),
        upper=_rounded(upper, ROUND_CEILING),
        mean=_rounded(mean, ROUND_HALF_EVEN),
        samples=len(series.values),
        method=method,
        unit=series.unit,
        confidence=None if method is Method.RATIO else confidence,
        since=series.runs[0].started,
        until=series.runs[-1].started,
        noise_samples=None if noise is None else noise.freedom + 1,
        minimum_detectable_change=change,
    )


def interval(
    values: Sequence[float] | NDArray[np.float64], method: Method, confidence: float = CONFIDENCE
) -> tuple[float, float, float]:
    """Return the lower bound, the upper bound and the mean of some values, in their unit.

    Raises:
        ValueError: there are fewer than two values, a value is not a finite number, the confidence is not above 0.5
            and below 1, or the method has no formula.
    """
    sample = np.asarray(values, dtype=np.float64)
    if len(sample) < 2:  # noqa: PLR2004  # one value has no spread
        raise ValueError(f"bounds need at least 2 values, but there are only {len(sample)}")
    _check_sizes(sample)
    mean = float(sample.mean())
    if method is Method.RATIO:
        _check_confidence(confidence)
        near, far = mean / RATIO, mean * RATIO
        return min(near, far), max(near, far), mean
    half = float(half_width(sample, method, confidence))
    if method is Method.TORCHPRIME:
        # Rounding of mean +- half could leave an extreme value just outside.
        return min(mean - half, float(sample.min())), max(mean + half, float(sample.max())), mean
    return mean - half, mean + half, mean


def interval_with_noise(
    values: NDArray[np.float64], noise: Noise, confidence: float = CONFIDENCE
) -> tuple[float, float, float]:
    """Return the lower bound, the upper bound and the mean of n values, with the noise of earlier levels.

    The bounds are mean ± max(t s sqrt(1 + 1/n), 0.015 |mean|). s is the standard deviation of the noise of earlier
    levels, scaled to this mean if the noise is relative. f is the number of its degrees of freedom, and t is the
    two-sided critical value of Student's distribution with f degrees of freedom. The difference of a further value and
    the mean has the variance s^2 (1 + 1/n), and s is independent of both. So a further value is in the interval with
    the probability `confidence`, even for n = 1 (Hahn and Meeker, chapter 4, with an independent estimate of the
    variance).

    Raises:
        ValueError: a value is not a finite number, or the confidence is not above 0.5 and below 1.
    """
    from scipy.special import stdtrit

    _check_confidence(confidence)
    _check_sizes(values)
    mean = float(values.mean())
    reach = float(stdtrit(noise.freedom, (1 + confidence) / 2)) * math.sqrt(noise.at(mean) * (1 + 1 / len(values)))
    half = max(reach, LEAST_SHARE * abs(mean))
    return mean - half, mean + half, mean


def smallest_detected(
    lower: float, upper: float, mean: float, spread: float, direction: Direction | None
) -> float | None:
    """Return the smallest change for the worse that fails a run with a probability of 90%, as a share of the mean.

    A run fails if its value and the value of a second, confirming attempt are out of bounds on the same side. Let the
    noise be normal with spread s, and the bound be h away from the mean. After a shift by d, both values are out of
    bounds with the probability Phi((d - h) / s)^2, which is 0.9 for d = h + s Phi^-1(sqrt(0.9)). Without a direction,
    h is the distance of the more distant bound. The result is None if the mean is 0.
    """
    from scipy.special import ndtri

    if not mean:
        return None
    above, below = upper - mean, mean - lower
    reach = max(above, below) if direction is None else above if direction is Direction.LOWER else below
    return float(f"{(reach + spread * float(ndtri(math.sqrt(POWER)))) / abs(mean):.3g}")


def half_width(samples: NDArray[np.float64], method: Method, confidence: float = CONFIDENCE) -> NDArray[np.float64]:
    """Return the distance of the bounds from the mean, for one sample or for many samples at once.

    Args:
        samples: an array whose last axis contains the values of a sample.
        method: `torchprime` or `prediction`.

    `torchprime`: max(t s / sqrt(n), 0.015 |mean|, max - mean, mean - min), the interval of torchprime's
    `update_step_time.py`, which widens a confidence interval of the mean.
    `prediction`: max(t s sqrt(1 + 1/n), 0.015 |mean|), the prediction interval of one further value (Hahn and Meeker,
    Statistical Intervals, chapter 4).
    t is the two-sided critical value of Student's distribution with n - 1 degrees of freedom, and s is the standard
    deviation, computed with the divisor n - 1.

    Raises:
        ValueError: the confidence is not above 0.5 and below 1, or the method is not one of these two.
    """
    from scipy.special import stdtrit  # not scipy.stats, which takes a second to import

    _check_confidence(confidence)
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


def _check_confidence(confidence: float) -> None:
    if not 0.5 < confidence < 1:  # noqa: PLR2004
        raise ValueError(f"the confidence must be above 0.5 and below 1, not {confidence}")


def _check_sizes(values: NDArray[np.float64]) -> None:
    """Raise ValueError if a value or its square is not a finite number."""
    wrong = values[~(np.abs(values) < pooled_noise.LARGEST)]
    if wrong.size:
        raise ValueError(f"bounds need finite numbers below {pooled_noise.LARGEST:g}, but one number is {wrong[0]}")


def _begin(values: NDArray[np.float64]) -> int:
    """Return the index of the first value to use: at most 30 values, all after the last confirmed change."""
    detected = change_points.detect_latest(values)
    confirmed = [change.index for change in detected if change.state is change_points.State.CONFIRMED]
    return max(0, len(values) - WINDOW, *confirmed)


def _rounded(value: float, rounding: str) -> float:
    return float(Context(prec=_DIGITS, rounding=rounding).create_decimal_from_float(value))
