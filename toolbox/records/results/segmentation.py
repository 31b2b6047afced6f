"""Finds the levels of a series: proposes where levels begin, places each beginning exactly, and tests it.

All values are finite, and `toolbox.records.results.change_points` has scaled them to at most 1. docs/changes.md
describes the method, its sources, the reasons for the limits, and its measured quality.
"""

from __future__ import annotations

import math
from bisect import bisect, insort
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

SHORTEST: Final = 6
"""Minimum number of points of a level: a shorter level is an excursion."""
REACH: Final = 50
"""Number of points on each side of a shift that are compared: more distant points may be out of date."""
CLIP: Final = 2.5
"""Maximum deviation from the median of a level, in spreads. Larger deviations are clipped, so outliers matter less."""

FALSE_ALARMS: Final = 1e-3
"""Probability that the t-test finds a change in a series of noise. The points share this probability equally."""
LEAST_EFFECT: Final = 1.7
"""Minimum size of a step in spreads of the noise: a person would not see a smaller step."""
LEAST_RANK_Z: Final = 3.8
"""Minimum z of the rank test, which rejects a step if most values occur on both sides. A few points cannot reach this
limit, so a lower limit applies to them."""
LEAST_OVER_LINE: Final = 1.2
"""Minimum ratio of the squared residuals of a straight line to the squared residuals of a line with a step. A lower
ratio means drift, not a step."""

_WINDOWS: Final = (10, 20, 40, 80)
_LEAST_T: Final = 4.5  # minimum t of a candidate: weaker candidates would fail the tests anyway
_MAD: Final = 1.4826  # ratio of the standard deviation of Gaussian noise to its median absolute deviation
_NINTH_DECILE: Final = 1 / 1.645  # ratio of that standard deviation to the ninth decile of the absolute deviations
_SHARED_POINTS: Final = 10  # in the variance of a side, the pooled variance counts like this number of points
_MEMORYLESS_POINTS: Final = 20  # the estimate adds these independent points, so that few points have little memory
_LARGEST_MEMORY: Final = 0.9


@dataclass(frozen=True, slots=True)
class Step:
    """The difference between two adjacent parts of a series.

    Args:
        strength: the smallest ratio of a test statistic to its limit, of the four tests; at least 1 for a change.
        spread: the spread of the noise about the two levels.
    """

    strength: float
    p_value: float
    spread: float


@dataclass(frozen=True, slots=True)
class _Side:
    """The values on one side of a step.

    Args:
        mean: the mean after clipping.
        noise: the clipped deviations from the mean.
    """

    median: float
    mean: float
    noise: Values

    @property
    def squares(self) -> float:
        return float(self.noise @ self.noise)


def segmented(values: Values, floor: float) -> list[tuple[int, Step]]:
    """Return the index at which each level after the first begins, with the step there.

    The weakest candidate is dropped repeatedly until all remaining candidates pass the tests.
    """
    edges = [0, *candidates(values, floor), len(values)]

    def place(inner: int) -> None:
        edges[inner] = placed(values, edges[inner - 1], edges[inner], edges[inner + 1])

    def judged(inner: int) -> Step:
        begin, at, end = edges[inner - 1 : inner + 2]
        if min(at - begin, end - at) < SHORTEST:
            return Step(strength=0.0, p_value=1.0, spread=0.0)
        left, right = values[max(begin, at - REACH) : at], values[at : min(end, at + REACH)]
        return compared(left, right, floor=floor, largest_p=FALSE_ALARMS / len(values))

    for inner in range(1, len(edges) - 1):
        place(inner)
    steps = [judged(inner) for inner in range(1, len(edges) - 1)]
    while steps:
        weakest = min(range(len(steps)), key=lambda number: steps[number].strength)
        if steps[weakest].strength >= 1:
            break
        del steps[weakest], edges[weakest + 1]
        for inner in range(max(weakest, 1), min(weakest + 2, len(edges) - 1)):
            place(inner)
        for inner in range(max(weakest - 1, 1), min(weakest + 3, len(edges) - 1)):
            steps[inner - 1] = judged(inner)
    return list(zip(edges[1:-1], steps, strict=True))


