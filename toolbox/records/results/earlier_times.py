"""Reads from the store how long the attempts of each cell took on each target, to tell what the next run will take."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import Connection, func, select

from toolbox.ground.model.verdicts import Verdict
from toolbox.records.results.records import EarlierTime
from toolbox.records.results.tables import ATTEMPTS, CELLS, RESULTS, RUNS

_LATELY: Final = timedelta(days=90)
_MAX_RUNS: Final = 20
# A cell with an error was interrupted, or did not get a machine, so its time says nothing about the next run.
_TELLING: Final = (Verdict.PASSED, Verdict.FAILED, Verdict.XFAILED, Verdict.XPASSED)


def read(connection: Connection, project: str, *, now: datetime) -> Mapping[tuple[str, str], EarlierTime]:
    """Return the times of the cells of a project in their latest 20 runs, of the last 90 days.

    Returns:
        The times, by the id of the cell and the name of the target.
    """
    seconds = func.coalesce(ATTEMPTS.c.charged_seconds, ATTEMPTS.c.seconds)
    query = (
        select(CELLS.c.cell, ATTEMPTS.c.target, func.sum(seconds), func.count(), func.count(seconds))
        .select_from(ATTEMPTS)
        .join(RESULTS, RESULTS.c.id == ATTEMPTS.c.result_id)
        .join(CELLS, CELLS.c.id == RESULTS.c.cell_id)
        .join(RUNS, RUNS.c.id == RESULTS.c.run_id)
        .where(RUNS.c.project == project, RUNS.c.started >= now - _LATELY, RESULTS.c.verdict.in_(_TELLING))
        .group_by(RESULTS.c.id, CELLS.c.cell, ATTEMPTS.c.target, RUNS.c.started)
        .order_by(RUNS.c.started.desc())
    )
    times: dict[tuple[str, str], list[float]] = {}
    for cell, target, total, attempts, timed in connection.execute(query):
        of_cell = times.setdefault((cell, target), [])
        if attempts == timed and len(of_cell) < _MAX_RUNS:
            of_cell.append(total)
    return {key: EarlierTime(statistics.fmean(each), len(each)) for key, each in times.items() if each}
