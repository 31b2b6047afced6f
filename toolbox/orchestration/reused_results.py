"""Finds the results of earlier runs that cells of a new run reuse (`matrix.reuse_results`)."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from toolbox.config.configuration import Configuration
from toolbox.config.contracts.results import Contract as Results
from toolbox.ground.model.errors import describe
from toolbox.matrix.plan import Cell, Plan
from toolbox.matrix.reuse import Reuse
from toolbox.orchestration import storing
from toolbox.records.results.records import RunRow

log = logging.getLogger(__name__)

_COMMIT: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_NO_COMMIT: Final = "`matrix.reuse_results` has no effect: `results.revision` is not the complete id of a commit"


def find(plan: Plan, configuration: Configuration, project: str, days: float) -> Plan:
    """Return the plan with the results that its cells reuse.

    Nothing is reused without the complete id of the commit under test, because a branch may move.

    Args:
        days: the largest age of a result.
    """
    block = configuration.block(storing.BLOCK, Results)
    if block.revision is None or not _COMMIT.fullmatch(block.revision):
        cells = tuple(replace(cell, reuse=Reuse()) for cell in plan.cells)
        return replace(plan, cells=cells, notes=[*plan.notes, _NO_COMMIT])
    keys = {key for cell in plan.cells for key in cell.reuse.keys.values()}
    if not keys or not block.record:
        return plan
    since = datetime.now(UTC) - timedelta(days=days)
    try:
        from toolbox.records.results import queries
        from toolbox.records.results.store import Store

        with Store(storing.location(configuration), may_create=False) as store, store.reading() as connection:
            results = queries.reusable(connection, project, block.revision, keys, since)
    except Exception as error:  # noqa: BLE001  # without the store, all cells are executed
        log.info("no result is reused, because the store cannot be read: %s", describe(error))
        return plan
    return replace(plan, cells=tuple(_with_result(cell, results) for cell in plan.cells))


def _with_result(cell: Cell, results: Mapping[str, RunRow]) -> Cell:
    """Return the cell with the earlier run whose result it reuses, if there is one."""
    earlier = next((results[key] for key in cell.reuse.keys.values() if key in results), None)
    if earlier is None:
        return cell
    return replace(cell, reuse=replace(cell.reuse, run=earlier.run, directory=earlier.directory))
