"""Compares a run that has just been recorded with the baseline: verdicts, test cases, flaky cells and metrics.

The result is written into the run directory, because the machine that makes reports may have no access to the store.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Connection, select

from toolbox.ground.model.bounds import Bound
from toolbox.ground.model.events import StepKind
from toolbox.ground.model.text import truncate
from toolbox.records.results import earlier_results, flaky_failures, lost_metrics
from toolbox.records.results.flaky_and_moved import LostMetric, MetricChange
from toolbox.records.results.since_last_run import NotCompared, SinceLastRun
from toolbox.records.results.tables import RESULTS, RUNS, SAMPLES


def of(
    connection: Connection, row: int, planned: Collection[str] | None, bounds: Mapping[tuple[str, str], Bound]
) -> SinceLastRun | NotCompared | None:
    """Compare a run with the baseline; None if the run has no cells.

    Args:
        row: the id of the row of the run.
        planned: the ids of all cells of the matrix, to count the cells that are gone; None if the ids are unknown.
        bounds: the bounds in force, by the id of the cell and the metric.
    """
    run: Any = connection.execute(select(RUNS.c.project, RUNS.c.started, RUNS.c.presets).where(RUNS.c.id == row)).one()
    runs = earlier_results.comparable(connection, row)
    comparison = earlier_results.since_last_run(connection, row, planned)
    if comparison is None:
        has_cells = select(RESULTS.c.id).where(RESULTS.c.run_id == row, RESULTS.c.kind == StepKind.CELL).limit(1)
        return None if connection.scalar(has_cells) is None else NotCompared(_reason(run, is_first=not runs))
    moved: list[MetricChange] = []
    lost: list[LostMetric] = []
    if connection.scalar(select(SAMPLES.c.run_id).where(SAMPLES.c.run_id == row).limit(1)) is not None:
        from toolbox.records.results import (
            moved_metrics,
        )  # imports NumPy, which is slow, and which many runs do not need

        moved = moved_metrics.of(connection, row, runs, bounds)
        lost = lost_metrics.of(connection, row, runs)
    return comparison.with_findings(flaky_failures.of(connection, row, run.project, run.started), moved, lost)


def _reason(run: Any, *, is_first: bool) -> str:
    presets = f"the presets {', '.join(sorted(run.presets))}" if run.presets else "no presets"
    if is_first:
        return f"it has no earlier run of {run.project} with {truncate(presets)}"
    return "no earlier run of it has executed one of these cells"
