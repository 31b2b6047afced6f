"""How the dashboard writes numbers, times and money, and what else all of its templates know."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from toolbox.reports import _charts, _dashboard_data, _histories
from toolbox.results.cost import Cost

_MOST: Final = 20  # lines of a table of what needs attention
_MOST_MONTHS: Final = 24
_MOST_DAYS: Final = 62
_LARGEST: Final = 1e7  # from which on a number is not written out


def number(value: float) -> str:
    """Return a number with four digits, or those before its point."""
    if not 1 <= abs(value) < _LARGEST:
        return f"{value:.4g}"
    return f"{value:,.{max(0, 4 - len(str(int(abs(value)))))}f}"


def percent(value: float) -> str:
    """Return a change, which always has a sign."""
    return f"{value:+.1f} %"


def money(cost: Cost) -> str:
    """Return what something cost, which is known."""
    return f"{cost.cost or 0:,.2f} {cost.currency[:40]}"


def day(when: datetime) -> str:
    """Return the day of a moment, in UTC."""
    return f"{when.astimezone(UTC):%Y-%m-%d}"


def short_day(when: datetime) -> str:
    """Return the day of its month of a moment, in UTC."""
    return f"{when.astimezone(UTC):%d}"


def minute(when: datetime) -> str:
    """Return a moment to the minute, in UTC."""
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def revision(name: str | None) -> str:
    """Return as much of a revision as tells it from others."""
    return name[:12] if name else "unknown"


WORDS: Final[dict[str, Any]] = {
    "mark_of": _dashboard_data.mark,
    "result_mark": _dashboard_data.result_mark,
    "words": _dashboard_data.WORDS,
    "recent_days": _dashboard_data.RECENT_DAYS,
    "speed_runs": _dashboard_data.SPEED_RUNS,
    "before": _histories.BEFORE,
    "most": _MOST,
    "most_months": _MOST_MONTHS,
    "most_days": _MOST_DAYS,
    "number": number,
    "percent": percent,
    "money": money,
    "day": day,
    "short_day": short_day,
    "minute": minute,
    "revision": revision,
    "line": _charts.line,
}
"""What every template knows."""
