"""Reads runs, results and series from the store, filtered by project, cell, settings, metric, revision and time."""

from __future__ import annotations

import fnmatch
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, case, func, or_, select

from toolbox.ground.model import patterns
from toolbox.ground.model.bounds import Direction
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.verdicts import Verdict
from toolbox.records.results import observations
from toolbox.records.results.charges import Purpose
from toolbox.records.results.cost import Kind
from toolbox.records.results.flakiness import Flakiness
from toolbox.records.results.records import AttemptRow, CaseRow, MetricValue, ResultRow, RunRow, Spending
from toolbox.records.results.series import RunReference, Series
from toolbox.records.results.tables import (
    ATTEMPTS,
    CASE_COUNTS,
    CASE_RESULTS,
    CASES,
    CELLS,
    CHECKS,
    RESULTS,
    RUNS,
    SAMPLES,
    SERIES,
)

_PASSED: Final = (Verdict.PASSED, Verdict.XPASSED)
_GOOD: Final = tuple(verdict for verdict in Verdict if verdict.is_pass)
_RECENT: Final = ("latest", "previous")
_SOME: Final = 3  # number of runs that an error message names
_LATELY: Final = timedelta(days=90)
_FEW: Final = 500  # maximum number of ids that a query lists
_RUN_COLUMNS: Final = tuple(column.name for column in fields(RunRow) if column.name in RUNS.columns)
_RESULT_COLUMNS: Final = tuple(column.name for column in fields(ResultRow) if column.name in RESULTS.columns)
_ATTEMPT_COLUMNS: Final = tuple(column.name for column in fields(AttemptRow))


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter for runs, cells and metrics. A field that is not set selects everything.

    Args:
        cells: a pattern for the names or ids of cells.
        settings: the values of settings, or their labels, by axis.
        metric: a pattern for the names of metrics.
        revision: a pattern for revisions, or a prefix of revisions.
        since: the earliest start of runs.
        until: the latest start of runs.
        presets: presets; a run must have used all of them.
        run: the id of the row of one run.
        baseline: whether to select only runs of the baseline.
    """

    project: str | None = None
    cells: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    metric: str | None = None
    revision: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    presets: Sequence[str] = ()
    run: int | None = None
    baseline: bool = False


def runs(
    connection: Connection, where: Filter, *conditions: ColumnElement[bool], limit: int | None = None
) -> list[RunRow]:
    """Return the runs that also meet the further conditions, newest first."""
    query = select(RUNS).where(*_of_runs(where), *conditions).order_by(RUNS.c.started.desc(), RUNS.c.id.desc())
    if limit is not None and not (where.revision or where.presets):
        query = query.limit(limit)
    rows = list(islice((row for row in connection.execute(query) if _matches(row, where)), limit))
    counts: dict[int, dict[str, int]] = defaultdict(dict)
    unpriced: dict[int, int] = defaultdict(int)
    costs: dict[int, float] = {}
    ended = select(
        RESULTS.c.run_id,
        RESULTS.c.verdict,
        func.count().label("number"),
        func.sum(RESULTS.c.cost).label("cost"),
        func.count(RESULTS.c.cost).label("priced"),
    )
    ended = ended.where(RESULTS.c.kind == "cell").group_by(RESULTS.c.run_id, RESULTS.c.verdict)
    for group in _batched(connection, ended, RESULTS.c.run_id, [row.id for row in rows]):
        counts[group.run_id][group.verdict or "not ended"] = group.number
        unpriced[group.run_id] += group.number - group.priced
        if group.cost is not None:
            costs[group.run_id] = costs.get(group.run_id, 0.0) + group.cost
    return [
        RunRow(
            **{name: getattr(row, name) for name in _RUN_COLUMNS},
            cells=counts.get(row.id, {}),
            cost=costs.get(row.id),
            unpriced=unpriced.get(row.id, 0),
        )
        for row in rows
    ]


def projects(connection: Connection) -> list[str]:
    """Return the names of the projects that have runs."""
    return list(connection.scalars(select(RUNS.c.project).distinct().order_by(RUNS.c.project)))


def metrics(connection: Connection, project: str | None = None) -> list[str]:
    """Return the names of the metrics that were measured, sorted."""
    query = select(SERIES.c.metric).join(CELLS, CELLS.c.id == SERIES.c.cell_id).distinct().order_by(SERIES.c.metric)
    return list(connection.scalars(query.where(CELLS.c.project == project) if project is not None else query))


def run(connection: Connection, name: str, project: str | None = None) -> RunRow:
    """Return the run with a name or a unique prefix of a name; `latest` and `previous` are the last two runs.

    Raises:
        UsageError: no run has this name or prefix, or several runs have this prefix.
    """
    of_project = Filter(project=project)
    if name in _RECENT:
        index = _RECENT.index(name)
        latest = runs(connection, of_project, limit=index + 1)
        if len(latest) > index:
            return latest[index]
    begins = func.substr(RUNS.c.run, 1, len(name)) == name
    rows = runs(connection, of_project, RUNS.c.run == name, limit=_SOME + 1)
    rows = rows or runs(connection, of_project, begins, limit=_SOME + 1)
    if not rows:
        newest = ", ".join(row.run for row in runs(connection, of_project, limit=_SOME))
        hint = f"; the newest runs are {newest}" if newest else ""
        raise UsageError(f"the store has no run `{name}`{hint}")
    if len(rows) > 1:
        some = ", ".join(f"{row.run} of {row.project}" for row in rows[:_SOME])
        count = str(len(rows)) if len(rows) <= _SOME else f"more than {_SOME}"
        raise UsageError(f"`{name}` matches {count} runs: {some}...: use a longer prefix, or --project")
    return rows[0]


def results(
    connection: Connection, where: Filter, among: Sequence[RunRow] | None = None, *, with_metrics: bool = True
) -> list[ResultRow]:
    """Return the results of cells, run by run, newest run first.

    Args:
        among: the runs that the filter selects, if the caller has already read them.
    """
    rows = runs(connection, where) if among is None else among
    by_id = {row.id: row for row in rows}
    cells = _cells(connection, where, by_id)
    selected = [row for row in _batched(connection, select(RESULTS), RESULTS.c.run_id, by_id) if row.cell_id in cells]
    attempts = _attempts(connection, by_id)
    metrics = _metrics(connection, where, by_id) if with_metrics else {}
    tests = _case_counts(connection, by_id) if with_metrics else {}
    order = {row.id: index for index, row in enumerate(rows)}
    return [
        ResultRow(
            **{name: getattr(row, name) for name in _RESULT_COLUMNS},
            run=by_id[row.run_id],
            cell=cells[row.cell_id].cell,
            name=cells[row.cell_id].name,
            labels=cells[row.cell_id].labels,
            attempts=attempts.get(row.id, ()),
            metrics=metrics.get((row.run_id, row.cell_id), {}),
            tests=tests.get(row.id, {}),
        )
        for row in sorted(selected, key=lambda row: (order[row.run_id], row.id))
    ]


def spendings(connection: Connection, where: Filter, *, by_cell: bool = False) -> list[Spending]:
    """Return what the attempts of runs have cost.

    Args:
        by_cell: whether each cell has items of its own. Otherwise the cells of a run have items in common.
    """
    by_id = {row.id: row for row in _selected_runs(connection, where)}
    cells = _cells(connection, where, by_id)
    is_narrow = bool(where.cells is not None or where.settings)
    columns: list[Any] = [RESULTS.c.run_id, ATTEMPTS.c.target, ATTEMPTS.c.accelerator]
    columns += [RESULTS.c.cell_id] if by_cell or is_narrow else []
    query = select(
        *columns,
        _kind().label("kind_of_attempt"),
        func.count().label("attempts"),
        func.count(ATTEMPTS.c.cost).label("priced"),
        func.sum(func.coalesce(ATTEMPTS.c.charged_seconds, ATTEMPTS.c.seconds)).label("seconds"),
        func.sum(ATTEMPTS.c.cost).label("cost"),
    )
    query = query.select_from(ATTEMPTS).join(RESULTS, RESULTS.c.id == ATTEMPTS.c.result_id)
    query = query.group_by(*columns, "kind_of_attempt")
    return [
        Spending(
            run=row.run_id,
            started=by_id[row.run_id].started,
            project=by_id[row.run_id].project,
            currency=by_id[row.run_id].currency,
            target=row.target,
            accelerator=row.accelerator,
            cell=cells[row.cell_id].name if by_cell else "",
            kind=row.kind_of_attempt,
            attempts=row.attempts,
            unpriced=row.attempts - row.priced,
            seconds=row.seconds or 0.0,
            cost=row.cost,
        )
        for row in _batched(connection, query, RESULTS.c.run_id, by_id)
        if not is_narrow or row.cell_id in cells
    ]


def _kind() -> ColumnElement[str]:
    """Return the expression for the kind of an attempt, a value of `cost.Kind`."""
    is_good = or_(ATTEMPTS.c.verdict.in_(_GOOD), RESULTS.c.verdict == Verdict.XFAILED)
    return case(
        (ATTEMPTS.c.purpose == Purpose.CONFIRMATION, Kind.CONFIRMATION),
        (ATTEMPTS.c.purpose == Purpose.RETRY, Kind.RETRY),
        (is_good, Kind.PLANNED),
        else_=Kind.FAILURE,
    )


def reusable(
    connection: Connection, project: str, revision: str, keys: Iterable[str], since: datetime
) -> dict[str, RunRow]:
    """Return the newest run of a project that tested a revision, and passed a cell with each of these keys.

    Args:
        since: the earliest start of the runs.
    """
    query = select(RESULTS.c.reuse_key, RESULTS.c.run_id).join(RUNS, RUNS.c.id == RESULTS.c.run_id)
    query = query.where(RUNS.c.project == project, RUNS.c.revision == revision, RUNS.c.started >= since)
    query = query.where(RESULTS.c.verdict == Verdict.PASSED).order_by(RUNS.c.started)
    newest: dict[str, int] = {}
    listed = sorted(set(keys))
    for begin in range(0, len(listed), _FEW):
        rows = connection.execute(query.where(RESULTS.c.reuse_key.in_(listed[begin : begin + _FEW])))
        newest |= {row.reuse_key: row.run_id for row in rows}
    by_id = {row.id: row for row in runs(connection, Filter(project, since=since), RUNS.c.id.in_(set(newest.values())))}
    return {key: by_id[run_id] for key, run_id in newest.items() if run_id in by_id}


def flaky_cells(connection: Connection, project: str, until: datetime) -> set[str]:
    """Return the ids of the cells that were flaky in the baseline in the 90 days before `until`."""
    return {cell.cell for cell in flakiness_of(connection, project, until)}


def flakiness_of(connection: Connection, project: str, until: datetime) -> list[Flakiness]:
    """Return the flakiness of the cells that were flaky in the baseline in the 90 days before `until`."""
    lately = Filter(project=project, since=until - _LATELY, until=until, baseline=True)
    return observations.flaky(results(connection, lately, with_metrics=False))


def series(connection: Connection, where: Filter) -> list[Series]:
    """Return the series that have accepted values, sorted by project, cell and metric."""
    in_order = sorted(_selected_runs(connection, where), key=lambda row: (row.started, row.id))
    references = [
        RunReference(row.run, row.started, row.revision, row.directory, frozenset(row.presets)) for row in in_order
    ]
    index_of = {row.id: index for index, row in enumerate(in_order)}
    cells = _cells(connection, where)
    named = {
        row.id: row
        for row in connection.execute(select(SERIES))
        if row.cell_id in cells and (where.metric is None or fnmatch.fnmatchcase(row.metric, where.metric))
    }
    all_series = []
    for identity, values, indices, confirmed in _values(connection, named, index_of):
        row, cell = named[identity], cells[named[identity].cell_id]
        direction = Direction(row.direction) if row.direction else None
        all_series.append(
            Series(
                cell.project,
                cell.cell,
                cell.name,
                cell.settings,
                row.metric,
                row.unit,
                direction,
                tuple(references[index] for index in indices),
                values,
                confirmed,
            )
        )
    return sorted(all_series, key=lambda each: (each.project, each.name, each.cell, each.metric, each.unit))


def failed_cells(connection: Connection, where: Filter) -> set[tuple[str, str]]:
    """Return the projects and ids of the cells that have results in the selected runs but passed in none of them."""
    run_ids = [run.id for run in _selected_runs(connection, where)]
    ended = select(CELLS.c.project, CELLS.c.cell, RESULTS.c.verdict).join(CELLS, CELLS.c.id == RESULTS.c.cell_id)
    passed: dict[tuple[str, str], bool] = {}
    for project, cell, verdict in _batched(connection, ended, RESULTS.c.run_id, run_ids):
        passed[project, cell] = passed.get((project, cell), False) or verdict in _PASSED
    return {cell for cell, has_passed in passed.items() if not has_passed}


def noise(connection: Connection, where: Filter) -> dict[tuple[str, str], tuple[int, int]]:
    """Return the number of noisy values and the number of all values of each metric, by cell id and metric.

    A noisy value was out of its range in one attempt but not in the other. Metrics without noisy values are omitted.
    """
    run_ids = [run.id for run in _selected_runs(connection, where)]
    cells = _cells(connection, where)
    counted = select(SERIES.c.cell_id, SERIES.c.metric, func.sum(case((SAMPLES.c.noisy, 1), else_=0)), func.count())
    counted = counted.join(SERIES, SERIES.c.id == SAMPLES.c.series_id).group_by(SERIES.c.cell_id, SERIES.c.metric)
    counted = counted.select_from(SAMPLES).where(SAMPLES.c.accepted)
    counts_of: dict[tuple[str, str], tuple[int, int]] = {}
    for cell_id, metric, noisy, values in _batched(connection, counted, SAMPLES.c.run_id, run_ids):
        if cell_id in cells:
            key = cells[cell_id].cell, metric
            earlier = counts_of.get(key, (0, 0))
            counts_of[key] = earlier[0] + noisy, earlier[1] + values
    return {key: counts for key, counts in counts_of.items() if counts[0]}


def checks(connection: Connection, results_: Sequence[ResultRow]) -> dict[tuple[int, str], list[dict[str, Any]]]:
    """Return the outcomes of the checks of results, by the id of the row of the run and the id of the cell."""
    query = select(
        RESULTS.c.run_id, CELLS.c.cell, CHECKS.c.check, CHECKS.c.passed, CHECKS.c.message, CHECKS.c.file, CHECKS.c.line
    )
    query = (
        query.select_from(CHECKS)
        .join(RESULTS, RESULTS.c.id == CHECKS.c.result_id)
        .join(CELLS, CELLS.c.id == RESULTS.c.cell_id)
    )
    query = query.order_by(CHECKS.c.result_id, CHECKS.c.position)
    by_result: dict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
    for run_id, cell, *row in _batched(connection, query, RESULTS.c.run_id, {row.run.id for row in results_}):
        by_result[run_id, cell].append(dict(zip(("check", "passed", "message", "file", "line"), row, strict=True)))
    return by_result


def cases(connection: Connection, results_: Sequence[ResultRow], pattern: str) -> Iterator[CaseRow]:
    """Yield the test cases of results whose titles match a pattern, result by result, in the order of the files.

    Args:
        pattern: a pattern for `SUITE.NAME`.
    """
    by_key = {(row.run.id, row.cell): row for row in results_}
    title = CASES.c.suite + "." + CASES.c.name
    columns = (RESULTS.c.run_id, CELLS.c.cell, CASES.c.suite, CASES.c.name)
    query = select(
        *columns, CASE_RESULTS.c.outcome, CASE_RESULTS.c.seconds, CASE_RESULTS.c.message, CASE_RESULTS.c.text
    )
    query = query.select_from(CASE_RESULTS).join(RESULTS, RESULTS.c.id == CASE_RESULTS.c.result_id)
    query = query.join(CASES, CASES.c.id == CASE_RESULTS.c.case_id).join(CELLS, CELLS.c.id == RESULTS.c.cell_id)
    query = query.order_by(RESULTS.c.run_id.desc(), CASE_RESULTS.c.result_id, CASE_RESULTS.c.case_id)
    if not any(character in pattern for character in "*?["):
        query = query.where((title == pattern) | (CASES.c.name == pattern))
    for row in _batched(connection, query, RESULTS.c.run_id, dict.fromkeys(row.run.id for row in results_)):
        result = by_key.get((row.run_id, row.cell))
        if result is not None:
            case = CaseRow(result, row.suite, row.name, row.outcome, row.seconds, row.message, row.text)
            if patterns.covers(pattern, case.title, case.name):
                yield case


def _values(
    connection: Connection, named: Collection[int], index_of: Mapping[int, int]
) -> Iterator[tuple[int, Any, Any, tuple[int, ...]]]:
    """Yield the id of each series, its accepted values in order of runs, and the indices of runs and confirmed values.

    Args:
        named: the ids of the series.
        index_of: the index of each run, by its id.
    """
    query = select(SAMPLES.c.series_id, SAMPLES.c.run_id, SAMPLES.c.value, SAMPLES.c.confirmed)
    query = query.where(SAMPLES.c.accepted, SAMPLES.c.value.is_not(None))
    if len(index_of) < len(named):  # read the values of a few runs, not of the whole history
        rows = [row for row in _batched(connection, query, SAMPLES.c.run_id, index_of) if row.series_id in named]
    else:
        rows = list(_batched(connection, query, SAMPLES.c.series_id, named))
    if not rows:
        return
    import numpy as np  # slow to import, and needed only for histories

    identities, run_ids, values, confirmed = (np.array(column) for column in zip(*rows, strict=True))
    index_array = np.full(int(run_ids.max()) + 1, -1, dtype=np.int64)
    for run_id, index in index_of.items():
        if run_id < len(index_array):
            index_array[run_id] = index
    indices = index_array[run_ids]
    order = np.lexsort((indices, identities))
    order = order[indices[order] >= 0]
    identities, indices, values, confirmed = identities[order], indices[order], values[order], confirmed[order]
    if not len(identities):
        return
    distinct, starts = np.unique(identities, return_index=True)
    for identity, begin, end in zip(distinct.tolist(), starts, [*starts[1:], len(identities)], strict=True):
        failed = tuple(np.flatnonzero(confirmed[begin:end]).tolist())
        yield identity, values[begin:end].copy(), indices[begin:end].tolist(), failed


def _selected_runs(connection: Connection, where: Filter) -> list[Any]:
    query = select(
        RUNS.c.id,
        RUNS.c.project,
        RUNS.c.run,
        RUNS.c.started,
        RUNS.c.revision,
        RUNS.c.directory,
        RUNS.c.presets,
        RUNS.c.currency,
    )
    query = query.where(*_of_runs(where))
    return [row for row in connection.execute(query) if _matches(row, where)]


def _of_runs(where: Filter) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if where.run is not None:
        conditions.append(RUNS.c.id == where.run)
    if where.baseline:
        conditions.append(RUNS.c.baseline.is_(True))
    if where.project is not None:
        conditions.append(RUNS.c.project == where.project)
    if where.since is not None:
        conditions.append(RUNS.c.started >= where.since)
    if where.until is not None:
        conditions.append(RUNS.c.started <= where.until)
    return conditions


def _matches(row: Any, where: Filter) -> bool:
    revision, pattern = row.revision or "", where.revision
    if pattern is not None and not (
        fnmatch.fnmatchcase(revision, pattern) or (revision and revision.startswith(pattern))
    ):
        return False
    return set(where.presets) <= set(row.presets)


def _batched(
    connection: Connection, query: Select[*tuple[Any, ...]], column: Any, identities: Iterable[int]
) -> Iterator[Any]:
    """Yield the rows of a query whose column contains one of the ids. Databases limit the length of a list of ids."""
    listed = list(identities)
    for begin in range(0, len(listed), _FEW):
        yield from connection.execute(query.where(column.in_(listed[begin : begin + _FEW])))


def _cells(connection: Connection, where: Filter, runs_: Collection[int] | None = None) -> dict[int, Any]:
    """Return the rows of matching cells, by id. If `runs_` are few, cells without results in these runs are omitted."""
    query = select(CELLS)
    if where.project is not None:
        query = query.where(CELLS.c.project == where.project)
    if runs_ is not None and len(runs_) <= _FEW:
        query = query.where(CELLS.c.id.in_(select(RESULTS.c.cell_id).where(RESULTS.c.run_id.in_(runs_))))
    cells = [row for row in connection.execute(query) if _has_settings(row, where)]
    if where.cells is not None:
        cells = patterns.matching(where.cells, cells, lambda row: (row.name, row.cell))
    return {row.id: row for row in cells}


def _has_settings(cell: Any, where: Filter) -> bool:
    return all(
        axis in cell.settings and (cell.settings[axis] == value or cell.labels.get(axis) == str(value))
        for axis, value in where.settings.items()
    )


def _attempts(connection: Connection, runs_: Collection[int]) -> dict[int, list[AttemptRow]]:
    query = (
        select(ATTEMPTS)
        .join(RESULTS, RESULTS.c.id == ATTEMPTS.c.result_id)
        .order_by(ATTEMPTS.c.result_id, ATTEMPTS.c.attempt)
    )
    by_result: dict[int, list[AttemptRow]] = defaultdict(list)
    for row in _batched(connection, query, RESULTS.c.run_id, runs_):
        by_result[row.result_id].append(AttemptRow(**{name: getattr(row, name) for name in _ATTEMPT_COLUMNS}))
    return by_result


def _case_counts(connection: Connection, runs_: Collection[int]) -> dict[int, dict[str, int]]:
    """Return the number of test cases with each outcome, by the id of the row of the result."""
    query = select(CASE_COUNTS).join(RESULTS, RESULTS.c.id == CASE_COUNTS.c.result_id)
    by_result: dict[int, dict[str, int]] = defaultdict(dict)
    for row in _batched(connection, query, RESULTS.c.run_id, runs_):
        by_result[row.result_id][row.outcome] = row.number
    return by_result


def _metrics(
    connection: Connection, where: Filter, runs_: Collection[int]
) -> dict[tuple[int, int], dict[str, MetricValue]]:
    """Return the metrics of each result, by the ids of the rows of the run and of the cell."""
    query = select(SAMPLES.c.run_id, SERIES.c.cell_id, SERIES.c.metric, SERIES.c.unit, SAMPLES.c.value, SAMPLES.c.fault)
    query = query.join(SERIES, SERIES.c.id == SAMPLES.c.series_id).order_by(SERIES.c.id)
    by_result: dict[tuple[int, int], dict[str, MetricValue]] = defaultdict(dict)
    for row in _batched(connection, query, SAMPLES.c.run_id, runs_):
        if where.metric is None or fnmatch.fnmatchcase(row.metric, where.metric):
            by_result[row.run_id, row.cell_id][row.metric] = MetricValue(row.value, row.unit, row.fault)
    return by_result
