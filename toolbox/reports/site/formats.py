"""Formats numbers, times and money for the dashboard, and defines the variables of all its templates."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from toolbox.ground.model.prices import amount
from toolbox.ground.model.text import counted, truncate
from toolbox.ground.model.verdicts import UNEXPECTED
from toolbox.records.results import histories, latest_cases, project_overview
from toolbox.records.results.cost import Cost
from toolbox.records.results.project_overview import Cell, Project
from toolbox.records.results.records import ResultRow, RunRow
from toolbox.reports import _links, _web_page
from toolbox.reports._web_page import Mark
from toolbox.reports.site import charts, site_directory

_MOST: Final = 20  # rows of the tables of regressions, flaky cells and slow cells
_MAX_MONTHS: Final = 24
_MAX_DAYS: Final = 62
_LARGEST: Final = 1e7  # larger numbers have an exponent
_QUARANTINED: Final = Mark("quarantined", "\u22a0", "failed in quarantine")
_HEADINGS: Final = ("%m-%d", "%Y-%m-%d", "%m-%d %H:%M", "%m-%d %H:%M:%S")


def number(value: float) -> str:
    """Return a number with four digits, or with all digits before the point."""
    if not 1 <= abs(value) < _LARGEST:
        return f"{value:.4g}"
    return f"{value:,.{max(0, 4 - len(str(int(abs(value)))))}f}"


def percent(value: float) -> str:
    """Return a change in percent, with a sign."""
    return f"{value:+.1f} %"


def money(cost: Cost) -> str:
    """Return a cost with its currency."""
    return f"{amount(cost.cost or 0.0)} {truncate(cost.currency, 40)}"


def day(when: datetime) -> str:
    """Return the date of a time, in UTC."""
    return f"{when.astimezone(UTC):%Y-%m-%d}"


def headings(runs: Sequence[RunRow]) -> list[str]:
    """Return the start of each run, in UTC, in the shortest form that distinguishes the runs."""
    times: list[str] = []
    for form in _HEADINGS:
        times = [run.started.astimezone(UTC).strftime(form) for run in runs]
        if len(set(times)) == len(times):
            break
    return times


def minute(when: datetime) -> str:
    """Return a time to the minute, in UTC."""
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def result_mark(result: ResultRow) -> Mark:
    """Return the mark of the result of a cell. A failure in quarantine has a mark of its own."""
    if result.verdict in UNEXPECTED and not result.counts:
        return _QUARANTINED
    return _web_page.mark(result.verdict, result.run.state)


def project_mark(project: Project) -> Mark:
    """Return the mark of the latest run of a project."""
    return _web_page.mark(project.runs[0].verdict, project.runs[0].state)


def cell_mark(cell: Cell) -> Mark | None:
    """Return the mark of the latest result of a cell; None if the cell has no result in the recent runs."""
    return result_mark(cell.latest) if cell.latest is not None else None


def project_page(project: Project) -> str:
    """Return the name of the file with the page of a project."""
    return site_directory.file_name(project.name)


def cell_page(cell: Cell) -> str:
    """Return the name of the file with the page of a cell."""
    return site_directory.file_name(cell.project, cell.id)


WORDS: Final[dict[str, Any]] = {
    "result_mark": result_mark,
    "project_mark": project_mark,
    "cell_mark": cell_mark,
    "project_page": project_page,
    "cell_page": cell_page,
    "words": project_overview.STATES,
    "recent_days": project_overview.RECENT_DAYS,
    "speed_runs": project_overview.SPEED_RUNS,
    "before": histories.BEFORE,
    "slower": latest_cases.SLOWER,
    "earlier": latest_cases.EARLIER,
    "cell_anchor": _links.cell_anchor,
    "most": _MOST,
    "most_months": _MAX_MONTHS,
    "most_days": _MAX_DAYS,
    "number": number,
    "counted": counted,
    "percent": percent,
    "money": money,
    "amount": amount,
    "day": day,
    "minute": minute,
    "line": charts.line,
}
"""The variables of every template."""
