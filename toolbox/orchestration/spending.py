"""Computes what a plan is expected to cost, and refuses a plan that would exceed `--max_cost`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from toolbox.config.configuration import Configuration
from toolbox.config.contracts.results import Contract as Results
from toolbox.ground.model.errors import UsageError, describe
from toolbox.ground.model.text import first_of
from toolbox.ground.system import modules
from toolbox.matrix.plan import Plan
from toolbox.matrix.scheduler import Options
from toolbox.orchestration import storing
from toolbox.records.runs.run_state import RunState

if TYPE_CHECKING:  # these modules are slow to import, and a run without a cost limit does not need them
    from toolbox.matrix.budget import Budget
    from toolbox.matrix.expected_costs import CostPlan
    from toolbox.records.results.records import EarlierTime

log = logging.getLogger(__name__)

_MAX_REASONS = 2


def expected(configuration: Configuration, project: str, plan: Plan) -> CostPlan:
    """Return what the cells of a plan are expected to take and to cost."""
    from toolbox.matrix import expected_costs

    currency = configuration.block(storing.BLOCK, Results).currency
    return expected_costs.of_plan(plan, _earlier_times(configuration, project), currency=currency)


def limit(options: Options, plan: Plan) -> float | None:
    """Return the highest cost of a run: `--max_cost`, or else `matrix.max_cost`; None for no limit."""
    return plan.max_cost if options.max_cost is None else options.max_cost


def verify(costs: CostPlan, limit: float) -> None:
    """Check that a plan is not expected to cost more than the limit.

    Raises:
        UsageError: the plan would exceed the limit, or the cost of a cell is unknown.
    """
    from toolbox.ground.model.prices import amount

    most = f"the cost limit is {amount(limit)} {costs.currency}"
    if costs.unknown:
        reasons = first_of(costs.reasons, _MAX_REASONS)
        free = "a target that costs nothing has `cost_per_hour: 0`"
        raise UsageError("\n  ".join([f"{most} (--max_cost), but some costs are unknown:", *reasons, free]))
    if costs.cost > limit:
        text = f"{most}, and the plan is expected to cost {amount(costs.cost)} {costs.currency}"
        hints = [f"{costs.limits_note()} (`matrix.timeouts.run`)"] if costs.limited else []
        hints.append("select fewer cells with --cells, or raise --max_cost; `project plan` shows the cost of each cell")
        raise UsageError("\n  ".join([text, *hints]))


def budget(configuration: Configuration, project: str, plan: Plan, options: Options, past: RunState) -> Budget | None:
    """Return the budget of a run; None if the run has no cost limit.

    Args:
        past: the state of the run before it was resumed, whose attempts have already cost something.
    """
    if (most := limit(options, plan)) is None:
        return None
    from toolbox.matrix.budget import Budget

    costs = expected(configuration, project, plan)
    return Budget(most, costs, spent=spent(costs, past))


def spent(costs: CostPlan, past: RunState) -> float:
    """Return the cost of the ended attempts. If the time of an attempt is unknown, its expected cost counts."""
    from toolbox.records.results import charges

    steps = past.cells
    charged = charges.of(steps, {name: target.as_json() for name, target in costs.targets.items()})
    total = 0.0
    for step in steps:
        for attempt in step.attempts:
            cost = charged[step.step, attempt.attempt].cost
            if cost is None and not attempt.is_open:
                expectation = costs.expected.get((step.identity, attempt.target))
                cost = expectation.cost if expectation is not None else None
            total += cost or 0.0
    return total


def _earlier_times(configuration: Configuration, project: str) -> Mapping[tuple[str, str], EarlierTime]:
    """Return the times of earlier runs; nothing if the store does not exist or cannot be read."""
    if not configuration.block(storing.BLOCK, Results).record:
        return {}
    try:
        location = storing.location(configuration)
        if "://" not in location and not Path(location).exists():
            return {}  # no run has been recorded yet; SQLAlchemy is slow to import
        with modules.gc_frozen_imports():
            from toolbox.records.results import earlier_times
            from toolbox.records.results.store import Store

        with Store(location, may_create=False) as store, store.reading() as connection:
            return earlier_times.read(connection, project, now=datetime.now(UTC))
    except Exception as error:  # noqa: BLE001  # without earlier runs, cells count with their time limits
        log.warning("the times of earlier runs are unknown: %s", describe(error))
        return {}
