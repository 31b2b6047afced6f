"""Writes the test cases of a run into the store, for `recording.py`.

A test case whose name contains an address, an identifier or a temporary path has another name in each run. When a cell
has too many test cases, the test cases that have been missing from runs for the longest time are removed. The counts of
their runs stay. Test cases that have ever failed, and all test cases of the latest run, stay too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Table, delete, func, select

from toolbox.ground.model.cases import CaseOutcome, CaseResult
from toolbox.records.results.tables import CASE_COUNTS, CASE_RESULTS, CASES
from toolbox.records.runs import step_cases
from toolbox.records.runs.run_state import RunState, StepState
from toolbox.records.runs.step_cases import StepCases

log = logging.getLogger(__name__)

MAX_NAMES: Final = 100_000  # different test cases of a cell
_SPARE: Final = 10  # one in this number of test cases is removed in addition, so that not every run removes test cases
_FEW: Final = 500  # ids in one statement
_HARMLESS: Final = (CaseOutcome.PASSED, CaseOutcome.SKIPPED)
_MAX_TEXTS: Final = 100  # test cases of a result whose whole text is stored
_Key = tuple[int, str, str]  # the id of the row of the cell, the suite and the name
Insert = Callable[[Table, Sequence[Mapping[str, Any]]], None]


def write(
    connection: Connection,
    insert: Insert,
    run: RunState,
    results: Mapping[str, tuple[int, int]],
    fit: Callable[[str], str],
) -> None:
    """Write the test cases of all steps of a run.

    Args:
        insert: inserts rows into a table.
        results: the ids of the rows of the result and the cell of each step, by the directory of the step.
        fit: returns a text without characters that databases do not accept.
    """
    for step in run.steps.values():
        if step.step in results and (cases := _cases(run.directory, step, run)) is not None:
            result_id, cell_id = results[step.step]
            counts = [{"result_id": result_id, "outcome": each, "number": cases.counts[each]} for each in cases.counts]
            insert(CASE_COUNTS, [row for row in counts if row["number"]])
            keyed = {(cell_id, fit(case.suite), fit(case.name)): case for case in cases.cases}
            ids = _ids(connection, insert, cell_id, keyed)
            insert(CASE_RESULTS, list(_rows(result_id, ids, keyed)))
            if len(ids) > MAX_NAMES:
                _remove_oldest(connection, step.name, cell_id, len(ids) - MAX_NAMES, {ids[key] for key in keyed})


def _cases(directory: Path, step: StepState, run: RunState) -> StepCases | None:
    return step_cases.read(directory, step, run.secrets_left)


def _rows(result_id: int, ids: Mapping[_Key, int], keyed: Mapping[_Key, CaseResult]) -> Iterator[dict[str, Any]]:
    texts = 0
    for key, case in keyed.items():
        texts += bool(case.text)
        yield {
            "result_id": result_id,
            "case_id": ids[key],
            "outcome": case.outcome,
            "seconds": case.seconds,
            "message": case.message,
            "text": case.text if texts <= _MAX_TEXTS else "",
        }


def _ids(connection: Connection, insert: Insert, cell_id: int, keyed: Mapping[_Key, CaseResult]) -> dict[_Key, int]:
    """Return the ids of the rows of the test cases of a cell. Insert missing test cases."""
    query = select(CASES).where(CASES.c.cell_id == cell_id)
    stored = {(row.cell_id, row.suite, row.name): row.id for row in connection.execute(query)}
    missing = [key for key in keyed if key not in stored]
    if not missing:
        return stored
    insert(CASES, [{"cell_id": cell, "suite": suite, "name": name} for cell, suite, name in missing])
    return {(row.cell_id, row.suite, row.name): row.id for row in connection.execute(query)}


def _remove_oldest(connection: Connection, name: str, cell_id: int, excess: int, latest: Collection[int]) -> None:
    """Remove test cases of a cell that never failed, and their results. The oldest test cases are removed first.

    Args:
        name: the name of the cell, for a warning.
        excess: how many test cases are too many.
        latest: the ids of the rows of the test cases of the latest run, which stay.
    """
    failures = func.count().filter(CASE_RESULTS.c.outcome.not_in(_HARMLESS))
    query = select(CASES.c.id).outerjoin(CASE_RESULTS, CASE_RESULTS.c.case_id == CASES.c.id)
    query = query.where(CASES.c.cell_id == cell_id).group_by(CASES.c.id).having(failures == 0)
    query = query.order_by(func.max(CASE_RESULTS.c.result_id).nulls_first())
    oldest = [identity for identity in connection.scalars(query) if identity not in latest]
    removed = oldest[: excess + MAX_NAMES // _SPARE]
    for begin in range(0, len(removed), _FEW):
        some = removed[begin : begin + _FEW]
        connection.execute(delete(CASE_RESULTS).where(CASE_RESULTS.c.case_id.in_(some)))
        connection.execute(delete(CASES).where(CASES.c.id.in_(some)))
    if removed:
        log.warning(
            "%s has more than %s different test cases: the store forgets %s that no run has for the longest time and "
            "that never failed. Do their names contain random parts, such as addresses or temporary paths?",
            name,
            MAX_NAMES,
            len(removed),
        )
