"""Makes the rows and the closing remarks of `results cost`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from toolbox.ground.model.text import counted
from toolbox.records.results import cost, forecast
from toolbox.records.results.cost import Cost, Group
from toolbox.records.results.forecast import History, Month
from toolbox.records.results.queries import Filter
from toolbox.records.results.records import Spending
from toolbox.reports.terminal import result_rows

DEFAULT: Final = (Group.DAY, Group.PROJECT)


def columns(by: Sequence[Group]) -> list[str]:
    """Return the names of the columns for these groups."""
    months = result_rows.MONTHS if _has_months(by) else ()
    return [*map(str, by), *result_rows.COSTS, *months, *result_rows.COUNTS]


def rows(spendings: Sequence[Spending], by: Sequence[Group], where: Filter) -> list[dict[str, Any]]:
    """Return the rows. A row of a month has a comparison with the month before it."""
    costs = cost.grouped(spendings, by)
    histories = _histories(spendings, by, where) if _has_months(by) else {}
    now = _as_of(where)
    return [
        result_rows.of_cost(each, _month(each, histories[each.series], now) if histories else None) for each in costs
    ]


def remarks(spendings: Sequence[Spending], where: Filter) -> list[str]:
    """Return a line for each currency: the spending of the latest month, its comparison and its forecast."""
    now = _as_of(where)
    histories = _histories(spendings, [], where)
    months = [each for each in cost.grouped(spendings, [Group.MONTH]) if each.period == f"{now:%Y-%m}"]
    return [_remark(each, month) for each in months if (month := _month(each, histories[each.series], now)) is not None]


def _as_of(where: Filter) -> datetime:
    """Return the time for which a month is compared and forecast: now, or the end of the selected runs."""
    now = datetime.now(UTC)
    return now if where.until is None else min(now, where.until)


def _has_months(by: Sequence[Group]) -> bool:
    return Group.MONTH in by and Group.DAY not in by


def _histories(spendings: Sequence[Spending], by: Sequence[Group], where: Filter) -> dict[tuple[str, ...], History]:
    """Return the history of each `Cost.series`."""
    series = cost.by_series(spendings, by)
    return {key: History(each, since=where.since) for key, each in series.items()}


def _month(month: Cost, history: History, now: datetime) -> Month | None:
    """Return the comparison of a month; None if the cost of the month is unknown."""
    return None if month.cost is None else history.month(month.period, now=now)


def _remark(cost_: Cost, month: Month) -> str:
    return "; ".join(_parts(cost_, month))


def _parts(cost_: Cost, month: Month) -> Iterator[str]:
    least = "at least " if cost_.unpriced else ""
    yield f"{cost_.period} so far: {least}{month.cost:.4g} {cost_.currency}"
    if month.previous is not None:
        change = f" ({month.percent:+.0f} %)" if month.percent is not None else ""
        yield f"in the same part of the month before: {month.previous:.4g}{change}"
    if (expected := month.forecast) is not None:
        interval = f"{forecast.CONFIDENCE:.0%} interval: {expected.lower:.4g} to {expected.upper:.4g}"
        yield f"forecast for the whole month: {least}{expected.expected:.4g} ({interval})"
    if cost_.unpriced:
        yield f"the cost of {counted(cost_.unpriced, 'attempt')} is unknown"
