"""Change points: whether, where and by how much the level of a series of results shifted.

`toolbox.results.segmentation` finds the levels. Here they get their units, and the end of the series a second look.
docs/changes.md tells the method, its limits, and what was measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from toolbox.results.segmentation import FALSE_ALARMS, REACH, SHORTEST, Values, compared, segmented

SUSPECT_POINTS: Final = (3, 4, 5)
"""How many points at the end of a series can make a suspect."""
LEAST_SUSPECT_EFFECT: Final = 4.0
"""Spreads of the noise that the nearest of these points is away from the level before them."""
_LEAST_HISTORY: Final = 12  # points of that level
_ROUNDING: Final = 1e-9  # of the largest value: a smaller difference is one of arithmetic


class State(StrEnum):
    """How sure a change is."""

    CONFIRMED = "confirmed"
    SUSPECT = "suspect"


@dataclass(frozen=True, slots=True)
class Change:
    """A shift of the level of a series.

    Args:
        index: the first point of the new level.
        state: suspect where the series ends too early after it to tell a new level from an excursion.
        before: the level before, in the unit of the values: the median from the change before it on; `after` likewise.
        ratio: `after` over `before`; None where `before` is 0 or the ratio is too large to be a number.
        p_value: two-sided, of the t-test of the two levels. It is one test's, not corrected for how many were made.
    """

    index: int
    state: State
    before: float
    after: float
    ratio: float | None
    p_value: float


def percent(before: float, after: float) -> float | None:
    """Return by how much a number went up, in percent of its size before, so that up is up for negative numbers too.

    It is None where the number before is 0, and where the quotient is not a finite number.
    """
    if not before:
        return None
    found = 100 * (after / abs(before) - math.copysign(1, before))  # a difference of large numbers overflows
    return found if math.isfinite(found) else None


def detect(values: Sequence[float] | NDArray[np.float64]) -> list[Change]:
    """Return the changes of a series, in order.

    Args:
        values: in the order in which they were measured.

    Raises:
        ValueError: the values are no flat sequence of finite numbers.
    """
    series = np.asarray(values, dtype=np.float64)
    if series.ndim != 1:
        raise ValueError(f"a series is a flat sequence of numbers, this one has {series.ndim} dimensions")
    if not np.isfinite(series).all():
        index = int(np.flatnonzero(~np.isfinite(series))[0])
        raise ValueError(f"value {index} of the series is {series[index]}: remove values that are not numbers")
    if len(series) < 2 * SHORTEST:
        return []
    scaled, floor = _scaled(series)
    if floor == 0:
        return []
    found = [(index, State.CONFIRMED, step.p_value) for index, step in segmented(scaled, floor)]
    last = found[-1][0] if found else 0
    suspects = _suspects(scaled[last:], floor, largest_p=FALSE_ALARMS / len(series))
    if suspects:
        p_value, index = min(suspects)
        found.append((last + index, State.SUSPECT, p_value))
    return _described(series, found)


def _scaled(series: Values) -> tuple[Values, float]:
    """Return the distances from the median over the largest of them, and the least spread that noise can have there.

    No value is known to better than the smallest step between two that occur; what is rounded to such steps is off by a
    root of a twelfth of one. It is 0 where all values are the same but for rounding.
    """
    _, exponent = np.frexp(np.abs(series).max())
    small = np.ldexp(series, -exponent)  # no sum of these overflows, and none loses a digit
    gaps = np.diff(np.sort(small))
    gaps = gaps[gaps > _ROUNDING]
    distances = small - np.median(small)
    largest = np.abs(distances).max()
    return (distances / largest, float(gaps.min() / largest / math.sqrt(12))) if len(gaps) else (distances, 0.0)


def _suspects(level: Values, floor: float, *, largest_p: float) -> list[tuple[float, int]]:
    """Return the p-values and places of shifts that the last few points of the last level may show.

    All these points are far from the level, to one side, and no run of as many points has been half as far before.
    """
    suspects = []
    for count in SUSPECT_POINTS:
        history, end = level[:-count], level[-count:]
        if len(history) < _LEAST_HISTORY:
            break
        recent = history[-REACH:]
        step = compared(recent, end, floor=floor, largest_p=largest_p)
        middle = np.median(recent)
        side = 1 if end[0] > middle else -1
        nearest = (side * (end - middle)).min()
        earlier = np.lib.stride_tricks.sliding_window_view(side * (history - middle), count).min(axis=1).max()
        if nearest >= LEAST_SUSPECT_EFFECT * step.spread and earlier < nearest / 2 and step.p_value <= largest_p:
            suspects.append((step.p_value, len(history)))
    return suspects


def _described(series: Values, found: list[tuple[int, State, float]]) -> list[Change]:
    """Return the changes with the levels to either side of each, in the unit of the series."""
    _, exponent = np.frexp(np.abs(series).max())
    parts = np.split(np.ldexp(series, -exponent), [index for index, _, _ in found])
    levels = [float(np.ldexp(np.median(part), exponent)) for part in parts]
    return [
        Change(index, state, before, after, _ratio(before, after), p_value)
        for (index, state, p_value), before, after in zip(found, levels[:-1], levels[1:], strict=True)
    ]


def _ratio(before: float, after: float) -> float | None:
    """Return how many times the level is what it was; None where that is no number."""
    ratio = after / before if before else math.inf
    return ratio if math.isfinite(ratio) else None
