"""Holds two sets of runs against each other: each metric of each cell, before and after."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr

from toolbox.model.bounds import Direction
from toolbox.results.series import Series

_SURE: Final = 0.01
_HISTORY: Final = 30
_LEAST_HISTORY: Final = 5  # values: fewer do not tell how noisy a metric is
_VISIBLE: Final = 0.015  # of the mean: as much as torchprime never calls a change


class Change(StrEnum):
    """What became of a metric."""

    BETTER = "better"
    WORSE = "worse"
    CHANGED = "changed"  # nobody has said which values are better
    SAME = "same"
    UNSURE = "unsure"  # too few values to tell it from noise
    NEW = "new"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A metric of a cell, before and after.

    Args:
        before: the mean of its values, None where there are none; likewise `after`.
        samples_before: how many values there were.
        ratio: after / before; None where it has no meaning.
        p_value: how likely such a difference is where there is none: by Welch's t-test, or, of single values, by the
            noise of those before them; None where neither is to be had.
    """

    project: str
    cell: str
    name: str
    metric: str
    unit: str
    before: float | None
    after: float | None
    samples_before: int
    samples_after: int
    ratio: float | None
    p_value: float | None
    change: Change


def compare(before: Iterable[Series], after: Iterable[Series], history: Iterable[Series] = ()) -> list[Comparison]:
    """Compare the series of two sets of runs, sorted as they are.

    Args:
        history: all that is known of these metrics: run against run, it says how noisy they are.
    """
    first, second, known = ({_key(one): one for one in series} for series in (before, after, history))
    keys = sorted({**first, **second}, key=lambda key: (key[0], (first.get(key) or second[key]).name, key))
    return [_compared(first.get(key), second.get(key), known.get(key)) for key in keys]


def _key(series: Series) -> tuple[str, str, str, str]:
    return series.project, series.cell, series.metric, series.unit


def _compared(before: Series | None, after: Series | None, history: Series | None) -> Comparison:
    known: Any = after or before
    old, new = (np.asarray(one.values if one is not None else []) for one in (before, after))
    mean_before, mean_after = (float(values.mean()) if len(values) else None for values in (old, new))
    ratio = mean_after / mean_before if mean_after is not None and mean_before else None
    p_value = _welch(old, new)
    if p_value is None and before is not None and after is not None and history is not None:
        p_value = _by_noise(before, after, history)
    change = _change(mean_before, mean_after, p_value, known.direction)
    return Comparison(
        known.project,
        known.cell,
        known.name,
        known.metric,
        known.unit,
        mean_before,
        mean_after,
        len(old),
        len(new),
        ratio,
        p_value,
        change,
    )


def _change(before: float | None, after: float | None, p_value: float | None, direction: Direction | None) -> Change:
    if before is None or after is None:
        return Change.NEW if before is None else Change.GONE
    if p_value is None and after != before:
        return Change.UNSURE
    if p_value is None or abs(after - before) <= _VISIBLE * abs(before):
        return Change.SAME
    if p_value > _SURE:
        return Change.SAME
    if direction is None:
        return Change.CHANGED
    return Change.BETTER if (after < before) is (direction is Direction.LOWER) else Change.WORSE


def _welch(old: NDArray[np.float64], new: NDArray[np.float64]) -> float | None:
    """Return the two-sided p-value of the t-test for unequal variances (Welch 1947)."""
    if len(old) < 2 or len(new) < 2:  # noqa: PLR2004  # a variance needs two
        return None
    of_old, of_new = float(old.var(ddof=1)) / len(old), float(new.var(ddof=1)) / len(new)
    difference = float(new.mean() - old.mean())
    if of_old + of_new == 0:
        return 1.0 if difference == 0 else 0.0
    freedom = (of_old + of_new) ** 2 / (of_old**2 / (len(old) - 1) + of_new**2 / (len(new) - 1))
    return float(2 * stdtr(freedom, -abs(difference) / math.sqrt(of_old + of_new)))


def _by_noise(before: Series, after: Series, history: Series) -> float | None:
    """Return the two-sided p-value of a difference of means, where the values before them tell how noisy they are.

    The variance is that of the latest values before the first of both, so that the change itself is not in it.
    """
    begin = min(before.runs[0].started, after.runs[0].started)
    earlier = history.values[[run.started < begin for run in history.runs]][-_HISTORY:]
    if len(earlier) < _LEAST_HISTORY:
        return None
    difference = float(after.values.mean() - before.values.mean())
    spread = float(earlier.std(ddof=1)) * math.sqrt(1 / len(before.values) + 1 / len(after.values))
    if spread == 0:
        return 1.0 if difference == 0 else 0.0
    return float(2 * stdtr(len(earlier) - 1, -abs(difference) / spread))
