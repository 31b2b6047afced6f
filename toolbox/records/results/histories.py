"""Computes the history of a metric of a cell: its changes, its bounds, and the values that are out of bounds."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from toolbox.ground.model.bounds import Bound, Side
from toolbox.records.results import bounds_formulas as formulas
from toolbox.records.results import change_points
from toolbox.records.results.change_points import ChangePoint
from toolbox.records.results.series import RunReference, Series

LONGEST: Final = 2000  # number of latest values to search for changes, and to draw
BEFORE: Final = 10  # number of values to compare the latest value with
BoundsInForce = Mapping[tuple[str, str], Bound]  # by the id of the cell and the metric
Noise = Mapping[tuple[str, str], tuple[int, int]]  # noisy values and all values, by the id of the cell and the metric


@dataclass(frozen=True, slots=True)
class Shift:
    """A change of the level of a metric.

    Args:
        run: the first run with the new level.
        last: the last run with the old level.
        is_worse: whether the change is for the worse; None if the metric has no direction.
        other_presets: whether the two runs had different presets.
    """

    change: ChangePoint
    run: RunReference
    last: RunReference
    is_worse: bool | None
    other_presets: bool

    @property
    def is_confirmed(self) -> bool:
        """Whether enough values after the change confirm it."""
        return self.change.state is change_points.State.CONFIRMED

    @property
    def percent(self) -> float | None:
        """The increase of the level in percent; None if the old level is 0."""
        return change_points.percent(self.change.before, self.change.after)


@dataclass(frozen=True)
class History:
    """A metric of a cell.

    Args:
        series: the latest values, at least one value.
        earlier: the number of values before the values of `series`.
        bound: the bounds in force, or else the bounds that the values would give; None if the values do not give any.
        noisy: the number of noisy values, which were out of their range in one attempt but not in the other, and the
            number of all values; None if no value is noisy.
    """

    series: Series
    earlier: int
    shifts: Sequence[Shift]
    bound: Bound | None
    is_in_force: bool
    noisy: tuple[int, int] | None

    @property
    def latest(self) -> float:
        """The last value."""
        return float(self.series.values[-1])

    @property
    def percent(self) -> float | None:
        """The increase from the median of the `BEFORE` values before the last value to the last value, in percent."""
        before = self.series.values[-BEFORE - 1 : -1]
        usual = float(np.median(before)) if len(before) else 0.0
        return change_points.percent(usual, self.latest) if usual > 0 else None

    @cached_property
    def bounded_from(self) -> int | None:
        """The index of the first value that the bounds apply to; None without bounds."""
        if self.bound is None or not self.bound.is_reported:
            return None
        begin = self.series.first_index_since(self.bound.since) if self.bound.since is not None else 0
        return begin if begin < self.size else None

    @cached_property
    def outside(self) -> dict[int, Side]:
        """The side on which each value out of bounds lies, by the index of the value."""
        begin = self.bounded_from
        if begin is None or self.bound is None:
            return {}
        sides = ((index, self.bound.side(float(self.series.values[index]))) for index in range(begin, self.size))
        return {index: side for index, side in sides if side is not None}

    @property
    def is_outside(self) -> bool:
        """Whether the last value is out of bounds."""
        return self.size - 1 in self.outside

    @property
    def regressions(self) -> list[Shift]:
        """The confirmed changes for the worse."""
        return [shift for shift in self.shifts if shift.is_confirmed and shift.is_worse]

    @property
    def size(self) -> int:
        """The number of values."""
        return len(self.series.values)


def of(all_series: Iterable[Series], bounds: BoundsInForce, noise: Noise) -> list[History]:
    """Return the histories of series."""
    keyed = [(series, (series.cell, series.metric)) for series in all_series]
    return [_history(series, bounds.get(key), noise.get(key)) for series, key in keyed]


def _history(whole: Series, bound: Bound | None, noisy: tuple[int, int] | None) -> History:
    series = whole.latest(LONGEST)
    shifts = [_shift(series, change) for change in change_points.detect(series.values)]
    is_in_force = bound is not None and bound.is_in(series.unit)
    if not is_in_force:
        confirmed = [shift.change.index for shift in shifts if shift.is_confirmed]
        since = len(series.values) - max([0, *confirmed])
        bound = _possible_bound(series.latest(min(since, formulas.WINDOW)))
    return History(series, len(whole.values) - len(series.values), shifts, bound, is_in_force, noisy)


def _shift(series: Series, change: ChangePoint) -> Shift:
    run, last, direction = series.runs[change.index], series.runs[change.index - 1], series.direction
    is_worse = None if direction is None else direction.improves(change.after, change.before)
    return Shift(change, run, last, is_worse, run.presets != last.presets)


def _possible_bound(series: Series) -> Bound | None:
    """Return the bounds that `update_bounds` would write; None if the values do not give any."""
    with contextlib.suppress(ValueError):
        return formulas.bound_of(series)
    return None
