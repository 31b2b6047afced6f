"""Compares two sets of runs: each metric of each cell, before and after.

The method, with its sources:

1. Noise. Two runs do not show how noisy a metric is, but its history does: `pooled_noise.within_levels` computes the
   variance v of the values before both sets of runs. For a set with n values, whose squared deviations have the sum S,
   the variance is (k v + S) / (k + n - 1). The history counts like k = 10 values, or fewer if it has fewer. This is the
   moderated variance of Smyth (Linear models and empirical Bayes methods, Statistical Applications in Genetics and
   Molecular Biology 3, 2004).
2. Test. The difference of the means divided by its standard error has Student's distribution. The formula of Welch and
   Satterthwaite gives the degrees of freedom from the mean squares of the history and of each set. Without a history,
   the test is Welch's t-test (1947).
3. Many comparisons. The p-values are adjusted by the procedure of Benjamini and Hochberg (1995). Of the metrics that
   are reported as better, worse or changed, at most 1% are expected to be wrong. If no metric has changed, 1 of 100
   comparisons still reports a changed metric.
4. The same. Two one-sided tests of 5% each (Schuirmann 1987): a metric is the same if the 90% confidence interval of
   the difference is within 5% of the level before. A metric that is neither changed nor the same is unsure, and more
   runs are needed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from toolbox.records.results import pooled_noise
from toolbox.records.results.pooled_noise import Noise
from toolbox.records.results.series import Series

FALSE_DISCOVERIES: Final = 0.01
VISIBLE: Final = 0.015  # share of the level before: a smaller difference is never a change, as in torchprime
SAME_MARGIN: Final = 0.05  # share of the level before: a larger difference matters
_SAME_CONFIDENCE: Final = 0.95  # confidence of each of the two one-sided tests
_SHARED_POINTS: Final = 10  # in the variance of a set, the history counts like this number of values, at most

Values = NDArray[np.float64]
Cells = Collection[tuple[str, str]]
"""The projects and ids of cells."""


class Change(StrEnum):
    """How a metric changed."""

    WORSE = "worse"
    BETTER = "better"
    CHANGED = "changed"  # the metric has no direction
    NOT_MEASURED = "not measured"  # the cell failed in one of the two sets of runs
    NEW = "new"
    GONE = "gone"
    UNSURE = "unsure"  # the values do not show whether there is a change of 5%
    SAME = "same"


MOVED: Final = frozenset(Change) - {Change.UNSURE, Change.SAME}


@dataclass(frozen=True, slots=True)
class Comparison:
    """A metric of a cell, before and after.

    Args:
        series: the later of the two series that are compared.
        before: the mean of the values before; None if there are none.
        after: the mean of the values after; None if there are none.
        ratio: `after` divided by `before`; None if one of them is missing, or `before` is 0.
        p_value: the probability of such a difference if nothing changed; None if the noise is not known.
        adjusted_p_value: the p-value, adjusted for the number of comparisons.
        error: the standard error of the difference.
        freedom: the degrees of freedom of the standard error.
    """

    series: Series
    before: float | None
    after: float | None
    samples_before: int
    samples_after: int
    ratio: float | None = None
    p_value: float | None = None
    adjusted_p_value: float | None = None
    error: float | None = None
    freedom: float | None = None
    change: Change = Change.UNSURE


def compare(
    before: Iterable[Series],
    after: Iterable[Series],
    history: Iterable[Series] = (),
    *,
    failed: tuple[Cells, Cells] = ((), ()),
) -> list[Comparison]:
    """Compare the series of two sets of runs.

    Args:
        before: the series of the first set.
        after: the series of the second set.
        history: the series of all runs, from which the noise of the metrics is computed.
        failed: the cells that failed in the first set and the cells that failed in the second set. A metric that is
            missing in a set is `not measured` if its cell failed there.

    Returns:
        the comparisons, sorted by project and name of the cell.
    """
    first, second, whole = ({_key(each): each for each in series} for series in (before, after, history))
    keys = sorted({**first, **second}, key=lambda key: (key[0], (first.get(key) or second[key]).name, key))
    compared = [_compared(first.get(key), second.get(key), whole.get(key)) for key in keys]
    adjusted = iter(adjusted_p_values([each.p_value for each in compared if each.p_value is not None]))
    tested = [each if each.p_value is None else replace(each, adjusted_p_value=next(adjusted)) for each in compared]
    return [replace(each, change=_change(each, failed)) for each in tested]


def adjusted_p_values(p_values: Sequence[float]) -> list[float]:
    """Return the p-values adjusted by the procedure of Benjamini and Hochberg.

    This is `scipy.stats.false_discovery_control`, without the import of `scipy.stats`, which takes a second.
    """
    values = np.asarray(p_values, dtype=np.float64)
    order = values.argsort()[::-1]
    count = len(values)
    adjusted = np.empty(count)
    adjusted[order] = np.minimum.accumulate(values[order] * count / np.arange(count, 0, -1))
    return [float(value) for value in np.minimum(adjusted, 1.0)]


def _key(series: Series) -> tuple[str, str, str, str]:
    return series.project, series.cell, series.metric, series.unit


def _compared(before: Series | None, after: Series | None, history: Series | None) -> Comparison:
    present = after or before
    assert present is not None
    old, new = (side.values if side is not None else np.empty(0) for side in (before, after))
    earlier = _earlier(before, after, history)
    # Sums of scaled values and of their squares cannot overflow, and scaling by a power of two is exact.
    _, exponent = np.frexp(max(float(np.abs(part).max(initial=0.0)) for part in (old, new, earlier)))
    old, new, earlier = (np.ldexp(part, -exponent) for part in (old, new, earlier))
    means = [float(part.mean()) if len(part) else None for part in (old, new)]
    ratio = means[1] / means[0] if means[0] and means[1] is not None else None
    comparison = Comparison(
        present,
        means[0] if means[0] is None else float(np.ldexp(means[0], exponent)),
        means[1] if means[1] is None else float(np.ldexp(means[1], exponent)),
        len(old),
        len(new),
        ratio if ratio is not None and math.isfinite(ratio) else None,
    )
    tested = _tested(old, new, pooled_noise.within_levels(earlier)) if len(old) and len(new) else None
    if tested is None:
        return comparison
    p_value, error, freedom = tested
    with np.errstate(over="ignore"):  # the error may become infinite, which means that no change can be excluded
        return replace(comparison, p_value=p_value, error=float(np.ldexp(error, exponent)), freedom=freedom)


def _earlier(before: Series | None, after: Series | None, history: Series | None) -> Values:
    """Return the values of the runs before both sets of runs; empty if a set has no values."""
    if before is None or after is None or history is None:
        return np.empty(0)
    begin = min(before.runs[0].started, after.runs[0].started)
    is_earlier = np.array([run.started < begin for run in history.runs])
    is_earlier[list(history.confirmed)] = False  # leave out values of levels that were not accepted
    earlier: Values = history.values[is_earlier]
    return earlier


def _tested(old: Values, new: Values, history: Noise | None) -> tuple[float, float, float] | None:
    """Return the two-sided p-value of a difference of means, its standard error, and the degrees of freedom.

    Return None if the noise is unknown, for example because one set has a single value, and both the history and the
    other set have too few values.
    """
    from scipy.special import stdtr

    difference = float(new.mean() - old.mean())
    if (parts := _variances(old, new, history)) is None:
        return None
    variance = sum(square for square, _ in parts)
    if not math.isfinite(variance):
        return None
    if variance == 0:
        return (1.0 if difference == 0 else 0.0), 0.0, float(sum(freedom for _, freedom in parts))
    freedom = variance**2 / sum(square**2 / degrees for square, degrees in parts)
    error = math.sqrt(variance)
    return float(2 * stdtr(freedom, -abs(difference) / error)), error, freedom


def _variances(old: Values, new: Values, history: Noise | None) -> list[tuple[float, int]] | None:
    """Return the independent parts of the variance of a difference of means, with their degrees of freedom.

    Return None if the noise is unknown.
    """
    sides = [(len(side), float(((side - side.mean()) ** 2).sum())) for side in (old, new)]
    if history is None and min(count for count, _ in sides) == 1:
        count, squares = max(sides)
        if count - 1 < pooled_noise.LEAST_FREEDOM:
            return None
        return [(squares / (count - 1) * (1 + 1 / count), count - 1)]  # Student's t-test with the noise of one side
    shared = min(history.freedom, _SHARED_POINTS) if history is not None else 0
    parts = [(squares / (shared + count - 1) / count, count - 1) for count, squares in sides if count > 1]
    if history is not None:
        weight = sum(shared / (shared + count - 1) / count for count, _ in sides)
        parts.append((weight * history.at(float(old.mean())), history.freedom))
    return parts


def _change(comparison: Comparison, failed: tuple[Cells, Cells]) -> Change:
    series, before, after = comparison.series, comparison.before, comparison.after
    if before is None or after is None:
        side, word = (failed[0], Change.NEW) if before is None else (failed[1], Change.GONE)
        return Change.NOT_MEASURED if (series.project, series.cell) in side else word
    if comparison.adjusted_p_value is None:
        return Change.SAME if after == before else Change.UNSURE
    if comparison.adjusted_p_value > FALSE_DISCOVERIES:
        return Change.SAME if _is_within_margin(comparison, before, after) else Change.UNSURE
    if abs(after - before) <= VISIBLE * abs(before):
        return Change.SAME
    if series.direction is None:
        return Change.CHANGED
    return Change.BETTER if series.direction.improves(before, after) else Change.WORSE


def _is_within_margin(comparison: Comparison, before: float, after: float) -> bool:
    """Return whether the difference is less than the margin, by two one-sided tests."""
    from scipy.special import stdtrit

    assert comparison.error is not None
    reach = float(stdtrit(comparison.freedom, _SAME_CONFIDENCE)) * comparison.error
    return abs(after - before) + reach <= SAME_MARGIN * abs(before)
