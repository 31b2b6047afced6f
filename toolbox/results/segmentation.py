"""The levels of a series: where one may begin, where exactly between its neighbours, and whether one does.

`toolbox.results.changes` makes changes of it. The values here are finite, and scaled so that none is larger than 1.
docs/changes.md tells the method, its sources, why the limits are what they are, and what was measured.
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
"""Points: a level that lasts less is an excursion."""
REACH: Final = 50
"""Points to either side of a shift that are looked at: what is further away belongs to another time."""
CLIP: Final = 2.5
"""Spreads from the middle of its level: a value further away counts as if it were there, so outliers decide nothing."""

FALSE_ALARMS: Final = 1e-3
"""Of the t-test: the chance of one in a whole series of noise. A single point has its share of it."""
LEAST_EFFECT: Final = 1.7
"""Spreads of the noise: a person sees no smaller step."""
LEAST_RANK_Z: Final = 3.8
"""Of the rank test: a run of values that the other level has too is no level of its own. Few points cannot reach it."""
LEAST_OVER_LINE: Final = 1.2
"""A straight line leaves so many times the squares that it leaves with a step in it: drift is no step."""

_WINDOWS: Final = (10, 20, 40, 80)
_LEAST_T: Final = 4.5  # of a candidate: it is the best of many places, and what is weaker passes no test anyway
_MAD: Final = 1.4826  # spreads of normal noise in a median absolute deviation
_NINTH_DECILE: Final = 1 / 1.645  # the same for the ninth decile of the absolute deviations
_SHARED_POINTS: Final = 10  # a side's variance is its own, and that of both together as if of so many more points
_MEMORYLESS_POINTS: Final = 20  # so many more points, without memory, temper an autocorrelation of few points
_LARGEST_MEMORY: Final = 0.9


@dataclass(frozen=True, slots=True)
class Step:
    """What tells two adjacent stretches of a series apart.

    Args:
        strength: how many times its limit the weakest of the four tests reaches. A change has at least 1.
        p_value: of the t-test.
        spread: of the noise about the two levels.
    """

    strength: float
    p_value: float
    spread: float


@dataclass(frozen=True, slots=True)
class _Side:
    """A stretch to one side of a step: its median, its mean once outliers are clipped, and the noise about the mean."""

    median: float
    mean: float
    noise: Values

    @property
    def squares(self) -> float:
        return float(self.noise @ self.noise)


def segmented(values: Values, floor: float) -> list[tuple[int, Step]]:
    """Return where levels begin: what is left of the candidates when the weakest was dropped until all are changes."""
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
    """Return where levels may begin, in order: the best splits of windows, but of one with a stronger split in it none.

    Windows of four lengths start at every quarter of their length.
    """
    found: list[tuple[float, int, int, int]] = []
    for length in sorted({min(window, len(values)) for window in _WINDOWS}):
        last = len(values) - length
        starts = np.append(np.arange(0, last, length // 4), last)
        strengths, splits = _best_splits(np.lib.stride_tricks.sliding_window_view(values, length)[starts], floor)
        strong = strengths > _LEAST_T**2
        columns = (-strengths[strong], (starts + splits)[strong], starts[strong], starts[strong] + length)
        found += zip(*(column.tolist() for column in columns), strict=True)
    taken: list[int] = []
    for _, split, start, end in sorted(found):
        following = bisect(taken, start + 1)
        if following == len(taken) or taken[following] >= end - 1:
            insort(taken, split)
    return taken


def _best_splits(rows: Values, floor: float) -> tuple[Values, NDArray[np.intp]]:
    """Return the largest squared t of any split in two of each row, and how many values are before that split."""
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
    """Return the place between two neighbours from which on values are nearer to the level after it.

    It has the least sum of absolute deviations from the medians of the two levels, as they were split at `at`. Of
    places that are as good as each other it is the one nearest to `at`.
    """
    begin, end = max(before, at - REACH), min(after, at + REACH)
    left, right = (_at_half(np.sort(part)) for part in (values[begin:at], values[at:end]))
    misfit = np.cumsum(np.abs(values[begin:end] - left) - np.abs(values[begin:end] - right))
    margin = min(3, at - begin, end - at)
    inner = misfit[margin - 1 : end - begin - margin]
    best = np.flatnonzero(inner <= inner.min() + 1e-12) + begin + margin
    return int(best[np.abs(best - at).argmin()])


def compared(left: Values, right: Values, *, floor: float, largest_p: float) -> Step:
    """Compare two adjacent stretches of a series.

    Args:
        floor: the smallest spread that the values can have.
        largest_p: of the t-test.
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
    """Return what a point is worth where noise has memory, as a share of a point of noise without.

    For noise that remembers a part m of its last value that is (1 - m) / (1 + m), where there are many points.
    """
    count = sum(len(side.noise) for side in sides)
    remembered = sum(float(side.noise[1:] @ side.noise[:-1]) for side in sides) / squares
    memory = min(max(remembered * count / (count + _MEMORYLESS_POINTS), 0.0), _LARGEST_MEMORY)
    return (1 - memory) / (1 + memory)


def _rank_strength(left: Values, right: Values) -> float:
    """Return how many times its limit the Mann-Whitney statistic is away from that of two samples of one kind.

    Few points cannot reach the limit: there it is that all of one side are above all of the other.
    """
    ordered, pairs = np.sort(right), len(left) * len(right)
    twice = ordered.searchsorted(left, "left").sum() + ordered.searchsorted(left, "right").sum()
    limit = 2 * LEAST_RANK_Z * math.sqrt(pairs * (len(left) + len(right) + 1) / 12)
    return float(abs(twice - pairs) / min(limit, pairs))


def _drift_strength(values: Values, at: int, stepped: float, missing: float) -> float:
    """Return how many times its limit a step stands out from drift, so that it is seen where there is drift as well.

    A straight line leaves more squares than the step alone does, and more still than a line with a step in it.

    Args:
        stepped: the squares that the step alone leaves, `missing` among them.
        missing: squares of the least noise that the values can have, where they have less.
    """
    deviations, times = values - values.mean(), np.arange(len(values)) - (len(values) - 1) / 2
    times /= math.sqrt(times @ times)
    step = (np.arange(len(values)) >= at) - (1 - at / len(values))
    step -= (step @ times) * times  # what of the step no line can follow
    left = deviations @ deviations - (deviations @ times) ** 2
    explained = (step @ deviations) ** 2 / (step @ step)
    both = max(left - explained, 0.0) + missing
    return float(min((left + missing) / stepped, (left + missing) / both / LEAST_OVER_LINE))


def clipped(values: Values, floor: float) -> tuple[Values, Values]:
    """Return the median along the last axis, which is kept, and the deviations from it, clipped.

    Where more than half of the values are the same, as in quantised series, the median absolute deviation is 0, and the
    ninth decile stands in.
    """
    middle = _at_half(np.sort(values, axis=-1))
    deviations = values - middle
    distances = np.sort(np.abs(deviations), axis=-1)
    spread = _MAD * _at_half(distances)
    decile = _NINTH_DECILE * distances[..., (9 * (values.shape[-1] - 1) // 10,)]
    limit = CLIP * np.maximum(np.where(spread > 0, spread, decile), floor)
    return middle, np.minimum(np.maximum(deviations, -limit), limit)


def _at_half(ascending: Values) -> Values:
    """Return the median of sorted values along the last axis, which is kept."""
    count = ascending.shape[-1]
    return (ascending[..., ((count - 1) // 2,)] + ascending[..., (count // 2,)]) / 2
