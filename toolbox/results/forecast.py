"""Compares the spending of a month with the month before it, and forecasts the spending of the current month.

The forecast adds to the spending so far what the remaining days would cost at the mean of the latest 28 whole days:
four weeks contain each day of the week equally often. Today counts with what is left of the mean. The interval is the
prediction interval of the sum of the remaining days, if days are independent and roughly normal (Hahn and Meeker,
Statistical Intervals, 1991, chapter 4). All days are in UTC.
"""

from __future__ import annotations

import calendar
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

from toolbox.results.records import Spending

CONFIDENCE: Final = 0.95
_WINDOW_DAYS: Final = 28
_FEWEST_DAYS: Final = 7  # with fewer whole days there is no forecast


@dataclass(frozen=True, slots=True)
class Forecast:
    """The expected spending of a whole month.

    Args:
        lower: the lower end of the prediction interval, which is never below the spending so far.
    """

    expected: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class Month:
    """The spending of a month, compared with the month before it.

    Args:
        cost: the spending; of the current month, the spending so far.
        previous: the spending of the month before it; for the current month, up to the same time of that month. None
            if the runs of that month are not all known.
        forecast: None for a month that has ended, or if too few days are known.
    """

    cost: float
    previous: float | None
    forecast: Forecast | None

    @property
    def percent(self) -> float | None:
        """The change in percent; None if nothing is known to have been spent in the month before."""
        return (self.cost - self.previous) / self.previous * 100 if self.previous else None


def of_month(spendings: Sequence[Spending], month: str, *, now: datetime, since: datetime | None = None) -> Month:
    """Compare a month with the month before it.

    Args:
        spendings: the spending of all months, in one currency.
        month: the month, such as `2026-11`.
        since: the begin of the known runs; None if all runs are known.
    """
    begin = datetime.strptime(month, "%Y-%m").replace(tzinfo=UTC)
    end, before = _next(begin), _previous(begin)
    is_current = begin <= now < end
    until = min(before + (now - begin), begin) if is_current else begin
    known = since is None or since <= before
    previous = _sum(spendings, before, until) if known else None
    forecast = _forecast(spendings, begin, end, now, since) if is_current else None
    return Month(_sum(spendings, begin, end), previous, forecast)


def _forecast(
    spendings: Sequence[Spending], begin: datetime, end: datetime, now: datetime, since: datetime | None
) -> Forecast | None:
    today = now.astimezone(UTC).date()
    first_known = min((spending.started.astimezone(UTC).date() for spending in spendings), default=today)
    if since is not None:
        first_known = max(first_known, (since.astimezone(UTC) + timedelta(days=1)).date())  # the next whole day
    first = max(first_known, today - timedelta(days=_WINDOW_DAYS))
    days = [first + timedelta(days=number) for number in range((today - first).days)]
    if len(days) < _FEWEST_DAYS:
        return None
    by_day = _by_day(spendings)
    costs = [by_day.get(day, 0.0) for day in days]
    so_far, mean = _sum(spendings, begin, end), statistics.fmean(costs)
    rest_of_today = max(0.0, mean - by_day.get(today, 0.0))
    further_days = (end.date() - today).days - 1
    expected = so_far + rest_of_today + further_days * mean
    margin = _margin(costs, further_days + bool(rest_of_today))
    return Forecast(expected, max(so_far, expected - margin), expected + margin)


def _margin(costs: Sequence[float], remaining: int) -> float:
    """Return the half width of the prediction interval for the sum of the remaining days."""
    from scipy import stats  # slow to import

    count = len(costs)
    quantile = float(stats.t.ppf((1 + CONFIDENCE) / 2, count - 1))
    return quantile * statistics.stdev(costs) * math.sqrt(remaining + remaining**2 / count)


def _by_day(spendings: Sequence[Spending]) -> Mapping[date, float]:
    costs: dict[date, float] = {}
    for spending in spendings:
        day = spending.started.astimezone(UTC).date()
        costs[day] = costs.get(day, 0.0) + (spending.cost or 0.0)
    return costs


def _sum(spendings: Sequence[Spending], begin: datetime, end: datetime) -> float:
    return math.fsum(spending.cost or 0.0 for spending in spendings if begin <= spending.started < end)


def _next(begin: datetime) -> datetime:
    return begin + timedelta(days=calendar.monthrange(begin.year, begin.month)[1])


def _previous(begin: datetime) -> datetime:
    return (begin - timedelta(days=1)).replace(day=1)
