"""Reads from the store the test cases of the latest result of each cell that failed, or took longer than usual."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, select

from toolbox.ground.model.cases import FAIL_ON, CaseOutcome
from toolbox.records.results.records import CaseRow, ResultRow
from toolbox.records.results.tables import CASE_COUNTS, CASE_RESULTS, CASES

MOST: Final = 20  # failures of a cell, and test cases of a cell that became slower
EARLIER: Final = 10  # earlier results whose median is the usual time of a test case
SLOWER: Final = 1.5  # a test case that took longer than this many times its usual time became slower
SECONDS: Final = 1.0  # a smaller increase does not count
_FEWEST: Final = 3  # the number of earlier times that are needed to compute a usual time
_MAX_TIMED: Final = 500  # slowest test cases that are compared with their usual times
_FEW: Final = 500  # ids in one query


@dataclass(frozen=True, slots=True)
class LatestCases:
    """The test cases of the latest result of a cell.

    Args:
        counts: the number of test cases with each outcome.
        failures: the first test cases that failed, without their texts.
        slower: the test cases that passed and became slower, with their usual times in seconds, the largest increase
            first.
    """

    result: ResultRow
    counts: Mapping[CaseOutcome, int]
    failures: Sequence[CaseRow]
    slower: Sequence[tuple[CaseRow, float]]

    @property
    def more_failures(self) -> int:
        """The number of test cases that failed and are not in `failures`."""
        return max(0, sum(self.counts.get(outcome, 0) for outcome in FAIL_ON) - len(self.failures))


def read(connection: Connection, results: Iterable[Sequence[ResultRow]]) -> dict[str, LatestCases]:
    """Return the test cases of the latest results, by the id of the cell. Cells without test cases are omitted.

    Args:
        results: for each cell its results, the newest first.
    """
    of_cells = {rows[0].id: rows for rows in results if rows}
    counts: dict[int, dict[CaseOutcome, int]] = defaultdict(dict)
    ids = list(of_cells)
    for begin in range(0, len(ids), _FEW):
        some = CASE_COUNTS.c.result_id.in_(ids[begin : begin + _FEW])
        query = select(CASE_COUNTS).where(some).order_by(CASE_COUNTS.c.outcome)
        for row in connection.execute(query):
            counts[row.result_id][CaseOutcome(row.outcome)] = row.number
    return {of_cells[key][0].cell: _of_cell(connection, of_cells[key], counts[key]) for key in counts}


def _of_cell(connection: Connection, rows: Sequence[ResultRow], counts: Mapping[CaseOutcome, int]) -> LatestCases:
    latest = rows[0]
    failed = CASE_RESULTS.c.outcome.in_(FAIL_ON)
    failures = list(_cases(connection, latest, failed, CASE_RESULTS.c.outcome, CASE_RESULTS.c.case_id, limit=MOST))
    return LatestCases(latest, counts, [case for _, case in failures], _slower(connection, rows))


def _slower(connection: Connection, rows: Sequence[ResultRow]) -> list[tuple[CaseRow, float]]:
    passed = (CASE_RESULTS.c.outcome == CaseOutcome.PASSED) & (CASE_RESULTS.c.seconds > SECONDS)
    slowest = dict(_cases(connection, rows[0], passed, CASE_RESULTS.c.seconds.desc(), limit=_MAX_TIMED))
    earlier: dict[int, list[float]] = defaultdict(list)
    query = select(CASE_RESULTS.c.case_id, CASE_RESULTS.c.seconds).where(
        CASE_RESULTS.c.result_id.in_([row.id for row in rows[1 : EARLIER + 1]]),
        CASE_RESULTS.c.case_id.in_(slowest),
        CASE_RESULTS.c.outcome == CaseOutcome.PASSED,
        CASE_RESULTS.c.seconds.is_not(None),
    )
    for row in connection.execute(query):
        earlier[row.case_id].append(row.seconds)
    usual = {key: statistics.median(times) for key, times in earlier.items() if len(times) >= _FEWEST}
    slower = [
        (slowest[key], seconds)
        for key, seconds in usual.items()
        if (slowest[key].seconds or 0.0) > max(SLOWER * seconds, seconds + SECONDS)
    ]
    return sorted(slower, key=lambda pair: pair[1] - (pair[0].seconds or 0.0))[:MOST]


def _cases(
    connection: Connection, result: ResultRow, condition: Any, *order: Any, limit: int
) -> Iterator[tuple[int, CaseRow]]:
    """Yield the ids of test cases of a result, and the test cases."""
    query = select(
        CASE_RESULTS.c.case_id,
        CASES.c.suite,
        CASES.c.name,
        CASE_RESULTS.c.outcome,
        CASE_RESULTS.c.seconds,
        CASE_RESULTS.c.message,
    )
    query = query.join(CASES, CASES.c.id == CASE_RESULTS.c.case_id).where(
        CASE_RESULTS.c.result_id == result.id, condition
    )
    for row in connection.execute(query.order_by(*order).limit(limit)):
        yield row.case_id, CaseRow(result, row.suite, row.name, row.outcome, row.seconds, row.message, "")
