"""Computes what the cells of a plan are expected to take and to cost.

The expected time of a cell on a target is the mean of its earlier runs there. A cell without earlier runs counts with
its time limit, which it cannot exceed. An unknown price makes the cost unknown, never zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from toolbox.ground.model.prices import amount
from toolbox.ground.model.text import counted, duration
from toolbox.matrix.plan import Cell, Plan
from toolbox.matrix.targets import PlannedTarget
from toolbox.records.results.records import EarlierTime

Key = tuple[str, str]
"""The id of a cell, and the name of a target."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a cell is expected to take and to cost on one target.

    Args:
        seconds: None if the cell has neither earlier runs nor a time limit.
        runs: the number of earlier runs from which the time is computed; 0 if `seconds` is the time limit of the cell.
        cost: None if it is unknown.
    """

    target: str
    seconds: float | None
    runs: int
    cost: float | None

    def as_json(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return {"target": self.target, "seconds": self.seconds, "runs": self.runs, "cost": self.cost}


@dataclass(frozen=True)
class CostPlan:
    """The expected costs of a plan.

    Args:
        currency: the currency of all costs.
        expected: what each cell is expected to take on each of its targets. Skipped cells are left out.
        targets: the targets of the plan, by name.
    """

    currency: str
    expected: Mapping[Key, Expected]
    targets: Mapping[str, PlannedTarget]

    @cached_property
    def cells(self) -> dict[str, Expected]:
        """What each cell is expected to take on the most expensive of its targets, by the id of the cell."""
        cells: dict[str, list[Expected]] = {}
        for (cell, _), each in self.expected.items():
            cells.setdefault(cell, []).append(each)
        return {cell: max(each, key=_expense) for cell, each in cells.items()}

    @property
    def cost(self) -> float:
        """The cost of the cells whose cost is known."""
        return math.fsum(each.cost for each in self.cells.values() if each.cost is not None)

    @property
    def unknown(self) -> list[Expected]:
        """The expectations whose cost is unknown."""
        return [each for each in self.cells.values() if each.cost is None]

    @property
    def limited(self) -> int:
        """The number of cells that count with their time limits, and cost something."""
        return sum(not each.runs and each.cost != 0 and each.seconds is not None for each in self.cells.values())

    @property
    def reasons(self) -> list[str]:
        """Why costs are unknown: one text for each target."""
        texts = {}
        for each in self.unknown:
            price = self.targets[each.target].price
            reason = price.basis if price.per_hour is None else "a cell has neither earlier runs nor a time limit"
            texts[each.target] = f"the cost on the target `{each.target}` is unknown: {reason}"
        return list(texts.values())

    def summary(self) -> str:
        """Return what all cells together are expected to take and to cost, on one line."""
        return f"expected: {self._time_text()} on targets, {self._cost_text()}"

    def limits_note(self) -> str:
        """Return how many cells count with their time limits."""
        cells = f"{counted(self.limited, 'cell')} without earlier runs"
        return f"{cells} {'count with their time limits' if self.limited > 1 else 'counts with its time limit'}"

    def as_json(self) -> dict[str, Any]:
        """Return the expectations for JSON."""
        return {
            "currency": self.currency,
            "cost": self.cost,
            "unknown": len(self.unknown),
            "limited": self.limited,
            "reasons": self.reasons,
            "cells": {cell: each.as_json() for cell, each in self.cells.items()},
        }

    def _time_text(self) -> str:
        """Return the times of earlier runs, and apart from them the time limits, which most cells do not reach."""
        times = [(each.seconds, each.runs) for each in self.cells.values() if each.seconds is not None]
        limits = [seconds for seconds, runs in times if not runs]
        earlier = [seconds for seconds, runs in times if runs]
        parts = [duration(math.fsum(earlier))] if earlier else []
        if limits:
            cells = f" for {counted(len(limits), 'cell')} without earlier runs" if parts else ""
            parts.append(f"at most {duration(math.fsum(limits))}{cells}")
        if unknown := len(self.cells) - len(times):
            parts.append(f"an unknown time for {counted(unknown, 'cell')}" if parts else "an unknown time")
        return " and ".join(parts) or duration(0)

    def _cost_text(self) -> str:
        unknown = len(self.unknown)
        if unknown == len(self.cells) and unknown:
            return "at an unknown cost"
        is_limit = any(each.cost and not each.runs for each in self.cells.values())
        known = f"{'at most ' if is_limit else ''}{amount(self.cost)} {self.currency}"
        return f"{known}, and an unknown cost for {counted(unknown, 'cell')}" if unknown else known


def of_plan(plan: Plan, earlier: Mapping[Key, EarlierTime], *, currency: str) -> CostPlan:
    """Return the expected costs of a plan.

    Args:
        earlier: the times of earlier runs.
    """
    expected = {
        (cell.id, name): _expected(cell, plan.targets[name], earlier.get((cell.id, name)))
        for cell in plan.cells
        if not cell.skip and not cell.reuse.run
        for name in cell.targets
    }
    return CostPlan(currency, expected, plan.targets)


def _expected(cell: Cell, target: PlannedTarget, earlier: EarlierTime | None) -> Expected:
    seconds = earlier.seconds if earlier is not None else cell.workload.timeouts.run
    cost = 0.0 if target.price.per_hour == 0 else None if seconds is None else target.price.of(seconds)
    return Expected(target.name, seconds, earlier.runs if earlier is not None else 0, cost)


def _expense(expected: Expected) -> float:
    return math.inf if expected.cost is None else expected.cost
