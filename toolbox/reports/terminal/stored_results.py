"""Functions that the commands of `results` share: they open the store, select its contents and print rows."""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import Connection

from toolbox.model import moments
from toolbox.model.errors import UsageError
from toolbox.model.nearest import did_you_mean
from toolbox.model.text import first_of
from toolbox.orchestration import request, storing
from toolbox.orchestration.request import RunRequest
from toolbox.reports.terminal import live_view, rows
from toolbox.reports.terminal.rows import Format, Row
from toolbox.results import earlier_results, queries
from toolbox.results.earlier_results import EarlierRun
from toolbox.results.queries import Filter
from toolbox.results.store import Store, default_location
from toolbox.system import places

_MOST_CASES: Final = 100  # rows of test cases in a table
_MOST_CHANGES: Final = 20  # cells and test cases whose verdict changed
_NO_RESULTS: Final = "the store {store} has no matching results"


def location(database: str | None, project: str | None) -> str:
    """Return the file or URL of the store: `database`, or else the store of the project, or else that of this user."""
    if database is not None:
        return database
    if project is not None and project in places.projects():
        return storing.location(request.configure(RunRequest(project))[1])
    return default_location()


@contextmanager
def opened(database: str | None, selection: Filter) -> Iterator[tuple[Store, Connection]]:
    """Yield the store, and a connection that reads the store.

    Raises:
        UsageError: `database` does not exist, the store has no run of the project that the filter names, or the filter
            has a pattern for metrics that matches no metric in the store.
    """
    project, metric = selection.project, selection.metric
    with Store(location(database, project), may_create=database is None) as store, store.reading() as connection:
        if project is not None and project not in (projects := queries.projects(connection)):
            hint = did_you_mean(project, projects, label="projects")
            raise UsageError(f"the store {store.location} has no run of the project `{project}`: {hint}")
        if metric is not None and not fnmatch.filter(names := queries.metrics(connection, project), metric):
            hint = did_you_mean(metric, names, label="metrics")
            raise UsageError(f"no metric matches --metric={metric}; {hint}")
        yield store, connection


def run_filter(
    *,
    project: str | None = None,
    cells: str | None = None,
    settings: Mapping[str, Any] | None = None,
    metric: str | None = None,
    revision: str | None = None,
    presets: Sequence[str] | None = None,
    since: str | None = None,
    until: str | None = None,
    baseline: bool = False,
) -> Filter:
    """Return the filter that the flags of a command describe.

    Raises:
        UsageError: --since or --until is not a time, or the period ends before it begins.
    """
    begin = moments.parse(since, flag="since") if since is not None else None
    end = moments.parse(until, flag="until", is_end=True) if until is not None else None
    if begin is not None and end is not None and begin > end:
        raise UsageError(f"--since={since} --until={until}: the period ends before it begins")
    return Filter(project, cells, settings or {}, metric, revision, begin, end, presets or (), baseline=baseline)


def side_filter(connection: Connection, text: str, flag: str, run_filter: Filter) -> Filter:
    """Return the filter for one side of a comparison: a period, one run, or all runs of a revision.

    Args:
        text: the value of the flag.
        run_filter: the filter that applies to both sides.

    Raises:
        UsageError: the period is not valid, or the text is neither a revision nor the name of exactly one run.
    """
    if ".." in text:
        since, until = moments.parse_period(text, flag=flag)
        return replace(run_filter, since=since, until=until)
    try:
        run = queries.run(connection, text, run_filter.project)
    except UsageError:
        of_revision = replace(run_filter, revision=text)
        if text and queries.runs(connection, of_revision, limit=1):
            return of_revision
        raise
    return replace(run_filter, project=run.project, run=run.id)


def verdict_remarks(connection: Connection, old: Filter, new: Filter) -> list[str]:
    """Return the lines on what newly fails and newly passes, if both sides of a comparison are single runs."""
    if old.run is None or new.run is None:
        return []
    (before,) = queries.runs(connection, Filter(run=old.run))
    compared = earlier_results.between(connection, EarlierRun(before.id, before.run, before.started), new.run)
    if compared is None or not compared.has_news:
        return []
    changes = [*compared.cells, *compared.tests]
    lines = [f"{change.kind}: {' '.join(filter(None, (change.name, change.test)))}: {change}" for change in changes]
    return [f"since {compared.earlier}: {compared.tally}", *first_of(lines, _MOST_CHANGES)]


def case_pattern(tests: bool | str) -> str | None:
    """Return the pattern of the test cases that `--tests` or `--tests=PATTERN` selects; None without the flag."""
    if tests in {False, "False"}:
        return None
    return "*" if tests in {True, "True"} else str(tests)


def render_cases(cases: Sequence[Row], columns: Sequence[str], format_: Format, *, store: str) -> str | None:
    """Print rows of test cases. As text, only the first rows are printed; JSON and CSV contain all."""
    if format_ != "text" or len(cases) <= _MOST_CASES:
        return render(cases, columns, format_, store=store)
    remark = f"{_MOST_CASES} of {len(cases)} test cases are listed: --tests=PATTERN selects, --format=json lists all"
    return render(cases[:_MOST_CASES], columns, format_, store=store, remarks=[remark])


def render(
    results: Sequence[Row],
    columns: Sequence[str],
    format_: Format,
    *,
    store: str,
    remarks: Sequence[str] = (),
    summary: str = "",
) -> str | None:
    """Print rows as a table, or return their text in a format for programs.

    Args:
        store: the location of the store, for the message that there are no rows.
        remarks: lines below the table.
        summary: a line above the table. With a summary, an empty table is not printed.
    """
    if format_ != "text":
        return rows.dump(results, columns, format_)
    with live_view.view(sys.stdout) as view:
        if summary:
            view.line(summary)
        if results or not summary:
            rows.show(results, columns, view.console, empty=_NO_RESULTS.format(store=store))
        for remark in remarks:
            view.line(remark, style="dim")
    return None
