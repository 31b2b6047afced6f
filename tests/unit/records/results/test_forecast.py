"""A month is compared with the same part of the month before it, and its spending is forecast."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from toolbox.records.results.forecast import History, Month
from toolbox.records.results.records import Spending

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)  # half of November is over on the 16th at 0:00


def day(moment: datetime, cost: float | None) -> Spending:
    return Spending(1, moment, "p", "USD", "t", "", "", "planned", 1, 0, 60.0, cost)


def daily(costs: Callable[[int], float], *, days: int = 60, now: datetime = NOW) -> list[Spending]:
    """Return the spendings of the last `days` days, at 2:00; the cost of today is `costs(0)`."""
    today = now.replace(hour=2)
    return [day(today - timedelta(days=ago), costs(ago)) for ago in range(days)]


def november(spendings: list[Spending], now: datetime = NOW, since: datetime | None = None) -> Month:
    return History(spendings, since=since).month("2026-11", now=now)


def test_the_current_month_is_compared_with_the_same_days_of_the_month_before() -> None:
    month = november([*daily(lambda _: 1.0), day(datetime(2026, 10, 16, 12, tzinfo=UTC), 100.0)])
    assert (month.cost, month.previous, month.percent) == (16.0, 16.0, 0.0)


def test_a_past_month_is_compared_with_the_whole_month_before_it_and_not_forecast() -> None:
    october = History(daily(lambda _: 1.0, days=100)).month("2026-10", now=NOW)
    assert (october.cost, october.previous, october.forecast) == (31.0, 30.0, None)
    assert october.percent == pytest.approx(100 / 30)


def test_the_end_of_march_is_compared_with_all_of_february() -> None:
    now = datetime(2026, 3, 31, 12, tzinfo=UTC)
    assert History(daily(lambda _: 1.0, now=now)).month("2026-03", now=now).previous == 28.0


def test_a_month_before_that_is_not_known_completely_is_not_compared() -> None:
    month = november(daily(lambda _: 1.0), since=datetime(2026, 10, 2, tzinfo=UTC))
    assert (month.previous, month.percent) == (None, None)


def test_a_month_before_without_spending_has_no_change_in_percent() -> None:
    month = november(daily(lambda _: 1.0, days=10))
    assert (month.previous, month.percent) == (0.0, None)


def test_a_constant_spending_is_forecast_exactly() -> None:
    forecast = november(daily(lambda _: 2.0)).forecast
    assert forecast is not None
    assert (forecast.expected, forecast.lower, forecast.upper) == (60.0, 60.0, 60.0)


def test_the_rest_of_today_counts_as_the_mean_minus_the_spending_of_today() -> None:
    forecast = november(daily(lambda ago: 2.0 if ago else 0.5)).forecast
    assert forecast is not None
    assert forecast.expected == 60.0


def test_days_without_runs_count_as_zero() -> None:
    spendings = [each for each in daily(lambda _: 7.0) if each.started.weekday() == 0]
    forecast = november(spendings).forecast
    assert forecast is not None
    assert forecast.expected == pytest.approx(3 * 7 + 14)  # three Mondays so far, then 1.0 a day on average
    assert forecast.lower < forecast.expected < forecast.upper


def test_there_is_no_forecast_from_less_than_seven_days() -> None:
    assert november(daily(lambda _: 1.0, days=7)).forecast is None
    assert november(daily(lambda _: 1.0, days=8)).forecast is not None
    assert november(daily(lambda _: 1.0), since=NOW - timedelta(days=7)).forecast is None


def test_the_interval_is_never_below_the_spending_so_far() -> None:
    forecast = november(daily(lambda ago: 1000.0 if ago == 20 else 1.0)).forecast
    assert forecast is not None
    assert forecast.lower == 16.0


def test_attempts_without_a_price_are_left_out() -> None:
    assert november([*daily(lambda _: 1.0), day(NOW, None)]).cost == 16.0


def test_the_interval_contains_the_real_spending_about_as_often_as_it_promises() -> None:
    noise = random.Random(7)
    hits, rounds = 0, 300
    for _ in range(rounds):
        costs = [noise.gauss(10.0, 3.0) for _ in range(74)]  # the last 14 are the rest of the month
        forecast = november(daily(lambda ago, costs=costs: costs[59 - ago])).forecast  # type: ignore[misc]
        assert forecast is not None
        hits += forecast.lower <= sum(costs[44:]) <= forecast.upper
    assert 0.91 <= hits / rounds <= 0.99
