"""Query the results of many runs: lists, comparisons, bounds, changes, flakiness, cost, reports, a dashboard."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from toolbox.ground.interface import options
from toolbox.ground.interface.options import Cells
from toolbox.ground.interface.signature import Help
from toolbox.ground.model.bounds import Method
from toolbox.ground.model.errors import InfrastructureError, ToolboxError, UsageError, describe
from toolbox.ground.model.foreign_text import printable
from toolbox.ground.model.quantities import Count
from toolbox.ground.model.verdicts import ExitCode, Verdict
from toolbox.ground.system import places
from toolbox.orchestration import projects
from toolbox.records.exports import import_sources
from toolbox.records.results import (
    bounds_file,
    bounds_formulas,
    change_points,
    comparison,
    csv_series,
    earlier_results,
    flakiness,
    lost_metrics,
    observations,
    queries,
    recording,
    updated_bounds,
)
from toolbox.records.results.bounds_update import BoundsPolicy
from toolbox.records.results.cost import Group
from toolbox.records.results.flakiness import State
from toolbox.records.results.queries import Filter
from toolbox.records.results.recording import Recorded
from toolbox.records.results.store import Store
from toolbox.records.runs import layout, run_reader, summary
from toolbox.reports.forge import repository_files
from toolbox.reports.terminal import cost_rows, result_rows, stored_results
from toolbox.reports.terminal.stored_results import CellFlags, Database, PeriodFlags, Since, StoreFlags, WithPresets

log = logging.getLogger(__name__)

# Inside the class, the name `list` is the command, so the built-in type needs an alias.
Groups = list[Group]
Metric = Annotated[str | None, Help("a pattern for the names of metrics; all metrics when left out.")]
Revision = Annotated[
    str | None, Help("only the runs of this revision: the whole revision, its beginning, or a pattern.")
]
Tests = Annotated[
    bool | str,
    Help("list the test cases whose names SUITE.NAME match this pattern; without a value, all test cases."),
]
_SITE: Final = Path("dashboard")


class Results:
    """Query the results of many runs: lists, comparisons, bounds, changes, flakiness, cost, reports, a dashboard."""

    def list(
        self,
        *,
        select: CellFlags,
        metric: Metric = None,
        revision: Revision = None,
        period: PeriodFlags,
        limit: Count = 20,
        tests: Tests = False,
        output: StoreFlags,
    ) -> str | None:
        """
        List runs, the newest first. With --metric, --cells or --settings, list the values of metrics instead of runs.

        With --tests, list the results of test cases instead.

        Args:
            limit: the largest number of runs to list.
        """
        selection = stored_results.run_filter(select, period, metric=metric, revision=revision)
        with output.opened(selection) as (store, connection):
            runs = queries.runs(connection, selection, limit=limit + 1)
            remarks = [f"only the newest {limit} runs are listed (--limit)"] if len(runs) > limit else []
            if (pattern := stored_results.case_pattern(tests)) is not None:
                results = queries.results(connection, selection, runs[:limit])
                cases = result_rows.of_cases(queries.cases(connection, results, pattern))
                return output.render_cases(cases, result_rows.CASE_HISTORY, store.location)
            rows: Sequence[dict[str, Any]] = result_rows.of_runs(runs[:limit])
            columns: Sequence[str] = result_rows.RUNS
            if metric is not None or select.cells is not None or select.settings:
                rows = result_rows.of_values(queries.results(connection, selection, runs[:limit]))
                columns = result_rows.VALUES
            return output.render(rows, columns, store.location, remarks=remarks)

    def show(
        self,
        run: str = "latest",
        *,
        select: CellFlags,
        metric: Metric = None,
        tests: Tests = False,
        output: StoreFlags,
    ) -> str | None:
        """
        Show the results of the cells of a run, and which cells newly fail or newly pass since the run before it.

        With --tests, show their test cases: failures first, then the slowest.

        Args:
            run: the name of the run, or the beginning of its name; `latest` is the newest run.
        """
        selection = stored_results.run_filter(select, metric=metric)
        with output.opened(Filter(select.project)) as (store, connection):
            stored = queries.run(connection, run, select.project)
            results = queries.results(connection, selection, [stored])
            since = earlier_results.since_last_run(connection, stored.id)
            if (pattern := stored_results.case_pattern(tests)) is not None:
                cases = result_rows.of_cases(queries.cases(connection, results, pattern))
                result_rows.with_changes(cases, since.tests if since is not None else ())
                return output.render_cases(result_rows.worst_first(cases), result_rows.SHOWN_CASES, store.location)
            rows = result_rows.of_cells(results, queries.checks(connection, results))
            result_rows.with_changes(rows, since.cells if since is not None else ())
            lost = lost_metrics.of(connection, stored.id, earlier_results.comparable(connection, stored.id))
            result_rows.with_lost_metrics(rows, lost)
            ended = f"{stored.project} {stored.run}: {stored.verdict or stored.state}"
            has_failed = any(result.verdict != Verdict.PASSED for result in results)
            flaky = queries.flaky_cells(connection, stored.project, stored.started) if has_failed else set()
            common = [f"failed cells have in common: {text}" for text in observations.in_common(results, flaky=flaky)]
            news = [f"since {since.earlier}: {since.tally}"] if since is not None else []
            news += [f"{metric.name}: {metric}" for metric in lost[:10]]
            news += result_rows.unknown_metrics(results[0], lost) if len(results) == 1 else []
            remarks = [*news, *common, f"{ended}, at {stored.revision or 'an unknown revision'}, in {stored.directory}"]
            columns = result_rows.CELLS if output.format != "csv" else result_rows.with_metrics(rows)
            return output.render(rows, columns, store.location, remarks=remarks)

    def compare(
        self,
        before: str,
        after: str,
        *,
        select: CellFlags,
        metric: Metric = None,
        revision: Revision = None,
        presets: WithPresets = None,
        all: bool = False,  # noqa: A002
        output: StoreFlags,
    ) -> str | None:
        """
        Compare each metric of each cell between two runs, revisions or periods.

        Two runs are also compared by their verdicts: the cells and test cases that newly fail or newly pass are listed.
        Prints a summary, then the metrics that are worse, better, new, gone or not measured. A metric is `same` if a
        change of 5% can be excluded, and `unsure` if more runs are needed to tell.

        Args:
            before: the old runs: the name of a run, `latest` or `previous`, a revision, or a period such as
                2026-11-01..2026-11-07 or '20 days ago..now'.
            after: the new runs, written in the same way as --before.
            revision: compare only runs of this revision: the whole revision, its beginning, or a pattern. If --before
                or --after is itself a revision, this flag does not apply to it.
            all: also print the metrics that are the same or unsure. JSON and CSV always contain them.
        """
        selection = stored_results.run_filter(select, PeriodFlags(presets), metric=metric, revision=revision)
        with output.opened(selection) as (store, connection):
            old = stored_results.side_filter(connection, before, "before", selection)
            new = stored_results.side_filter(connection, after, "after", selection)
            failed = queries.failed_cells(connection, old), queries.failed_cells(connection, new)
            history = queries.series(connection, replace(selection, baseline=True))
            comparisons = comparison.compare(
                queries.series(connection, old), queries.series(connection, new), history, failed=failed
            )
            printed = [
                item for item in comparisons if all or output.format != "text" or item.change in comparison.MOVED
            ]
            summary = result_rows.summary_of_comparisons(comparisons) if comparisons else ""
            rows = result_rows.of_comparisons(printed)
            remarks = stored_results.verdict_remarks(connection, old, new) if output.format == "text" else []
            summary = summary or ("no metric was measured" if remarks else "")
            return output.render(rows, result_rows.COMPARISONS, store.location, remarks=remarks, summary=summary)

    def update_bounds(  # one parameter per flag
        self,
        project: str,
        *,
        period: PeriodFlags,
        confidence: float = bounds_formulas.CONFIDENCE,
        method: Literal[Method.PREDICTION, Method.TORCHPRIME, Method.RATIO] = Method.PREDICTION,
        cells: Cells = None,
        metric: Metric = None,
        revision: Revision = None,
        accept: str | None = None,
        reason: str | None = None,
        allow_wider: bool = False,
        dry_run: bool = False,
        output: StoreFlags,
    ) -> str | None:
        """
        Compute the bounds of a project's metrics from its accepted runs, and write them to config/bounds/PROJECT.yaml.

        Runs outside of the baseline, such as those of pull requests, are left out.

        If the level of a metric has changed, its bounds change only after a person accepts the new level with --accept.
        Values that were out of their bounds in two attempts of a cell are left out. The manual bounds of
        config/bounds/PROJECT.manual.yaml replace computed bounds, and are never changed by this command.

        Args:
            project: the name of the project.
            confidence: the probability that a value is within its bounds if nothing has changed: with 0.999, one value
                in 1,000 is measured again without need.
            method: the formula for the bounds: the prediction interval of the next run, the formula of torchprime, or
                the mean divided and multiplied by 1.2.
            accept: accept the changed levels of the metrics that match CELLS:METRICS, two patterns, as in
                'model=small,*:step_time'.
            reason: why the changed levels are accepted. The file records the reason, the user and the time.
            allow_wider: also write bounds that are more than 1.5 times as wide as the bounds in the file.
            dry_run: print what would change, and write nothing.
        """
        if not 0.5 < confidence < 1:  # noqa: PLR2004
            raise UsageError(f"--confidence must be above 0.5 and below 1, such as 0.999, not {confidence}")
        accepted = updated_bounds.acceptance(accept, reason)
        how = BoundsPolicy(method, confidence, allow_wider, accepted)
        files = bounds_file.load(projects.find(project).bounds)
        select = CellFlags(project, cells)
        selection = stored_results.run_filter(select, period, metric=metric, revision=revision, baseline=True)
        with output.opened(selection) as (store, connection):
            decisions, remarks = updated_bounds.update(connection, selection, files, how, dry_run=dry_run)
            rows = result_rows.of_decisions(decisions)
            remarks = [*result_rows.bounds_warnings(rows), *remarks]
            return output.render(rows, result_rows.BOUNDS, store.location, remarks=remarks)

    def changes(
        self,
        *,
        select: CellFlags,
        metric: Metric = None,
        period: PeriodFlags,
        csv: Path | None = None,
        column: str = "value",
        output: StoreFlags,
    ) -> str | None:
        """
        Find where the level of a metric shifted, by how much, and between which revisions.

        Runs outside of the baseline, such as those of pull requests, are left out.

        Args:
            since: only the shifts at this time or later, such as 2026-11-01 or '10 days ago'. Levels are always
                computed from all runs of the baseline.
            until: only the shifts at this time or earlier, such as 2026-11-07 (the end of this day) or '2 days ago'.
            csv: read numbers from this CSV file, or from each CSV file of this directory, instead of from the database.
            column: the name of the column that contains the numbers in the CSV file.
        """
        if csv is not None:
            if (select, period, metric, output.database) != (CellFlags(), PeriodFlags(), None, None):
                raise UsageError("results changes: with --csv, only --column and --format are allowed")
            return _changes_of_csv(csv, column, output)
        since, until = period.times()
        selection = stored_results.run_filter(select, PeriodFlags(period.presets), metric=metric, baseline=True)
        with output.opened(selection) as (store, connection):
            series = queries.series(connection, selection)
        rows = [
            row
            for row in result_rows.of_changes((item, change_points.detect(item.values)) for item in series)
            if (since is None or row["started"] >= since) and (until is None or row["started"] <= until)
        ]
        if output.format == "text" and not rows and series:
            return f"no level has shifted in {len(series)} series"
        return output.render(rows, result_rows.CHANGES, store.location)

    def flaky(
        self,
        *,
        select: CellFlags,
        period: PeriodFlags,
        output: StoreFlags,
    ) -> str | None:
        """
        Find cells that pass and fail with the same code, cells that always fail or became slower, and cells that need
        no quarantine any more.

        Runs outside of the baseline, such as those of pull requests, are left out.

        Args:
            format: the format of the output; with `text`, healthy cells are left out.
        """
        selection = stored_results.run_filter(select, period, baseline=True)
        with output.opened(selection) as (store, connection):
            results = queries.results(connection, selection, with_metrics=False)
            noise = queries.noise(connection, selection)
        rows = [
            row
            for name in sorted({result.run.project for result in results})
            for row in result_rows.of_flakiness(
                name,
                flakiness.assess(observations.of(result for result in results if result.run.project == name)),
                noise,
            )
        ]
        if output.format != "text":
            return output.render(rows, result_rows.FLAKY, store.location)
        unhealthy = [row for row in rows if row["state"] != State.HEALTHY or row["advice"] or row["noisy"]]
        unknown = len({(result.run.project, result.cell) for result in results}) - len(rows)
        remarks = []
        if healthy := len(rows) - len(unhealthy):
            remarks.append(f"{healthy} {'other cells' if unhealthy else 'cells'} are healthy")
        if unknown:
            remarks.append(f"the state of {unknown} cells is unknown: none of their runs has passed or failed")
        if results and not unhealthy:
            return "\n".join(remarks)
        return output.render(unhealthy, result_rows.FLAKY, store.location, remarks=remarks)

    def cost(
        self,
        *,
        select: CellFlags,
        by: Groups | None = None,
        period: PeriodFlags,
        output: StoreFlags,
    ) -> str | None:
        """
        Sum what runs have cost, and how much of it was for failures, retries and confirmations.

        The cost of an attempt is the time on its target, times the price of the target. With --by=month, each month is
        compared with the month before it, and the cost of the current month is forecast.

        Args:
            by: the columns by which the costs are grouped, as in month,target. The columns are day and month (in UTC,
                of the start of the run), project, target, cell and accelerator; day,project when left out.
        """
        selection = stored_results.run_filter(select, period)
        groups = list(dict.fromkeys(by or cost_rows.DEFAULT))
        with output.opened(selection) as (store, connection):
            spendings = queries.spendings(connection, selection, by_cell=Group.CELL in groups)
        rows = cost_rows.rows(spendings, groups, selection)
        remarks = cost_rows.remarks(spendings, selection)
        return output.render(rows, cost_rows.columns(groups), store.location, remarks=remarks)

    def report(
        self,
        run_dir: options.RunDir = None,
        *,
        kind: Literal["files", "html", "junit", "github", "comment", "annotations"] = "files",
    ) -> str | None:
        """
        Write the reports of a run again, from its journal.

        Args:
            kind: `files` writes report.html, junit.xml and the reports of the workspace into the directory of the run;
                `html` writes only report.html, and `junit` only junit.xml; `github` prints Markdown for
                $GITHUB_STEP_SUMMARY; `comment` prints a comment for a pull request; `annotations` prints commands that
                show the failures on the page of a workflow of GitHub.
        """
        directory = run_dir or layout.newest_run()
        try:
            return _report(directory, kind)
        except OSError as error:
            raise InfrastructureError(f"the reports in {directory} cannot be written: {describe(error)}") from error

    def dashboard(
        self,
        output: Path = _SITE,
        *,
        project: stored_results.Project = None,
        presets: WithPresets = None,
        since: Since = None,
        database: Database = None,
    ) -> str:
        """
        Write a static site of all projects: health, history, bounds, changes, flaky cells, cost.

        Args:
            output: the directory for the site. An earlier site in this directory is replaced.
        """
        from toolbox.reports.site import dashboard

        selection = stored_results.run_filter(CellFlags(project), PeriodFlags(presets, since))
        bounds = {name: bounds_file.read(projects.find(name).bounds) for name in places.projects()}
        with StoreFlags(database).opened(selection) as (_, connection):
            return str(dashboard.write(connection, output, selection, bounds=bounds))

    def merge(
        self,
        *run_dirs: str,
        artifact_dir: options.ArtifactDir = None,
        result: Literal["success", "failure", "cancelled", "skipped"] = "success",
        format: options.SummaryFormat = "text",  # noqa: A002
    ) -> int:
        """
        Merge the runs of shards (`project run --shard=1/3`) into one run. Its verdict determines the exit code.

        Of several runs of a shard, the latest one counts. A shard without a run, or whose run has not ended, makes the
        verdict an error. An earlier merge of the same shards is replaced.

        Args:
            run_dirs: the directories of the runs of the shards, or directories that contain them.
            artifact_dir: the directory that gets the merged run, in PROJECT/RUN. When left out: $ARTIFACT_DIR, else
                artifacts/.
            result: the result of the jobs that ran the shards. If it is not success although no run failed, the verdict
                is an error.
        """
        from toolbox.reports.terminal import shard_merges  # pydantic is slow to import

        return shard_merges.merge(run_dirs, artifact_dir or places.artifacts(), result, as_json=format == "json")

    def import_(self, *run_dirs: str, directory: Path | None = None, database: Database = None) -> int:
        """
        Record runs in the database of results, from their journals. Runs that the database already has are replaced.

        Args:
            run_dirs: the directories of the runs, or directories or URLs of exports, such as s3://BUCKET/FOLDER. A URL
                may name all exported runs, those of one project (s3://BUCKET/FOLDER/PROJECT), or one run.
            directory: the directory in which exported runs are kept after the import, in PROJECT/RUN. When left out,
                they are deleted, and the dashboard cannot link to their reports.
            database: the database to write to, a file or a URL. When left out: the field `results.database` of the
                project of each run, else $TOPGALLANT_RESULTS_DATABASE, else
                ~/.local/state/topgallant/results.sqlite.
        """
        faulty_runs = 0
        with ExitStack() as stack:
            stores: dict[str, Store] = {}
            for source in import_sources.sources(run_dirs, directory):
                try:
                    with source() as run_directory, _damage_as_usage_error(run_directory):
                        run = run_reader.read(run_directory)
                        if run.damage:
                            log.warning("%s: %s", run_directory, run.damage_warning)
                        if run.contradiction:
                            log.warning("%s is an error: %s", run_directory, run.contradiction)
                        location = stored_results.location(database, run.project)
                        if location not in stores:
                            stores[location] = stack.enter_context(Store(location))
                        recorded = recording.record(stores[location], run_directory)
                        print(printable(_import_message(recorded, stores[location])))
                except UsageError as error:
                    faulty_runs += 1
                    log.error("%s", printable(str(error)))  # noqa: TRY400  # a faulty run must not prevent other imports
        return ExitCode.USAGE if faulty_runs else ExitCode.PASSED


def _report(directory: Path, kind: str) -> str | None:
    from toolbox import reports
    from toolbox.reports import junit, run_page
    from toolbox.reports.forge import github, workflow_annotations

    run = summary.write(directory)
    match kind:
        case "annotations":  # printed here, because `invocation.invoke` makes such commands harmless
            for line in workflow_annotations.lines(run, repository_files.of_run(run)):
                print(line)
            return None
        case "github":
            return github.step_summary(run)
        case "comment":
            return github.comment(run)
        case "files":
            return "\n".join(reports.write_all(run))
    return str(run_page.write(run) if kind == "html" else junit.write(run))


@contextmanager
def _damage_as_usage_error(run_directory: Path) -> Iterator[None]:
    """Raise a `UsageError` in place of the errors that a damaged run causes: code under test may have written it."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, ToolboxError):
            raise
        raise UsageError(f"{run_directory} is damaged: {describe(error)}") from error


def _import_message(recorded: Recorded, store: Store) -> str:
    run = f"{recorded.run} of {recorded.project}"
    if recorded.merged_into:
        return f"{run}: not imported, because {store.location} has the merged run {recorded.merged_into}"
    if recorded.is_outdated:
        return f"{run}: not imported, because {store.location} has a later state of this run"
    action = "recorded" if recorded.is_new else "recorded again"
    return f"{run}: {action}, {recorded.cells} cells, {recorded.samples} values, in {store.location}"


def _changes_of_csv(path: Path, column: str, output: StoreFlags) -> str | None:
    series = {name: change_points.detect_between_gaps(values) for name, values in csv_series.read(path, column).items()}
    rows_by_series = {name: result_rows.of_numbers(detected) for name, detected in series.items()}
    if output.format == "json":
        content = {name: {"changes": rows} for name, rows in rows_by_series.items()}
        return json.dumps({"series": content} if path.is_dir() else next(iter(content.values())), indent=2)
    flat = [{"series": name, **row} for name, rows in rows_by_series.items() for row in rows]
    if output.format == "text" and not flat:
        return f"no level has shifted in {len(series)} series"
    return output.render(flat, result_rows.NUMBERS, str(path))
