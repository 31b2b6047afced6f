"""Compares a run with the latest earlier result of each of its cells in the store.

The earlier result of a cell is its result in the newest comparable run that executed the cell. The earlier run can
differ from cell to cell, because a run may have executed only some of the cells. An earlier run is comparable if

- it began before the run, so that the comparison of an old run stays the same;
- it is part of the baseline, so that a pull request is compared with the main branch, not with other pull requests;
- it had the same presets, because a preset may change what a cell does without changing its axes.

Aborted and imported runs are comparable: a cell that ended in such a run has a verdict. Cells that were skipped, were
cancelled or reused a result were not executed.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy import ColumnElement, Connection, Integer, column, or_, select, values

from toolbox.ground.model.cases import FAIL_ON
from toolbox.ground.model.events import StepKind
from toolbox.ground.model.verdicts import UNEXPECTED, Verdict
from toolbox.records.results.since_last_run import (
    Kind,
    SinceLastRun,
    VerdictChange,
    change_of_cell,
    change_of_test,
    is_known_failure,
)
from toolbox.records.results.tables import CASE_COUNTS, CASE_RESULTS, CASES, CELLS, RESULTS, RUNS

_EXECUTED: Final = UNEXPECTED | {Verdict.PASSED, Verdict.XFAILED}
_MAX_RUNS: Final = 1000  # the number of comparable runs that are searched for earlier results
_BATCHES: Final = (1, 20, 100)  # the sizes of the batches of runs that are searched; the last size is repeated
_FEW: Final = 400  # ids, or pairs of ids, in one query
_Item = TypeVar("_Item")


class EarlierRun(NamedTuple):
    """An earlier run in the store."""

    id: int
    run: str
    started: datetime


class _CellResult(NamedTuple):
    """The result of an executed cell."""

    id: int
    cell_id: int
    run_id: int
    verdict: str
    cause: str | None


def since_last_run(connection: Connection, row: int, planned: Collection[str] | None = None) -> SinceLastRun | None:
    """Compare a run with the latest earlier results of its cells; None if there are no earlier results.

    Args:
        row: the id of the row of the run.
        planned: the ids of all cells of the matrix, to count the cells that are gone; None if the ids are unknown.
    """
    return _compared(connection, row, comparable(connection, row), planned)


def comparable(connection: Connection, row: int) -> list[EarlierRun]:
    """Return the comparable runs before a run, the newest first; at most `_MAX_RUNS`.

    Args:
        row: the id of the row of the run.
    """
    run = connection.execute(select(RUNS).where(RUNS.c.id == row)).one()
    return list(itertools.islice(_comparable(connection, run), _MAX_RUNS))


def between(connection: Connection, before: EarlierRun, after: int) -> SinceLastRun | None:
    """Compare two runs; None if they have no cell in common, and the earlier run has no cells.

    Args:
        after: the id of the row of the later run.
    """
    query = select(CELLS.c.cell).join(RESULTS, RESULTS.c.cell_id == CELLS.c.id)
    cells = set(connection.scalars(query.where(RESULTS.c.run_id == after, RESULTS.c.kind == StepKind.CELL)))
    return _compared(connection, after, [before], cells)


def _compared(
    connection: Connection, row: int, runs: Sequence[EarlierRun], planned: Collection[str] | None
) -> SinceLastRun | None:
    now = {result.cell_id: result for result in _results(connection, RESULTS.c.run_id == row)}
    before = _latest(connection, now, row, runs)
    by_id = {run.id: run for run in runs}
    gone = _gone(connection, runs[0].id, planned) if runs and planned is not None else None
    if not before and not gone:
        return None
    used = sorted({result.run_id for result in before.values()}, key=lambda id_: by_id[id_].started)
    latest = by_id[used[-1]] if used else runs[0]
    names = _names(connection, now)
    return SinceLastRun.of(
        _cell_changes(now, before, names, by_id),
        _test_changes(connection, now, before, names, by_id),
        latest.run,
        latest.started,
        has_more_runs=len(used) > 1,
        compared=len(before),
        new=len(now) - len(before),
        gone=gone,
    )


def _comparable(connection: Connection, run: Any) -> Iterator[EarlierRun]:
    """Yield the comparable runs before a run, the newest first."""
    query = select(RUNS.c.id, RUNS.c.run, RUNS.c.started, RUNS.c.presets)
    is_earlier = or_(RUNS.c.started < run.started, (RUNS.c.started == run.started) & (RUNS.c.id < run.id))
    query = query.where(RUNS.c.project == run.project, RUNS.c.baseline.is_(True), is_earlier)
    for row in connection.execute(query.order_by(RUNS.c.started.desc(), RUNS.c.id.desc())):
        if set(row.presets) == set(run.presets):
            yield EarlierRun(row.id, row.run, row.started)


def _results(connection: Connection, *conditions: ColumnElement[bool]) -> Iterator[_CellResult]:
    """Yield the results of cells that were executed and have a verdict."""
    query = select(RESULTS.c.id, RESULTS.c.cell_id, RESULTS.c.run_id, RESULTS.c.verdict, RESULTS.c.cause)
    is_executed = RESULTS.c.verdict.in_(_EXECUTED) & (RESULTS.c.reused_from == "")
    for row in connection.execute(query.where(RESULTS.c.kind == StepKind.CELL, is_executed, *conditions)):
        yield _CellResult(row.id, row.cell_id, row.run_id, str(row.verdict), row.cause)


def _latest(
    connection: Connection, now: Collection[int], row: int, runs: Sequence[EarlierRun]
) -> dict[int, _CellResult]:
    """Return the result of each cell in the first run of `runs` that executed the cell, by the id of the cell's row."""
    order = {run.id: index for index, run in enumerate(runs)}
    missing = set(_with_other_results(connection, now, row))
    latest: dict[int, _CellResult] = {}
    for batch in _batches([run.id for run in runs]):
        if not missing:
            break
        for some in _chunks(sorted(missing)):
            for result in _results(connection, RESULTS.c.run_id.in_(batch), RESULTS.c.cell_id.in_(some)):
                known = latest.get(result.cell_id)
                if known is None or order[result.run_id] < order[known.run_id]:
                    latest[result.cell_id] = result
        missing -= latest.keys()
    return latest


