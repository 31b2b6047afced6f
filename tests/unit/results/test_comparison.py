"""Two sets of runs against each other: what became better, worse, or cannot be told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from toolbox.model.bounds import Direction
from toolbox.results.comparison import Change, Comparison, compare
from toolbox.results.series import Series

FAST, SLOW = [1.0, 1.01, 0.99, 1.0], [1.2, 1.21, 1.19, 1.2]


def series(values: Sequence[float], metric: str = "time", direction: Direction | None = Direction.LOWER) -> Series:
    return Series("p", "0" * 12, "x=a", {"x": "a"}, metric, "s", direction, (), np.array(values))


def one(before: Series | None, after: Series | None) -> Comparison:
    (found,) = compare([before] if before else [], [after] if after else [])
    return found


CHANGES = [
    (FAST, SLOW, Direction.LOWER, Change.WORSE),
    (SLOW, FAST, Direction.LOWER, Change.BETTER),
    (FAST, SLOW, Direction.HIGHER, Change.BETTER),
    (FAST, SLOW, None, Change.CHANGED),
    (FAST, [1.005, 1.006, 1.005, 1.006], Direction.LOWER, Change.SAME),
    ([0.5, 2.0, 0.6], [0.7, 2.2, 0.9], Direction.LOWER, Change.SAME),
    (FAST, [1.2], Direction.LOWER, Change.UNSURE),
    ([0.0, 0.0], [1.0, 1.0], Direction.LOWER, Change.WORSE),
    ([1.0, 1.0], [1.0, 1.0], Direction.LOWER, Change.SAME),
]


@pytest.mark.parametrize(("before", "after", "direction", "change"), CHANGES)
def test_a_difference_is_called_what_it_is(
    before: list[float], after: list[float], direction: Direction | None, change: Change
) -> None:
    assert one(series(before, direction=direction), series(after, direction=direction)).change is change


def test_the_p_value_is_that_of_welch() -> None:
    before, after = [1.0, 1.4, 1.1, 1.3], [1.2, 1.9, 1.5]
    expected = stats.ttest_ind(before, after, equal_var=False).pvalue
    assert one(series(before), series(after)).p_value == pytest.approx(expected)


def test_what_is_on_one_side_only_is_new_or_gone() -> None:
    assert one(None, series(FAST)).change is Change.NEW
    gone = one(series(FAST), None)
    assert (gone.change, gone.after, gone.ratio, gone.samples_after) == (Change.GONE, None, None, 0)


def test_series_are_paired_by_cell_and_metric() -> None:
    other = replace(series(SLOW), cell="1" * 12, name="x=b")
    found = compare([other, series(FAST)], [series(SLOW), other])
    assert [(row.name, row.ratio) for row in found] == [("x=a", pytest.approx(1.2)), ("x=b", 1.0)]
