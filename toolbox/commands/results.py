"""Query the results of many runs: lists, comparisons, bounds, changes, flakiness, cost, reports, a dashboard."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from toolbox.commands import _bounds_update, _results
from toolbox.interface import options
from toolbox.interface.options import Cells
from toolbox.interface.signature import Help
from toolbox.model.bounds import Method
from toolbox.model.errors import UsageError
from toolbox.model.foreign_text import printable
from toolbox.model.quantities import Count
from toolbox.model.verdicts import ExitCode, Verdict
from toolbox.orchestration import projects
from toolbox.reports.terminal import result_rows
from toolbox.reports.terminal.rows import Format as RowFormat
from toolbox.results import (
    bounds_file,
    bounds_formulas,
    changes,
    comparison,
    cost,
    csv_series,
    flakiness,
    observations,
    queries,
    recording,
)
from toolbox.results.bounds_update import Update
from toolbox.results.cost import Period
from toolbox.results.flakiness import State
from toolbox.results.recording import Recorded
from toolbox.results.store import Store
from toolbox.runs import run_state, summary
from toolbox.system import places

log = logging.getLogger(__name__)

Format = options.Format[RowFormat]
Database = Annotated[
    str | None,
    Help("the store of results, a file or a URL; that of the project, or of this user, when left out."),
]
Metric = Annotated[str | None, Help("a pattern for the names of metrics; all metrics when left out.")]
Project = Annotated[str | None, Help("only the runs of this project.")]
Revision = Annotated[str | None, Help("only the runs of this revision: all of it, its beginning, or a pattern.")]
Settings = Annotated[dict[str, Any] | None, Help("only the cells with these values of axes, as in '{model: small}'.")]
Since = Annotated[
    str | None,
    Help("only the runs since this time, such as 2026-11-01, '2026-11-01 02:00 Europe/Berlin' or '10 days ago'."),
]
Until = Annotated[
    str | None,
    Help("only the runs until this time, such as 2026-11-07 (with all of the day) or '2 days ago'."),
]
WithPresets = Annotated[list[str] | None, Help("only the runs with all of these presets.")]
_SITE: Final = Path("dashboard")


class Results:
    """Query the results of many runs: lists, comparisons, bounds, changes, flakiness, cost, reports, a dashboard."""

    def list(
        self,
        *,
        project: Project = None,
        cells: Cells = None,
        settings: Settings = None,
        metric: Metric = None,
        revision: Revision = None,
        presets: WithPresets = None,
        since: Since = None,
        until: Until = None,
        limit: Count = 20,
        database: Database = None,
        format: Format = "text",  # noqa: A002  # the words of the command line
    ) -> str | None:
        """
        List runs, the newest first. With a metric, cells or settings, list the values that the runs measured.

        Args:
            limit: the largest number of runs to list.
        """
        wanted = _results.wanted(
            project=project,
            cells=cells,
            settings=settings,
            metric=metric,
            revision=revision,
            presets=presets,
            since=since,
            until=until,
        )
        with _results.opened(database, project) as (store, connection):
            _results.refuse_unknown_metric(connection, wanted)
            found = queries.runs(connection, wanted, limit=limit + 1)
            remarks = [f"these are the newest {limit} (--limit)"] if len(found) > limit else []
            rows: Sequence[dict[str, Any]] = result_rows.of_runs(found[:limit])
            columns: Sequence[str] = result_rows.RUNS
            if metric is not None or cells is not None or settings:
                rows = result_rows.of_values(queries.results(connection, wanted, found[:limit]))
                columns = result_rows.VALUES
            return _results.printed(rows, columns, format, store=store.location, remarks=remarks)

    def show(
        self,
        run: str = "latest",
        *,
        project: Project = None,
        cells: Cells = None,
        settings: Settings = None,
        metric: Metric = None,
        database: Database = None,
        format: Format = "text",  # noqa: A002
    ) -> str | None:
        """
        Show the results of the cells of a run.

        Args:
            run: the name of the run, or the beginning of its name; `latest` is the newest run.
        """
        wanted = _results.wanted(project=project, cells=cells, settings=settings, metric=metric)
        with _results.opened(database, project) as (store, connection):
            found = queries.run(connection, run, project)
            of_run = queries.results(connection, wanted, [found])
            results = result_rows.of_cells(of_run, queries.checks(connection, of_run))
            ended = f"{found.project} {found.run}: {found.verdict or found.state}"
            has_failed = any(one.verdict != Verdict.PASSED for one in of_run)
            flaky = queries.flaky_cells(connection, found.project, found.started) if has_failed else set()
            common = [f"what failed has in common: {one}" for one in observations.in_common(of_run, flaky=flaky)]
            remarks = [*common, f"{ended}, at {found.revision or 'an unknown revision'}, in {found.directory}"]
            columns = result_rows.CELLS if format != "csv" else result_rows.with_metrics(results)
            return _results.printed(results, columns, format, store=store.location, remarks=remarks)

    def compare(
        self,
        before: str,
        after: str,
        *,
        project: Project = None,
        cells: Cells = None,
        settings: Settings = None,
        metric: Metric = None,
        revision: Revision = None,
        presets: WithPresets = None,
        all: bool = False,  # noqa: A002
        database: Database = None,
        format: Format = "text",  # noqa: A002
    ) -> str | None:
        """
        Compare each metric of each cell between two runs, revisions or periods.

        Prints a summary, then the metrics that are worse, better, new, gone or not measured. A metric is `same` if a
        change of 5% can be excluded, and `unsure` if more runs are needed to tell.

        Args:
            before: the runs to compare with: a run, `latest` or `previous`, a revision, or a period such as
                2026-11-01..2026-11-07 or '20 days ago..now'.
            after: the runs to compare with --before: a run, a revision or a period.
            revision: only the runs of this revision in the periods: all of it, its beginning, or a pattern.
            all: also print the metrics that are the same or unsure. JSON and CSV always contain them.
        """
        wanted = _results.wanted(
            project=project, cells=cells, settings=settings, metric=metric, revision=revision, presets=presets
        )
        with _results.opened(database, project) as (store, connection):
            _results.refuse_unknown_metric(connection, wanted)
            sides = [
                _results.side(connection, text, flag, wanted) for text, flag in ((before, "before"), (after, "after"))
            ]
            first, second = (queries.series(connection, one) for one in sides)
            failed = queries.failed_cells(connection, sides[0]), queries.failed_cells(connection, sides[1])
            history = queries.series(connection, wanted)
            found = comparison.compare(first, second, history, failed=failed)
            some = [one for one in found if all or format != "text" or one.change in comparison.MOVED]
            summary = result_rows.summary_of_comparisons(found) if found else ""
            rows = result_rows.of_comparisons(some)
            return _results.printed(rows, result_rows.COMPARISONS, format, store=store.location, summary=summary)

    def update_bounds(  # noqa: PLR0913  # one parameter per flag
        self,
        project: str,
        *,
        since: Since = None,
        until: Until = None,
        confidence: float = bounds_formulas.CONFIDENCE,
        method: Method = Method.PREDICTION,
        cells: Cells = None,
        metric: Metric = None,
        revision: Revision = None,
        presets: WithPresets = None,
        accept: str | None = None,
        reason: str | None = None,
        allow_wider: bool = False,
        dry_run: bool = False,
        database: Database = None,
        format: Format = "text",  # noqa: A002
    ) -> str | None:
        """
        Compute the bounds of a project's metrics from its accepted runs, and write them to config/bounds/PROJECT.yaml.

        A level that changed is adopted only after a person accepts it. Values that failed their cells and were
        confirmed do not count. Bounds in config/bounds/PROJECT.manual.yaml are written by people: they win, and stay
        unchanged.

        Args:
            project: the name of the project.
            confidence: the probability that an unchanged run is within the bounds: 0.999 means one false alarm in
                1,000.
            method: the formula that computes the bounds; docs/bounds.md describes each.
            accept: accept the changed levels of the metrics that match two patterns, for the cell and for the metric,
                as in 'model=small,*:step_time'.
            reason: why the changed level is accepted. The file keeps the reason, the user and the time.
            allow_wider: also write bounds that are more than 1.5 times as wide as the bounds in the file.
            dry_run: print what would change, and write nothing.
        """
        if method is Method.MANUAL or not 0.5 < confidence < 1:  # noqa: PLR2004  # less than half is no confidence
            raise UsageError(
                f"--method={method} --confidence={confidence}: a method other than manual was expected, and a "
                "confidence above 0.5 and below 1, such as 0.999"
            )
        accepted = _bounds_update.acceptance(accept, reason)
        how = Update(method, confidence, allow_wider, accepted)
        files = bounds_file.load(projects.find(project).bounds)
        wanted = _results.wanted(
            project=project, cells=cells, metric=metric, revision=revision, presets=presets, since=since, until=until
        )
        with _results.opened(database, project) as (store, connection):
            _results.refuse_unknown_metric(connection, wanted)
            outcome = _bounds_update.update(connection, wanted, files, how, dry_run=dry_run)
            return _results.printed(
                outcome.rows, result_rows.BOUNDS, format, store=store.location, remarks=outcome.remarks
            )

    def changes(
        self,
        *,
        project: Project = None,
        cells: Cells = None,
        settings: Settings = None,
        metric: Metric = None,
        since: Since = None,
        until: Until = None,
        csv: Path | None = None,
        column: str = "value",
        presets: WithPresets = None,
        database: Database = None,
        format: Format = "text",  # noqa: A002
    ) -> str | None:
        """
        Find where the level of a metric shifted, by how much, and between which revisions.

        Args:
            since: only the shifts at this time or later, such as 2026-11-01 or '10 days ago'. The levels are computed
                from all runs.
            csv: read numbers from this CSV file, or from each CSV file of this directory, instead of from the store.
            column: the column of the CSV file that has the numbers.
        """
        if csv is not None:
            if any(flag is not None for flag in (project, cells, settings, metric, since, until, presets, database)):
                raise UsageError("results changes: --csv can be used only with --column and --format")
            return _changes_of_csv(csv, column, format)
        wanted = _results.wanted(since=since, until=until)
        with _results.opened(database, project) as (store, connection):
            every = _results.wanted(project=project, cells=cells, settings=settings, metric=metric, presets=presets)
            _results.refuse_unknown_metric(connection, every)
            series = queries.series(connection, every)
        found = [
            row
            for row in result_rows.of_changes((one, changes.detect(one.values)) for one in series)
            if (wanted.since is None or row["started"] >= wanted.since)
            and (wanted.until is None or row["started"] <= wanted.until)
        ]
        if format == "text" and not found and series:
            return f"no level has shifted in {len(series)} series"
        return _results.printed(found, result_rows.CHANGES, format, store=store.location)

    def flaky(
        self,
        *,
        project: Project = None,
        cells: Cells = None,
        settings: Settings = None,
        since: Since = None,
        until: Until = None,
        presets: WithPresets = None,
        database: Database = None,
        format: Format = "text",  # noqa: A002
    ) -> str | None:
        """
        Find the cells that pass and fail under the same code, always fail, became slower, or may leave their
        quarantine.

        Args:
            format: the format of the output; text leaves out the healthy cells.
        """
        wanted = _results.wanted(
            project=project, cells=cells, settings=settings, since=since, until=until, presets=presets
        )
        with _results.opened(database, project) as (store, connection):
            results = queries.results(connection, wanted, with_metrics=False)
            noise = queries.noise(connection, wanted)
        found = [
            row
            for name in sorted({result.run.project for result in results})
            for row in result_rows.of_flakiness(
                name, flakiness.assess(observations.of(one for one in results if one.run.project == name)), noise
            )
        ]
        if format != "text":
            return _results.printed(found, result_rows.FLAKY, format, store=store.location)
        bad = [row for row in found if row["state"] != State.HEALTHY or row["advice"] or row["noisy"]]
        unknown = len({(result.run.project, result.cell) for result in results}) - len(found)
        remarks = [
            *(
                [f"{len(found) - len(bad)} {'other cells' if bad else 'cells'} are healthy"]
                if len(bad) < len(found)
                else []
            ),
            *([f"{unknown} are unknown: none of their runs has passed or failed"] if unknown else []),
        ]
        if results and not bad:
            return "\n".join(remarks)
        return _results.printed(bad, result_rows.FLAKY, format, store=store.location, remarks=remarks)

    def cost(
        self,
        *,
        project: Project = None,
        by: Period = Period.DAY,
        since: Since = None,
        until: Until = None,
        presets: WithPresets = None,
        database: Database = None,
        format: Format = "text",  # noqa: A002
    ) -> str | None:
        """
        Sum up the cost of runs, from the time of their attempts and the `cost_per_hour` of their targets.

        Args:
            by: the period to sum over, in UTC.
        """
        wanted = _results.wanted(project=project, since=since, until=until, presets=presets)
        with _results.opened(database, project) as (store, connection):
            found = cost.summed(queries.runs(connection, wanted), by)
        return _results.printed(result_rows.of_costs(found), result_rows.COSTS, format, store=store.location)

    def report(self, run_dir: Path, *, kind: Literal["files", "html", "junit", "github", "comment"] = "files") -> str:
        """
        Write the reports of a run again, from its journal.

        Args:
            run_dir: the directory of the run.
            kind: `files` writes report.html, junit.xml and the reports of the workspace into the directory of the run;
                `html` and `junit` write only one of them; `github` prints Markdown for $GITHUB_STEP_SUMMARY; `comment`
                prints a comment for a pull request.
        """
        from toolbox import reports
        from toolbox.reports import junit, run_page
        from toolbox.reports.forge import github

        found = summary.write(run_dir)
        match kind:
            case "github":
                return github.step_summary(found)
            case "comment":
                return github.comment(found)
            case "files":
                return "\n".join(reports.write_all(found))
        return str(run_page.write(found) if kind == "html" else junit.write(found))

    def dashboard(
        self,
        output: Path = _SITE,
        *,
        project: Project = None,
        presets: WithPresets = None,
        since: Since = None,
        database: Database = None,
    ) -> str:
        """
        Write a static site of all projects: health, history, bounds, changes, flaky cells, cost.

        Args:
            output: the directory of the site. A site that was written there earlier is replaced.
        """
        from toolbox.reports.site import dashboard

        begin = _results.wanted(since=since).since
        known = {name: bounds_file.read(projects.find(name).bounds) for name in places.projects()}
        with _results.opened(database, project) as (_, connection):
            index = dashboard.write(
                connection, output, since=begin, bounds=known, project=project, presets=presets or ()
            )
        return str(index)

    def import_(self, *run_dirs: Path, database: Database = None) -> int:
        """
        Record runs in the store, from their journals. A run that is recorded already is recorded again, and counts
        once.

        Args:
            run_dirs: the directories of the runs.
            database: the store of results, a file or a URL; that of the project of each run, or of this user, when left
                out.
        """
        faults = 0
        with ExitStack() as stack:
            stores: dict[str, Store] = {}
            for directory in run_dirs:
                try:
                    found = run_state.read(directory)
                    if found.damage:
                        log.warning("%s: %s", directory, found.damage_warning)
                    where = _results.location(database, found.project)
                    if where not in stores:
                        stores[where] = stack.enter_context(Store(where))
                    print(printable(_said(recording.record(stores[where], directory), stores[where])))
                except UsageError as error:
                    faults += 1
                    log.error("%s", error)  # noqa: TRY400  # the others are recorded all the same
        return ExitCode.USAGE if faults else ExitCode.PASSED


def _said(done: Recorded, store: Store) -> str:
    if done.is_outdated:
        return f"{done.run} of {done.project}: not imported, because {store.location} has a later state of this run"
    word = "recorded" if done.is_new else "recorded anew"
    return f"{done.run} of {done.project}: {word}, {done.cells} cells, {done.samples} values, in {store.location}"


def _changes_of_csv(path: Path, column: str, format_: Format) -> str | None:
    series = {name: changes.detect(values) for name, values in csv_series.read(path, column).items()}
    found = {name: result_rows.of_numbers(detected) for name, detected in series.items()}
    if format_ == "json":
        every = {name: {"changes": rows} for name, rows in found.items()}
        return json.dumps({"series": every} if path.is_dir() else next(iter(every.values())), indent=2)
    flat = [{"series": name, **row} for name, rows in found.items() for row in rows]
    if format_ == "text" and not flat:
        return f"no level has shifted in {len(series)} series"
    return _results.printed(flat, result_rows.NUMBERS, format_, store=str(path))
