"""What the commands of `results` have in common: which store, which of its contents, and how to print them."""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import Connection

from toolbox.commands import _moments
from toolbox.model.errors import UsageError
from toolbox.model.nearest import did_you_mean
from toolbox.orchestration import request, storing
from toolbox.orchestration.request import RunRequest
from toolbox.reports.terminal import live_view, rows
from toolbox.reports.terminal.rows import Format, Row
from toolbox.results import queries
from toolbox.results.queries import Filter
from toolbox.results.series import Series
from toolbox.results.store import Store, default_location
from toolbox.system import places

_NOTHING: Final = "the store {store} has no matching results"


def location(database: str | None, project: str | None) -> str:
    """Return which store is meant: the one that is named, that of a project of this checkout, or that of this user."""
    if database is not None:
        return database
    if project is not None and project in places.projects():
        return storing.location(request.configure(RunRequest(project))[1])
    return default_location()


@contextmanager
def opened(database: str | None, project: str | None) -> Iterator[tuple[Store, Connection]]:
    """Yield the store, and a connection that reads it.

    Raises:
        UsageError: there is no store where somebody says that there is, or it knows no such project.
    """
    with Store(location(database, project), is_new=database is None) as store, store.reading() as connection:
        if project is not None and project not in (known := queries.projects(connection)):
            hint = did_you_mean(project, known, label="projects")
            raise UsageError(f"the store {store.location} has no run of the project `{project}`: {hint}")
        yield store, connection


def wanted(
    *,
    project: str | None = None,
    cells: str | None = None,
    settings: Mapping[str, Any] | None = None,
    metric: str | None = None,
    revision: str | None = None,
    presets: Sequence[str] | None = None,
    since: str | None = None,
    until: str | None = None,
) -> Filter:
    """Return what the flags of a command ask for.

    Raises:
        UsageError: a time is none.
    """
    begin = _moments.parse(since, flag="since") if since is not None else None
    end = _moments.parse(until, flag="until", is_end=True) if until is not None else None
    if begin is not None and end is not None and begin > end:
        raise UsageError(f"--since={since} --until={until}: the period ends before it begins")
    return Filter(project, cells, settings or {}, metric, revision, begin, end, presets or ())


def side(connection: Connection, text: str, flag: str, wanted: Filter) -> Filter:
    """Return what one side of a comparison is: a period, a run by its name, or all runs of a revision.

    Raises:
        UsageError: it is none of them.
    """
    if ".." in text:
        since, until = _moments.parse_period(text, flag=flag)
        return replace(wanted, since=since, until=until)
    try:
        found = queries.run(connection, text, wanted.project)
    except UsageError:
        of_revision = replace(wanted, revision=text)
        if text and queries.runs(connection, of_revision, limit=1):
            return of_revision
        raise
    return replace(wanted, project=found.project, run=found.id)


def refuse_unknown_metric(connection: Connection, wanted: Filter) -> None:
    """Refuse a metric that nobody has measured.

    Raises:
        UsageError: the pattern matches none.
    """
    names = queries.metrics(connection, wanted.project)
    if wanted.metric is not None and not fnmatch.filter(names, wanted.metric):
        raise UsageError(f"--metric={wanted.metric}: {did_you_mean(wanted.metric, names, label='metrics')}")


def newest_units(series: Sequence[Series]) -> list[Series]:
    """Return the series without those whose metric has another unit by now."""
    newest: dict[tuple[str, str, str], Series] = {}
    for one in series:
        key = one.project, one.cell, one.metric
        if key not in newest or newest[key].runs[-1].started < one.runs[-1].started:
            newest[key] = one
    return list(newest.values())


def printed(
    found: Sequence[Row],
    columns: Sequence[str],
    format_: Format,
    *,
    store: str,
    remarks: Sequence[str] = (),
    summary: str = "",
) -> str | None:
    """Return rows for a program, or print them for a person.

    Args:
        remarks: what a person should know besides.
        summary: a line above the rows, of which there may be none then.
    """
    if format_ != "text":
        return rows.dump(found, columns, format_)
    with live_view.view(sys.stdout) as view:
        if summary:
            view.line(summary)
        if found or not summary:
            rows.show(found, columns, view.console, empty=_NOTHING.format(store=store))
        for remark in remarks:
            view.line(remark, style="dim")
    return None
