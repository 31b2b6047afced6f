"""Finds change points: whether, where and by how much the level of a series of results shifted.

`toolbox.records.results.segmentation` finds the levels in scaled values. This module converts the levels to the unit of
the series, and looks for suspected changes at the end of the series. docs/changes.md describes the method, its limits
and its measured quality.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from toolbox.records.results.segmentation import FALSE_ALARMS, REACH, SHORTEST, Values, compared, segmented

LOOK_BACK: Final = 500
"""Number of latest values to search for the current level: earlier values cannot affect it."""
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
class ChangePoint:
    """A shift of the level of a series.

    Args:
        index: the index of the first value of the new level.
        state: suspect if there are too few values after the change to distinguish a new level from an excursion.
        before: the median of the values of the level before the change.
        after: the median of the values of the level after the change.
        p_value: the two-sided p-value of the t-test of the two levels, not corrected for the number of tests; for a
            suspected shift between two constants, the largest probability that noise put the points last.
    """

    index: int
    state: State
    before: float
    after: float
    p_value: float

    @property
    def ratio(self) -> float | None:
        """`after` divided by `before`; None if `before` is 0 or the quotient is too large for a number."""
        ratio = self.after / self.before if self.before else math.inf
        return ratio if math.isfinite(ratio) else None


def percent(before: float, after: float) -> float | None:
    """Return the increase of a number in percent of its previous absolute value.

    Return None if `before` is 0, or if the quotient is not a finite number.
    """
    if not before:
        return None
    increase = 100 * (after / abs(before) - math.copysign(1, before))  # `after - before` could overflow
    return increase if math.isfinite(increase) else None


def detect(values: Sequence[float] | NDArray[np.float64]) -> list[ChangePoint]:
    """Return the changes of a series, in order.

    Args:
        values: the values in the order of their measurement.

    Raises:
        ValueError: the values are not a flat sequence of finite numbers.
    """
    series = np.asarray(values, dtype=np.float64)
    if series.ndim != 1:
        raise ValueError(f"a series must be a flat sequence of numbers, not an array of {series.ndim} dimensions")
    if not np.isfinite(series).all():
        index = int(np.flatnonzero(~np.isfinite(series))[0])
        raise ValueError(f"value {index} of the series is {series[index]}: remove values that are not numbers")
    if len(series) < 2 * SHORTEST:
        return []
    scaled, floor = _scaled(series)
    if floor == 0:
        return []
    shifts = [(index, State.CONFIRMED, step.p_value) for index, step in segmented(scaled, floor)]
    last = shifts[-1][0] if shifts else 0
    largest_p = FALSE_ALARMS / len(series)
    suspects = _suspects(scaled[last:], floor, largest_p=largest_p) or _constants(series[last:], largest_p)
    if suspects:
        p_value, index = min(suspects)
        shifts.append((last + index, State.SUSPECT, p_value))
    return _described(series, shifts)


def detect_latest(values: NDArray[np.float64]) -> list[ChangePoint]:
    """Return the changes among the latest `LOOK_BACK` values of a series; `ChangePoint.index` counts all values."""
    begin = max(0, len(values) - LOOK_BACK)
    return [replace(change, index=begin + change.index) for change in detect(values[begin:])]


def detect_between_gaps(values: NDArray[np.float64]) -> list[ChangePoint]:
    """Return the changes of a series in which NaN stands for a missing value; `ChangePoint.index` counts all values."""
    places = np.flatnonzero(~np.isnan(values))
    return [replace(change, index=int(places[change.index])) for change in detect(values[places])]


def _scaled(series: Values) -> tuple[Values, float]:
    """Return the values minus their median, scaled to at most 1, and a lower limit for the spread of their noise.

    The values may be rounded to multiples of a step, which is at most the smallest difference between two values. Such
    rounding causes a spread of at least the step divided by sqrt(12). The limit is 0 if all values are equal.
    """
    _, exponent = np.frexp(np.abs(series).max())
    small = np.ldexp(series, -exponent)  # sums of these cannot overflow, and scaling by a power of two is exact
    gaps = np.diff(np.sort(small))
    gaps = gaps[gaps > _ROUNDING]
    distances = small - np.median(small)
    largest = np.abs(distances).max()
    return (distances / largest, float(gaps.min() / largest / math.sqrt(12))) if len(gaps) else (distances, 0.0)


def _suspects(level: Values, floor: float, *, largest_p: float) -> list[tuple[float, int]]:
    """Return the p-values and indices of suspected shifts among the last few points of the last level.

    A shift is suspected if all its points are far from the level on the same side, and no earlier sequence of the same
    length was even half as far from the level.
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


def _constants(level: Values, largest_p: float) -> list[tuple[float, int]]:
    """Return the p-value and index of a suspected shift from one constant to another among the last few points.

    The difference of the constants is the smallest difference of the values, so it says nothing about their rounding.
    If the constants differ by one unit of their last decimal place, the shift may be noise about a limit of rounding.
    Then it must be improbable even for the share of such points that makes it most probable.
    """
    _, exponent = np.frexp(np.abs(level).max())
    small = np.ldexp(level, -exponent)  # differences of these cannot overflow
    for count in SUSPECT_POINTS:
        history, end = small[:-count], small[-count:]
        if len(history) < _LEAST_HISTORY:
            break
        is_constant = max(np.ptp(history), np.ptp(end)) <= _ROUNDING
        if not is_constant or abs(end[0] - history[0]) <= _ROUNDING:
            continue
        share = count / len(level)
        p_value = math.exp(count * math.log(share) + len(history) * math.log1p(-share))
        if p_value <= largest_p or _decimal_units(float(level[0]), float(level[-1])) > 1:
            return [(p_value, len(history))]
    return []


def _decimal_units(*values: float) -> Decimal:
    """Return the difference of two numbers in units of their last decimal place, which is at most 1."""
    first, second = (Decimal(repr(value)).normalize() for value in values)
    places = max(0, *(-int(value.as_tuple().exponent) for value in (first, second)))
    return abs(first - second).scaleb(places)


def _described(series: Values, shifts: list[tuple[int, State, float]]) -> list[ChangePoint]:
    """Return the changes with the levels before and after each change, in the unit of the series."""
    _, exponent = np.frexp(np.abs(series).max())
    parts = np.split(np.ldexp(series, -exponent), [index for index, _, _ in shifts])
    levels = [float(np.ldexp(np.median(part), exponent)) for part in parts]
    return [
        ChangePoint(index, state, before, after, p_value)
        for (index, state, p_value), before, after in zip(shifts, levels[:-1], levels[1:], strict=True)
    ]