def candidates(values: Values, floor: float) -> list[int]:
    """Return the indices at which levels may begin, in order.

    A candidate is the best split of a window, unless a stronger split of another window is inside this window. Windows
    have four lengths. Windows of one length start at every quarter of the length.
    """
    splits_found: list[tuple[float, int, int, int]] = []
    for length in sorted({min(window, len(values)) for window in _WINDOWS}):
        last = len(values) - length
        starts = np.append(np.arange(0, last, length // 4), last)
        strengths, splits = _best_splits(np.lib.stride_tricks.sliding_window_view(values, length)[starts], floor)
        strong = strengths > _LEAST_T**2
        columns = (-strengths[strong], (starts + splits)[strong], starts[strong], starts[strong] + length)
        splits_found += zip(*(column.tolist() for column in columns), strict=True)
    chosen: list[int] = []
    for _, split, start, end in sorted(splits_found):
        following = bisect(chosen, start + 1)
        if following == len(chosen) or chosen[following] >= end - 1:
            insort(chosen, split)
    return chosen


def _best_splits(rows: Values, floor: float) -> tuple[Values, NDArray[np.intp]]:
    """Return for each row the largest squared t of all splits into two parts, and the size of its first part."""
    _, deviations = clipped(rows, floor)
    count = rows.shape[1]
    deviations -= deviations.mean(axis=1, keepdims=True)
    total = np.square(deviations).sum(axis=1)
    sizes = np.arange(3, count - 2)
    between = np.square(deviations.cumsum(axis=1)[:, 2 : count - 3]) * (count / (sizes * (count - sizes)))
    best = between.argmax(axis=1)
    explained = between[np.arange(len(rows)), best]
    within = np.maximum(total - explained, 1e-9 * total)
    return (count - 2) * explained / np.where(within > 0, within, 1.0), sizes[best]


def placed(values: Values, before: int, at: int, after: int) -> int:
    """Return the index between two neighbouring changes that separates two levels best.

    The best index minimizes the sum of absolute deviations from the medians of the two levels. The medians are computed
    from the values before `at` and from the values after. Of several best indices, the nearest to `at` is returned.
    """
    begin, end = max(before, at - REACH), min(after, at + REACH)
    left, right = (_at_half(np.sort(part)) for part in (values[begin:at], values[at:end]))
    misfit = np.cumsum(np.abs(values[begin:end] - left) - np.abs(values[begin:end] - right))
    margin = min(3, at - begin, end - at)
    inner = misfit[margin - 1 : end - begin - margin]
    best = np.flatnonzero(inner <= inner.min() + 1e-12) + begin + margin
    return int(best[np.abs(best - at).argmin()])


def compared(left: Values, right: Values, *, floor: float, largest_p: float) -> Step:
    """Compare two adjacent parts of a series.

    Args:
        left: the values before the step.
        right: the values after the step.
        floor: the smallest spread that is assumed for the noise.
        largest_p: the largest p-value of the t-test for a change.
    """
    from scipy.special import stdtr

    sides = _side(left, floor), _side(right, floor)
    medians_apart, apart = sides[1].median - sides[0].median, sides[1].mean - sides[0].mean
    freedom = len(left) + len(right) - 2
    squares = sides[0].squares + sides[1].squares
    missing = max(0.0, floor**2 * freedom - squares)
    squares += missing
    pooled, worth = squares / freedom, _worth(sides, squares)
    variances = [(side.squares + _SHARED_POINTS * pooled) / (len(side.noise) - 1 + _SHARED_POINTS) for side in sides]
    spread = math.sqrt(max(pooled, sum(variances) / 2))
    error = math.sqrt((variances[0] / len(left) + variances[1] / len(right)) / worth)
    p_value = float(2 * stdtr(max(freedom * worth, 2.0), -abs(apart) / error))
    strength = min(
        math.log(max(p_value, 1e-300)) / math.log(largest_p),
        min(abs(apart), abs(medians_apart)) / spread / LEAST_EFFECT,
        _rank_strength(left, right),
        _drift_strength(np.concatenate([sides[0].noise, sides[1].noise + apart]), len(left), squares, missing),
    )
    return Step(strength, p_value, spread)


def _side(values: Values, floor: float) -> _Side:
    median, deviations = clipped(values, floor)
    mean = deviations.mean()
    return _Side(float(median[0]), float(median[0] + mean), deviations - mean)


def _worth(sides: tuple[_Side, _Side], squares: float) -> float:
    """Return the weight of a point of autocorrelated noise, relative to a point of independent noise.

    For many points with an autocorrelation m, the weight is (1 - m) / (1 + m).
    """
    count = sum(len(side.noise) for side in sides)
    remembered = sum(float(side.noise[1:] @ side.noise[:-1]) for side in sides) / squares
    memory = min(max(remembered * count / (count + _MEMORYLESS_POINTS), 0.0), _LARGEST_MEMORY)
    return (1 - memory) / (1 + memory)


def _rank_strength(left: Values, right: Values) -> float:
    """Return the distance of the Mann-Whitney statistic from its mean for equal levels, divided by its limit.

    A few points cannot reach the usual limit. Their limit is the statistic of sides that do not overlap.
    """
    ordered, pairs = np.sort(right), len(left) * len(right)
    twice = ordered.searchsorted(left, "left").sum() + ordered.searchsorted(left, "right").sum()
    limit = 2 * LEAST_RANK_Z * math.sqrt(pairs * (len(left) + len(right) + 1) / 12)
    return float(abs(twice - pairs) / min(limit, pairs))


def _drift_strength(values: Values, at: int, stepped: float, missing: float) -> float:
    """Return how much better a step fits than drift, divided by the limit for a change.

    The squared residuals of a straight line are compared with the squared residuals of the step alone, and of a line
    with a step. The second comparison is for series that have both a step and drift.

    Args:
        values: the values of both sides, as deviations from the mean of the first side.
        at: the index of the step.
        stepped: the sum of squared residuals of the step alone, including `missing`.
        missing: the amount by which the sum of squares is below the sum of squares of the least possible noise.
    """
    deviations, times = values - values.mean(), np.arange(len(values)) - (len(values) - 1) / 2
    times /= math.sqrt(times @ times)
    step = (np.arange(len(values)) >= at) - (1 - at / len(values))
    step -= (step @ times) * times  # the part of the step that is orthogonal to lines
    left = deviations @ deviations - (deviations @ times) ** 2
    explained = (step @ deviations) ** 2 / (step @ step)
    both = max(left - explained, 0.0) + missing
    return float(min((left + missing) / stepped, (left + missing) / both / LEAST_OVER_LINE))


def clipped(values: Values, floor: float) -> tuple[Values, Values]:
    """Return the median along the last axis and the clipped deviations from the median. The axis is kept.

    If more than half of the values are equal, the median absolute deviation is 0, and the ninth decile is used instead.
    """
    middle = _at_half(np.sort(values, axis=-1))
    deviations = values - middle
    distances = np.sort(np.abs(deviations), axis=-1)
    spread = _MAD * _at_half(distances)
    decile = _NINTH_DECILE * distances[..., (9 * (values.shape[-1] - 1) // 10,)]
    limit = CLIP * np.maximum(np.where(spread > 0, spread, decile), floor)
    return middle, np.minimum(np.maximum(deviations, -limit), limit)


def _at_half(ascending: Values) -> Values:
    """Return the median of sorted values along the last axis. The axis is kept."""
    count = ascending.shape[-1]
    return (ascending[..., ((count - 1) // 2,)] + ascending[..., (count // 2,)]) / 2
