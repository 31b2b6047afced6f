"""Reads from the plan of a run who owns its cells: the persons or teams that look after them.

`matrix.owners` of the configuration names the owners, and the planner writes them into `plan.json`. The plan of a run
from elsewhere may contain anything.
"""

from __future__ import annotations

from pathlib import Path

from toolbox.records.runs.layout import RunDirectory


def of_run(directory: Path) -> dict[str, str]:
    """Return the owners of the planned cells of a run, by the id of the cell. Cells without an owner are left out."""
    cells = RunDirectory(directory).read_plan().get("cells")
    owners: dict[str, str] = {}
    for cell in cells if isinstance(cells, list) else ():
        if isinstance(cell, dict):
            id_, owner = cell.get("id"), cell.get("owner")
            if isinstance(id_, str) and isinstance(owner, str) and owner:
                owners[id_] = owner
    return owners