def _with_other_results(connection: Connection, cells: Collection[int], row: int) -> Iterator[int]:
    """Yield the cells that have results in other runs. New cells need not be searched."""
    other = select(RESULTS.c.id).where(RESULTS.c.cell_id == CELLS.c.id, RESULTS.c.run_id != row).exists()
    for some in _chunks(sorted(cells)):
        yield from connection.scalars(select(CELLS.c.id).where(CELLS.c.id.in_(some), other))


def _gone(connection: Connection, row: int, planned: Collection[str]) -> int:
    """Return the number of cells of a run that are no longer planned."""
    query = select(CELLS.c.cell).join(RESULTS, RESULTS.c.cell_id == CELLS.c.id)
    cells = connection.scalars(query.where(RESULTS.c.run_id == row, RESULTS.c.kind == StepKind.CELL))
    return len(set(cells) - set(planned))


def _names(connection: Connection, cells: Iterable[int]) -> dict[int, tuple[str, str]]:
    """Return the id and the name of each cell, by the id of its row."""
    names = {}
    for some in _chunks(sorted(cells)):
        for row in connection.execute(select(CELLS.c.id, CELLS.c.cell, CELLS.c.name).where(CELLS.c.id.in_(some))):
            names[row.id] = (row.cell, row.name)
    return names


def _cell_changes(
    now: Mapping[int, _CellResult],
    before: Mapping[int, _CellResult],
    names: Mapping[int, tuple[str, str]],
    runs: Mapping[int, EarlierRun],
) -> Iterator[VerdictChange]:
    for cell, old in before.items():
        new = now[cell]
        results = (old.verdict, old.cause), (new.verdict, new.cause)
        kind = Kind.KNOWN_FAILURE if is_known_failure(*results) else change_of_cell(*results)
        if kind is not None:
            yield VerdictChange(
                kind,
                *names[cell],
                before=old.verdict,
                after=new.verdict,
                run=runs[old.run_id].run,
                before_cause=old.cause or "",
                cause=new.cause or "",
            )


def _test_changes(
    connection: Connection,
    now: Mapping[int, _CellResult],
    before: Mapping[int, _CellResult],
    names: Mapping[int, tuple[str, str]],
    runs: Mapping[int, EarlierRun],
) -> Iterator[VerdictChange]:
    """Yield the changes of test cases that both results of a cell have, and those that fail in both."""
    failing = _with_failures(connection, [each.id for cell in before for each in (now[cell], before[cell])])
    pairs = [(now[cell], old) for cell, old in before.items() if failing & {now[cell].id, old.id}]
    earlier = {old.cell_id: runs[old.run_id].run for _, old in pairs}
    for row in _outcomes(connection, [(new.id, old.id) for new, old in pairs]):
        is_known = row.before in FAIL_ON and row.after in FAIL_ON
        kind = Kind.KNOWN_FAILURE if is_known else change_of_test(row.before, row.after)
        if kind is not None:
            yield VerdictChange(
                kind,
                *names[row.cell_id],
                before=row.before,
                after=row.after,
                run=earlier[row.cell_id],
                test=f"{row.suite}.{row.name}" if row.suite else row.name,
                message=row.message,
            )


def _with_failures(connection: Connection, results: Iterable[int]) -> set[int]:
    """Return the results that have failed test cases."""
    failing: set[int] = set()
    for some in _chunks(sorted(results)):
        has_failed = CASE_COUNTS.c.result_id.in_(some) & CASE_COUNTS.c.outcome.in_(FAIL_ON) & (CASE_COUNTS.c.number > 0)
        failing |= set(connection.scalars(select(CASE_COUNTS.c.result_id).where(has_failed)))
    return failing


def _outcomes(connection: Connection, results: Sequence[tuple[int, int]]) -> Iterator[Any]:
    """Yield the test cases that two results of a cell have, if the outcome in one of them is a failure.

    Args:
        results: the ids of the later and the earlier result of each cell.
    """
    later, earlier = CASE_RESULTS.alias(), CASE_RESULTS.alias()
    for some in _chunks(results):
        # The database joins the pairs one by one. With two lists of ids, it would search one list for each test case.
        pairs = values(column("later", Integer), column("earlier", Integer), name="pairs").data(list(some)).cte()
        columns = (CASES.c.cell_id, CASES.c.suite, CASES.c.name, later.c.message)
        query = select(*columns, earlier.c.outcome.label("before"), later.c.outcome.label("after")).select_from(pairs)
        query = query.join(later, later.c.result_id == pairs.c.later)
        query = query.join(earlier, (earlier.c.result_id == pairs.c.earlier) & (earlier.c.case_id == later.c.case_id))
        query = query.join(CASES, CASES.c.id == later.c.case_id)
        yield from connection.execute(query.where(or_(later.c.outcome.in_(FAIL_ON), earlier.c.outcome.in_(FAIL_ON))))


def _chunks(ids: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    for begin in range(0, len(ids), _FEW):
        yield ids[begin : begin + _FEW]


def _batches(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    begin = 0
    for size in itertools.chain(_BATCHES, itertools.repeat(_BATCHES[-1])):
        if begin >= len(ids):
            return
        yield ids[begin : begin + size]
        begin += size
