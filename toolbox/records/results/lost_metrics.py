"""Finds the metrics that had values in the baseline and are unknown in a cell that passed.

Such a cell is no longer judged by the metric, and bounds and comparisons say nothing about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, select

from toolbox.ground.model.verdicts import Verdict
from toolbox.records.results.earlier_results import EarlierRun
from toolbox.records.results.flaky_and_moved import LostMetric
from toolbox.records.results.tables import CELLS, RESULTS, RUNS, SAMPLES, SERIES

_MAX_RUNS: Final = 60  # latest runs of the baseline in which values are looked for


def of(connection: Connection, row: int, runs: Sequence[EarlierRun]) -> list[LostMetric]:
    """Return the lost metrics of a run, in the order of the cells' names.

    Args:
        row: the id of the row of the run.
        runs: the comparable runs of the baseline, the newest first.
    """
    unknown = (
        select(CELLS.c.cell, CELLS.c.name, SERIES.c.cell_id, SERIES.c.metric, SERIES.c.unit, SAMPLES.c.fault)
        .join(SERIES, SERIES.c.id == SAMPLES.c.series_id)
        .join(CELLS, CELLS.c.id == SERIES.c.cell_id)
        .join(RESULTS, (RESULTS.c.cell_id == SERIES.c.cell_id) & (RESULTS.c.run_id == SAMPLES.c.run_id))
        .where(SAMPLES.c.run_id == row, SAMPLES.c.value.is_(None), RESULTS.c.verdict == Verdict.PASSED)
        .order_by(CELLS.c.name, SERIES.c.metric)
    )
    found = connection.execute(unknown).all() if runs else []
    before = _latest_values(connection, runs[:_MAX_RUNS]) if found else {}
    return [
        LostMetric(each.cell, each.name, each.metric, each.unit, value, each.fault)
        for each in found
        if (value := before.get((each.cell_id, each.metric))) is not None
    ]


def _latest_values(connection: Connection, runs: Sequence[EarlierRun]) -> dict[tuple[int, str], float]:
    """Return the latest known value of each metric in some runs, by the id of the row of the cell and the metric."""
    query = (
        select(SERIES.c.cell_id, SERIES.c.metric, SAMPLES.c.value)
        .join(SERIES, SERIES.c.id == SAMPLES.c.series_id)
        .join(RUNS, RUNS.c.id == SAMPLES.c.run_id)
        .where(SAMPLES.c.run_id.in_([run.id for run in runs]), SAMPLES.c.value.is_not(None))
        .order_by(RUNS.c.started)
    )
    rows: list[Any] = list(connection.execute(query))
    return {(row.cell_id, row.metric): row.value for row in rows}
