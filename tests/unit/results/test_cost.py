"""Costs are summed by day or month, by project and by currency."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolbox.results.cost import Period, shares, summed
from toolbox.results.records import RunRow


def run(day: int, cost: float | None, project: str = "p", currency: str = "USD", month: int = 11) -> RunRow:
    moment = datetime(2026, month, day, 23, 59, tzinfo=UTC)
    unpriced = int(cost is None)
    return RunRow(
        1, project, "r", moment, "finished", "passed", None, "", 60.0, [], None, None, "", currency, {}, cost, unpriced
    )


def test_the_runs_of_a_day_are_summed() -> None:
    (one,) = summed([run(1, 1.5), run(1, 2.0), run(1, None)], Period.DAY)
    assert (one.period, one.cost, one.runs, one.unpriced, one.seconds) == ("2026-11-01", 3.5, 3, 1, 180.0)


def test_runs_without_a_price_have_no_cost() -> None:
    (one,) = summed([run(1, None)], Period.DAY)
    assert one.cost is None


def test_currencies_and_projects_are_not_mixed_and_the_latest_period_comes_first() -> None:
    found = summed([run(1, 1.0), run(2, 1.0, currency="EUR"), run(1, 1.0, "q"), run(1, 1.0, month=10)], Period.MONTH)
    keys = [(one.period, one.project, one.currency) for one in found]
    assert keys == [("2026-11", "p", "EUR"), ("2026-11", "p", "USD"), ("2026-11", "q", "USD"), ("2026-10", "p", "USD")]


@pytest.mark.parametrize(
    ("intervals", "expected"),
    [
        ([(0.0, 10.0), (20.0, 25.0)], [10.0, 5.0]),
        ([(0.0, 10.0), (0.0, 10.0)], [5.0, 5.0]),
        ([(0.0, 4.0), (2.0, 6.0)], [3.0, 3.0]),
        ([], []),
        ([(3.0, 3.0)], [0.0]),
    ],
)
def test_overlapping_attempts_share_the_time_evenly(
    intervals: list[tuple[float, float]], expected: list[float]
) -> None:
    assert shares(intervals) == expected


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)).map(sorted), max_size=8))
def test_all_shares_add_up_to_the_used_time(intervals: list[list[int]]) -> None:
    taken = {moment for begin, end in intervals for moment in range(begin, end)}
    assert sum(shares([(begin, end) for begin, end in intervals])) == pytest.approx(len(taken))
