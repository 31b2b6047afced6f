"""Compares the spending of a month with the month before it, and forecasts the spending of the current month.

The forecast adds to the spending so far what the remaining days would cost at the mean of the latest 28 whole days:
four weeks contain each day of the week equally often. For the rest of today, it adds the mean minus the spending of
today. The interval is the prediction interval of the sum of the remaining days, if days are independent and roughly
normal (Hahn and Meeker, Statistical Intervals, 1991, chapter 4). All days are in UTC.
"""

from __future__ import annotations

import calendar
import math
import statistics
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from toolbox.records.results.records import Spending

CONFIDENCE: Final = 0.95
_DAY: Final = timedelta(days=1)
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


class History:
    """The spending of the past, in one currency.

    Args:
        since: the start of the known runs; None if all runs are known.
    """

    def __init__(self, spendings: Iterable[Spending], *, since: datetime | None = None) -> None:
        ordered = sorted((spending.started, spending.cost or 0.0) for spending in spendings)
        self._times = [time for time, _ in ordered]
        self._costs = [cost for _, cost in ordered]
        self.since = since

    def month(self, month: str, *, now: datetime) -> Month:
        """Return the spending of a month, compared with the month before it.

        Args:
            month: the month, such as `2026-11`.
        """
        begin = datetime.strptime(month, "%Y-%m").replace(tzinfo=UTC)
        end, before = _next(begin), _previous(begin)
        is_current = begin <= now < end
        until = min(before + (now - begin), begin) if is_current else begin
        previous = self._spent(before, until) if self.since is None or self.since <= before else None
        forecast = self._forecast(begin, end, now) if is_current else None
        return Month(self._spent(begin, end), previous, forecast)

    def _forecast(self, begin: datetime, end: datetime, now: datetime) -> Forecast | None:
        today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        first = max(self._first_day(today), today - _WINDOW_DAYS * _DAY)
        costs = [
            self._spent(first + number * _DAY, first + (number + 1) * _DAY) for number in range((today - first).days)
        ]
        if len(costs) < _FEWEST_DAYS:
            return None
        so_far, mean = self._spent(begin, end), statistics.fmean(costs)
        rest_of_today = max(0.0, mean - self._spent(today, today + _DAY))
        further_days = (end - today).days - 1
        expected = so_far + rest_of_today + further_days * mean
        margin = _margin(costs, further_days + bool(rest_of_today))
        return Forecast(expected, max(so_far, expected - margin), expected + margin)

    def _first_day(self, today: datetime) -> datetime:
        """Return the first day with known spending: the day of the first run, or the first whole day of the filter."""
        first = min(self._times, default=today).astimezone(UTC)
        if self.since is not None:
            first = max(first, self.since.astimezone(UTC) + _DAY)
        return first.replace(hour=0, minute=0, second=0, microsecond=0)

    def _spent(self, begin: datetime, end: datetime) -> float:
        first, last = bisect_left(self._times, begin), bisect_left(self._times, end)
        return math.fsum(self._costs[first:last])


def _margin(costs: Sequence[float], remaining: int) -> float:
    """Return the half width of the prediction interval for the sum of the remaining days."""
    from scipy.special import stdtrit

    count = len(costs)
    quantile = float(stdtrit(count - 1, (1 + CONFIDENCE) / 2))
    return quantile * statistics.stdev(costs) * math.sqrt(remaining + remaining**2 / count)


def _next(begin: datetime) -> datetime:
    return begin + timedelta(days=calendar.monthrange(begin.year, begin.month)[1])


def _previous(begin: datetime) -> datetime:
    return (begin - timedelta(days=1)).replace(day=1)
