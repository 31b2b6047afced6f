"""Computes what a run has cost so far, from its journal and the prices in its `plan.json`, for the reports of a run."""

from __future__ import annotations

from dataclasses import dataclass

from toolbox.config.contracts.results import CURRENCY
from toolbox.ground.model.prices import amount
from toolbox.ground.model.text import counted, truncate
from toolbox.records.results import charges
from toolbox.records.runs.layout import RunDirectory
from toolbox.records.runs.run_state import RunState

_LONGEST_CURRENCY = 20


@dataclass(frozen=True, slots=True)
class RunCost:
    """What the attempts of a run have cost.

    Args:
        cost: the sum of the known costs.
        unpriced: the number of attempts whose cost is unknown.
    """

    cost: float
    currency: str
    unpriced: int

    def __str__(self) -> str:
        """Return the cost with its currency, and the number of attempts whose cost is unknown."""
        known = f"{amount(self.cost)} {truncate(self.currency, _LONGEST_CURRENCY)}"
        if not self.unpriced:
            return known
        return f"at least {known}: the cost of {counted(self.unpriced, 'attempt')} is unknown"


def of(run: RunState) -> RunCost | None:
    """Return what a run has cost; None if no cost is known, for example because its targets have no prices."""
    directory = RunDirectory(run.directory)
    targets = directory.read_plan().get("targets")
    items = targets.items() if isinstance(targets, dict) else ()
    charged = charges.of(run.cells, {name: target for name, target in items if isinstance(target, dict)}).values()
    costs = [charge.cost for charge in charged if charge.cost is not None]
    if not costs:
        return None
    currency = str(directory.read_request().get("currency") or CURRENCY)
    return RunCost(sum(costs), currency, len(charged) - len(costs))
