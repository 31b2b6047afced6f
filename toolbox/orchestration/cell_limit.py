"""Refuses a plan that would execute more cells than `matrix.max_cells` allows.

A preset or a new value on an axis multiplies the number of cells, and each cell may start a machine or a server. With
this limit, a person raises the number on purpose. `project run` refuses such a plan before anything starts; `project
plan` shows the plan first.
"""

from __future__ import annotations

from typing import Final

from toolbox.config.configuration import Configuration
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.text import counted
from toolbox.matrix.plan import BLOCK, Plan

_FIELD: Final = f"{BLOCK}.max_cells"


def verify(configuration: Configuration, plan: Plan) -> None:
    """Check that a plan does not execute more cells than the limit. Skipped cells and reused results do not count.

    Raises:
        UsageError: the plan has more cells. The message says how to raise the limit, and how to select cells.
    """
    count = len(plan.to_execute)
    if plan.max_cells is None or count <= plan.max_cells:
        return
    limit = f"`{_FIELD}` allows only {plan.max_cells}"
    raise UsageError(
        f"{configuration.location(_FIELD)}: a run would execute {counted(count, 'cell')}, and {limit}\n"
        f"  to run them all, raise the limit: --overrides='{{{_FIELD}: {count}}}'\n"
        f"  to run a part, select cells with --cells or --shard; `project plan` lists the cells"
    )
