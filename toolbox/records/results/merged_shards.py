"""Keeps the store free of cells that would count twice: in the run of a shard, and in the run into which it was merged.

A merged run replaces the runs of its shards. If two merged runs have a shard in common, because another shard was
repeated, the later one replaces the earlier one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Row, delete, insert, select

from toolbox.records.results.tables import MERGED_SHARDS, RUNS
from toolbox.records.runs.run_state import RunState

_Part = tuple[str, datetime]  # the name and the start of a run that was executed
_MAX_PARTS: Final = 256


def replace(connection: Connection, run: RunState, delete_run: Callable[[Connection, int], None]) -> str:
    """Delete the runs whose cells a run contains. If the store has a merged run to keep, return its name instead."""
    others = _overlapping(connection, run)
    for row in others:
        if not run.shards or run.updated is None or row.updated > run.updated:
            return str(row.run)
    for row in others:
        delete_run(connection, row.id)
    return ""


def write(connection: Connection, run_id: int, run: RunState) -> None:
    """Write the shards of a run. Those of an earlier recording are replaced."""
    connection.execute(delete(MERGED_SHARDS).where(MERGED_SHARDS.c.run_id == run_id))
    if run.shards and (parts := _parts(run)):
        rows = [{"run_id": run_id, "run": name, "started": started} for name, started in parts]
        connection.execute(insert(MERGED_SHARDS), rows)


def _parts(run: RunState) -> list[_Part]:
    """Return the runs that were executed: the shards of a merged run, or the run itself.

    Shards with a name or a start that a database does not accept are left out: the run may come from elsewhere.
    """
    if not run.shards:
        return [(run.run, run.started)] if run.started is not None and run.run.isprintable() else []
    parts: dict[_Part, None] = {}
    for shard in run.shards[:_MAX_PARTS]:
        with contextlib.suppress(ValueError, OverflowError):
            if shard.run.isprintable() and (started := datetime.fromisoformat(shard.started)).tzinfo is not None:
                parts[shard.run, started] = None
    return list(parts)


def _overlapping(connection: Connection, run: RunState) -> list[Row[Any]]:
    """Return the rows of the other runs of the project that have a part in common with a run."""
    parts = _parts(run)
    names = [name for name, _ in parts]
    of_project = select(RUNS.c.id, RUNS.c.run, RUNS.c.started, RUNS.c.updated).where(RUNS.c.project == run.project)
    plain = connection.execute(of_project.where(RUNS.c.run.in_(names))).all()
    merged = connection.execute(
        select(RUNS.c.id, RUNS.c.run, MERGED_SHARDS.c.started, RUNS.c.updated, MERGED_SHARDS.c.run.label("part"))
        .join(MERGED_SHARDS, MERGED_SHARDS.c.run_id == RUNS.c.id)
        .where(RUNS.c.project == run.project, MERGED_SHARDS.c.run.in_(names))
    ).all()
    found: dict[int, Any] = {each.id: each for each in plain if run.shards and (each.run, each.started) in parts}
    found |= {each.id: each for each in merged if (each.part, each.started) in parts}
    return [each for each in found.values() if each.run != run.run]
