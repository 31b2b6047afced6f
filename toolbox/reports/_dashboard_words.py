"""How the dashboard writes numbers, times and money, and what else all of its templates know."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from toolbox.reports import _charts, _dashboard_data, _histories
from toolbox.results.cost import Cost
from toolbox.results.records import RunRow

_MOST: Final = 20  # lines of a table of what needs attention
_MOST_MONTHS: Final = 24
_MOST_DAYS: Final = 62
_LARGEST: Final = 1e7  # from which on a number is not written out
_DIGITS: Final = 12  # of a revision
_HEADINGS: Final = ("%m-%d", "%Y-%m-%d", "%m-%d %H:%M", "%m-%d %H:%M:%S")


def number(value: float) -> str:
    """Return a number with four digits, or those before its point."""
    if not 1 <= abs(value) < _LARGEST:
        return f"{value:.4g}"
    return f"{value:,.{max(0, 4 - len(str(int(abs(value)))))}f}"


def counted(count: int, word: str) -> str:
    """Return how many there are of something."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def percent(value: float) -> str:
    """Return a change, which always has a sign."""
    return f"{value:+.1f} %"


def money(cost: Cost) -> str:
    """Return what something cost, which is known."""
    return f"{cost.cost or 0:,.2f} {cost.currency[:40]}"


def day(when: datetime) -> str:
    """Return the day of a moment, in UTC."""
    return f"{when.astimezone(UTC):%Y-%m-%d}"


def headings(runs: Sequence[RunRow]) -> list[str]:
    """Return when runs started, in UTC, with as much as tells each from the others."""
    found: list[str] = []
    for form in _HEADINGS:
        found = [run.started.astimezone(UTC).strftime(form) for run in runs]
        if len(set(found)) == len(found):
            break
    return found


def minute(when: datetime) -> str:
    """Return a moment to the minute, in UTC."""
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def revision(name: str | None) -> str:
    """Return as much of a revision as tells it from others, with the `+` of a changed tree."""
    if not name:
        return "unknown"
    return name[:_DIGITS] + "+" if name.endswith("+") and len(name) > _DIGITS else name[:_DIGITS]


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
    "counted": counted,
    "percent": percent,
    "money": money,
    "day": day,
    "minute": minute,
    "revision": revision,
    "line": _charts.line,
}
"""What every template knows."""
