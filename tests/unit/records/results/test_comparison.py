"""Two sets of runs are compared: a metric is better, worse, the same, or unsure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from toolbox.ground.model.bounds import Direction
from toolbox.records.results.comparison import Change, Comparison, adjusted_p_values, compare
from toolbox.records.results.series import RunReference, Series
from toolbox.reports.terminal import result_rows

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
    ([0.5, 2.0, 0.6], [0.7, 2.2, 0.9], Direction.LOWER, Change.UNSURE),
    ([1.0, 1.01, 0.99] * 3, [1.03, 1.035, 1.04] * 3, Direction.LOWER, Change.WORSE),
    ([1.0, 1.1, 0.9] * 3, [1.03, 1.13, 0.93] * 3, Direction.LOWER, Change.UNSURE),
    ([-10.0, -10.1, -9.9], [-12.0, -12.1, -11.9], Direction.LOWER, Change.BETTER),
    (FAST, [1.2], Direction.LOWER, Change.UNSURE),
    ([0.0, 0.0], [1.0, 1.0], Direction.LOWER, Change.WORSE),
    ([1.0, 1.0], [1.0, 1.0], Direction.LOWER, Change.SAME),
]


@pytest.mark.parametrize(("before", "after", "direction", "change"), CHANGES)
def test_a_difference_has_the_right_change(
    before: list[float], after: list[float], direction: Direction | None, change: Change
) -> None:
    assert one(series(before, direction=direction), series(after, direction=direction)).change is change


def test_the_p_value_equals_that_of_welch() -> None:
    before, after = [1.0, 1.4, 1.1, 1.3], [1.2, 1.9, 1.5]
    expected = stats.ttest_ind(before, after, equal_var=False).pvalue
    assert one(series(before), series(after)).p_value == pytest.approx(expected)


def test_a_metric_on_one_side_only_is_new_or_gone() -> None:
    assert one(None, series(FAST)).change is Change.NEW
    gone = one(series(FAST), None)
    assert (gone.change, gone.after, gone.ratio, gone.samples_after) == (Change.GONE, None, None, 0)


def test_series_are_paired_by_cell_and_metric() -> None:
    other = replace(series(SLOW), cell="1" * 12, name="x=b")
    found = compare([other, series(FAST)], [series(SLOW), other])
    assert [(row.series.name, row.ratio) for row in found] == [("x=a", pytest.approx(1.2)), ("x=b", 1.0)]


# With a history

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
NIGHTS = 30


def history(values: Sequence[float] | NDArray[np.float64], name: str = "x=a", confirmed: Sequence[int] = ()) -> Series:
    runs = tuple(RunReference(f"run-{night}", BEGAN + timedelta(days=night)) for night in range(len(values)))
    return replace(series(()), values=np.asarray(values), cell=name, name=name, runs=runs, confirmed=tuple(confirmed))


def split(whole: Series, runs: int) -> tuple[Series, Series]:
    """Return the second last `runs` runs of a series, and the last `runs` runs."""
    first, second = slice(-2 * runs, -runs), slice(-runs, None)
    return (
        replace(whole, values=whole.values[first], runs=whole.runs[first], confirmed=()),
        replace(whole, values=whole.values[second], runs=whole.runs[second], confirmed=()),
    )


def compared(cells: Sequence[Series], runs: int) -> list[Comparison]:
    sides = [split(cell, runs) for cell in cells]
    return compare([before for before, _ in sides], [after for _, after in sides], cells)


def noisy(count: int, rng: np.random.Generator, loss: float = 0.0, runs: int = 2) -> list[Series]:
    """Return series with 1% noise whose last runs are slower by `loss`, at levels from 0.001 to 1000."""
    levels = 10 ** rng.uniform(-3, 3, count)
    shapes = 1 + 0.01 * rng.standard_normal((count, NIGHTS + 2 * runs))
    shapes[:, -runs:] *= 1 + loss
    return [
        history(level * shape, f"c{number:04}")
        for number, (level, shape) in enumerate(zip(levels, shapes, strict=True))
    ]


@pytest.mark.parametrize("runs", [1, 2])
def test_at_most_one_of_a_thousand_cells_without_a_change_is_reported(runs: int) -> None:
    counts = Counter(one.change for one in compared(noisy(1000, np.random.default_rng(1), runs=runs), runs))
    assert counts[Change.WORSE] + counts[Change.BETTER] <= 1
    assert counts[Change.SAME] >= 900


def test_two_runs_per_side_show_a_loss_of_8_percent_at_1_percent_noise() -> None:
    counts = Counter(one.change for one in compared(noisy(200, np.random.default_rng(2), loss=0.08), 2))
    assert counts[Change.WORSE] >= 0.9 * 200


def test_more_runs_per_side_find_more_losses() -> None:
    found = [
        Counter(one.change for one in compared(noisy(200, np.random.default_rng(3), loss=0.04, runs=runs), runs))
        for runs in (1, 2, 5)
    ]
    worse = [counts[Change.WORSE] for counts in found]
    assert worse == sorted(worse)
    assert worse[-1] > 190


def test_without_a_change_the_p_values_are_uniform() -> None:
    p_values = [one.p_value for one in compared(noisy(400, np.random.default_rng(4)), 2)]
    assert stats.kstest(p_values, "uniform").pvalue > 0.01


def test_an_old_shift_is_not_counted_as_noise() -> None:
    rng = np.random.default_rng(5)
    values = np.concatenate([rng.normal(20, 0.2, 40), rng.normal(10, 0.1, 20), [10, 10.1, 10.8, 10.9]])
    (found,) = compared([history(values)], 2)
    assert found.change is Change.WORSE
    assert found.error == pytest.approx(0.1, rel=0.3)


def test_an_unaccepted_level_is_not_counted_as_noise() -> None:
    rng = np.random.default_rng(6)
    values = np.concatenate([rng.normal(10, 0.1, 30), [12.0, 12.1], [10, 10.1, 10.8, 10.9]])
    assert compared([history(values)], 2)[0].change is not Change.WORSE
    assert compared([history(values, confirmed=[30, 31])], 2)[0].change is Change.WORSE


def test_two_single_runs_are_compared_by_the_noise_of_earlier_runs() -> None:
    before = [1.0, 1.02, 0.98, 1.01, 0.99, 1.0]
    (found,) = compared([history([*before, 1.0, 1.1])], 1)
    spread = np.std(before, ddof=1) * np.sqrt(2)
    assert found.p_value == pytest.approx(2 * stats.t.sf(0.1 / spread, 5), rel=1e-3)


def test_too_few_runs_have_no_p_value() -> None:
    assert compared([history([1.0, 1.0, 1.1])], 1)[0].change is Change.UNSURE


def test_many_values_are_compared_with_one_by_students_t_test() -> None:
    many, single = [1.0, 1.4, 1.1, 1.3, 1.2], [1.5]
    expected = stats.ttest_ind(many, single).pvalue
    assert one(series(many), series(single)).p_value == pytest.approx(expected)
    assert one(series(single), series(many)).p_value == pytest.approx(expected)


@pytest.mark.parametrize("p_values", [[], [0.5], [0.04, 0.01, 0.03, 0.01], [1.0, 0.0, 0.2]])
def test_p_values_are_adjusted_as_scipy_adjusts_them(p_values: list[float]) -> None:
    expected = stats.false_discovery_control(p_values) if p_values else []
    assert adjusted_p_values(p_values) == pytest.approx(list(expected))


@pytest.mark.parametrize("level", [1e-300, 1e300, -1e300])
def test_the_scale_of_the_values_does_not_matter(level: float) -> None:
    values = np.array([1.0, 1.01, 0.99, 1.0, 1.01, 1.02, 1.0, 1.01, 1.1, 1.11])
    (small,), (large,) = compared([history(values)], 2), compared([history(level * values)], 2)
    assert large.p_value == pytest.approx(small.p_value)
    assert large.after == pytest.approx(level * 1.105)


def test_a_value_that_is_too_large_does_not_affect_other_metrics() -> None:
    bad = history([1.0] * 8 + [1.7e308, -1.7e308, 1.0, 1.0], "bad")
    good = history([1.0, 1.01] * 4 + [1.0, 1.01, 1.1, 1.11], "good")
    found = {row["cell"]: row for row in result_rows.of_comparisons(compared([bad, good], 2))}
    assert (found["good"]["change"], found["good"]["percent"]) == ("worse", pytest.approx(9.95, abs=0.01))


def test_a_metric_of_a_cell_that_failed_was_not_measured() -> None:
    failed = {("p", "0" * 12)}
    (gone,) = compare([series(FAST)], [], failed=((), failed))
    (new,) = compare([], [series(FAST)], failed=(failed, ()))
    assert {gone.change, new.change} == {Change.NOT_MEASURED}


@pytest.mark.parametrize(
    ("before", "after", "percent"), [(-10.05, -12.03, -19.7), (10.0, 11.0, 10.0), (-2.0, 1.0, 150.0), (0.0, 1.0, None)]
)
def test_percent_is_positive_if_the_number_increases(before: float, after: float, percent: float | None) -> None:
    (row,) = result_rows.of_comparisons([one(series([before]), series([after]))])
    assert row["percent"] == (percent if percent is None else pytest.approx(percent, abs=0.01))


def test_a_summary_counts_the_changes_of_metrics() -> None:
    other = replace(series(SLOW), cell="1" * 12, name="x=b")
    found = compare([series(FAST), other], [series(SLOW), other])
    assert result_rows.summary_of_comparisons(found) == "1 worse, 1 same, of 2 metrics"
