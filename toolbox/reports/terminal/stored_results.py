"""What the commands of `results` share: the flags that open the store, select its contents and print rows."""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any, Final

from sqlalchemy import Connection

from toolbox.ground.interface import options
from toolbox.ground.interface.options import Cells
from toolbox.ground.interface.signature import FlagGroup, Help
from toolbox.ground.model import moments
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.nearest import did_you_mean
from toolbox.ground.model.text import first_of
from toolbox.ground.system import places
from toolbox.orchestration import request, storing
from toolbox.orchestration.request import RunRequest
from toolbox.records.results import earlier_results, queries
from toolbox.records.results.earlier_results import EarlierRun
from toolbox.records.results.queries import Filter
from toolbox.records.results.store import Store
from toolbox.reports.terminal import live_view, rows
from toolbox.reports.terminal.rows import Row

_MAX_CASES: Final = 100  # rows of test cases in a table
_MAX_CHANGES: Final = 20  # cells and test cases whose verdict changed

Database = Annotated[
    str | None,
    Help(
        "the database to read, a file or a URL. When left out: the field `results.database` of --project, else "
        "$TOPGALLANT_RESULTS_DATABASE, else ~/.local/state/topgallant/results.sqlite."
    ),
]
Project = Annotated[str | None, Help("only the runs of this project.")]
Since = Annotated[
    str | None,
    Help("only the runs since this time, such as 2026-11-01, '2026-11-01 02:00 Europe/Berlin' or '10 days ago'."),
]
WithPresets = Annotated[list[str] | None, Help("only the runs with all of these presets.")]


@dataclass(frozen=True, slots=True)
class CellFlags(FlagGroup):
    """The flags that select cells.

    Args:
        settings: only the cells with these axis values, as in '{model: small}'.
    """

    project: Project = None
    cells: Cells = None
    settings: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class PeriodFlags(FlagGroup):
    """The flags that select runs by their presets and their times.

    Args:
        until: only the runs until this time, such as 2026-11-07 (the end of this day) or '2 days ago'.
    """

    presets: WithPresets = None
    since: Since = None
    until: str | None = None

    def times(self) -> tuple[datetime | None, datetime | None]:
        """Return the beginning and the end of the period, as far as the flags name them.

        Raises:
            UsageError: --since or --until is not a time, or the period ends before it begins.
        """
        begin = moments.parse(self.since, flag="since") if self.since is not None else None
        end = moments.parse(self.until, flag="until", is_end=True) if self.until is not None else None
        if begin is not None and end is not None and begin > end:
            raise UsageError(f"--since={self.since} --until={self.until}: the period ends before it begins")
        return begin, end


@dataclass(frozen=True, slots=True)
class StoreFlags(FlagGroup):
    """The flags that name the store to read, and the format of the output."""

    database: Database = None
    format: options.Format[rows.Format] = "text"

    @contextmanager
    def opened(self, selection: Filter) -> Iterator[tuple[Store, Connection]]:
        """Yield the store, and a connection that reads the store.

        Raises:
            UsageError: the database does not exist, the store has no run of the project that the filter names, or the
                filter has a pattern for metrics that matches no metric in the store.
        """
        project, metric = selection.project, selection.metric
        with (
            Store(location(self.database, project), may_create=self.database is None) as store,
            store.reading() as connection,
        ):
            if project is not None and project not in (projects := queries.projects(connection)):
                hint = did_you_mean(project, projects, label="projects")
                raise UsageError(f"the store {location} has no run of the project `{project}`: {hint}")
            if metric is not None and not fnmatch.filter(names := queries.metrics(connection, project), metric):
                hint = did_you_mean(metric, names, label="metrics")
                raise UsageError(f"no metric matches --metric={metric}; {hint}")
            yield store, connection

    def render(
        self,
        results: Sequence[Row],
        columns: Sequence[str],
        location: str,
        *,
        remarks: Sequence[str] = (),
        summary: str = "",
    ) -> str | None:
        """Print rows as a table, or return their text in a format for programs.

        Args:
            location: where the rows come from, for the message that there are none.
            remarks: lines below the table.
            summary: a line above the table. With a summary, an empty table is not printed.
        """
        if self.format != "text":
            return rows.dump(results, columns, self.format)
        with live_view.view(sys.stdout) as view:
            if summary:
                view.line(summary)
            if results or not summary:
                rows.show(results, columns, view.console, empty=f"the store {location} has no matching results")
            for remark in remarks:
                view.line(remark, style="dim")
        return None

    def render_cases(self, cases: Sequence[Row], columns: Sequence[str], location: str) -> str | None:
        """Print rows of test cases. As text, only the first rows are printed; JSON and CSV contain all."""
        if self.format != "text" or len(cases) <= _MAX_CASES:
            return self.render(cases, columns, location)
        remark = f"{_MAX_CASES} of {len(cases)} test cases are listed: --tests=PATTERN selects, --format=json lists all"
        return self.render(cases[:_MAX_CASES], columns, location, remarks=[remark])


def run_filter(
    cells: CellFlags | None = None,
    period: PeriodFlags | None = None,
    *,
    metric: str | None = None,
    revision: str | None = None,
    baseline: bool = False,
) -> Filter:
    """Return the filter that the flags of a command describe.

    Raises:
        UsageError: --since or --until is not a time, or the period ends before it begins.
    """
    cells, period = cells or CellFlags(), period or PeriodFlags()
    settings, presets = cells.settings or {}, period.presets or ()
    return Filter(cells.project, cells.cells, settings, metric, revision, *period.times(), presets, baseline=baseline)


def location(database: str | None, project: str | None) -> str:
    """Return the file or URL of the store: `database`, or else the store of the project, or else that of this user."""
    if database is not None:
        return database
    if project is not None and project in places.projects():
        return storing.location(request.configure(RunRequest(project))[1])
    return storing.default_location()


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
    return [f"since {compared.earlier}: {compared.tally}", *first_of(lines, _MAX_CHANGES)]


def case_pattern(tests: bool | str) -> str | None:
    """Return the pattern of the test cases that `--tests` or `--tests=PATTERN` selects; None without the flag."""
    if tests in {False, "False"}:
        return None
    return "*" if tests in {True, "True"} else str(tests)
