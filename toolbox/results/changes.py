"""Change points: whether, where and by how much the level of a series of results shifted.

`toolbox.results.segmentation` finds the levels in scaled values. This module converts them to the unit of the series,
and looks for suspected changes at its end. docs/changes.md describes the method, its limits and its measured quality.
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
"""The numbers of points at the end of a series that are tested for a suspected change."""
LEAST_SUSPECT_EFFECT: Final = 4.0
"""Minimum distance of suspected points from the level before them, in spreads of the noise."""
_LEAST_HISTORY: Final = 12  # minimum number of points in the level before a suspected change
_ROUNDING: Final = 1e-9  # smaller differences, relative to the largest value, are rounding errors


class State(StrEnum):
    """Whether a change is certain."""

    CONFIRMED = "confirmed"
    SUSPECT = "suspect"


@dataclass(frozen=True, slots=True)
class Change:
    """A shift of the level of a series.

    Args:
        index: the index of the first value of the new level.
        state: suspect if there are too few values after the change to distinguish a new level from an excursion.
        before: the level before the change, in the unit of the values: the median of its values.
        after: the level after the change, likewise.
        ratio: `after` divided by `before`; None if `before` is 0 or the ratio is too large for a number.
        p_value: the two-sided p-value of the t-test of the two levels, not corrected for the number of tests.
    """

    index: int
    state: State
    before: float
    after: float
    ratio: float | None
    p_value: float


def percent(before: float, after: float) -> float | None:
    """Return the increase of a number in percent of its previous size. It is positive if a negative number rises, too.

    Return None if `before` is 0, or if the quotient is not a finite number.
    """
    if not before:
        return None
    found = 100 * (after / abs(before) - math.copysign(1, before))  # a difference of large numbers overflows
    return found if math.isfinite(found) else None


def detect(values: Sequence[float] | NDArray[np.float64]) -> list[Change]:
    """Return the changes of a series, in order.

    Args:
        values: the values in the order of their measurement.

    Raises:
        ValueError: the values are not a flat sequence of finite numbers.
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
    """Return the distances from the median, scaled to at most 1, and the least spread that their noise can have.

    The values may be rounded to steps, which are at most as large as the smallest difference between two values. Such
    rounding alone has a spread of the step divided by sqrt(12). The spread is 0 if all values are the same except for
    errors of arithmetic.
    """
    _, exponent = np.frexp(np.abs(series).max())
    small = np.ldexp(series, -exponent)  # sums of these cannot overflow, and scaling by a power of two is exact
    gaps = np.diff(np.sort(small))
    gaps = gaps[gaps > _ROUNDING]
    distances = small - np.median(small)
    largest = np.abs(distances).max()
    return (distances / largest, float(gaps.min() / largest / math.sqrt(12))) if len(gaps) else (distances, 0.0)


def _suspects(level: Values, floor: float, *, largest_p: float) -> list[tuple[float, int]]:
    """Return the p-values and indices of suspected shifts in the last few points of the last level.

    In a suspected shift, all points are far from the level on one side, and no earlier sequence of the same length was
    even half as far away.
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
    """Return the changes with the levels before and after each, in the unit of the series."""
    _, exponent = np.frexp(np.abs(series).max())
    parts = np.split(np.ldexp(series, -exponent), [index for index, _, _ in found])
    levels = [float(np.ldexp(np.median(part), exponent)) for part in parts]
    return [
        Change(index, state, before, after, _ratio(before, after), p_value)
        for (index, state, p_value), before, after in zip(found, levels[:-1], levels[1:], strict=True)
    ]


def _ratio(before: float, after: float) -> float | None:
    """Return `after` divided by `before`; None if the quotient is not a finite number."""
    ratio = after / before if before else math.inf
    return ratio if math.isfinite(ratio) else None
