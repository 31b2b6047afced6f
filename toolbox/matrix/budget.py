"""Counts what a run spends, and decides which cells may still start under `--max_cost`.

An attempt that runs counts with its expected cost, or with its cost so far if that is higher. A cell may start if its
expected cost fits as well. A running attempt is never ended because of its cost: its time limits end it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from toolbox.ground.model.prices import SECONDS_PER_HOUR, amount
from toolbox.matrix.expected_costs import CostPlan
from toolbox.matrix.plan import Cell

_ROUNDING: Final = 1 + 1e-9  # a plan whose cost equals the limit fits, whatever the order of the additions


class Decision(Enum):
    """Whether a cell may start.

    FITS: the cell may start.
    WAITS: the cell may start only if a running attempt ends with a lower cost than expected.
    EXCEEDS: the cell can no longer start.
    """

    FITS = auto()
    WAITS = auto()
    EXCEEDS = auto()


@dataclass(slots=True)
class _Running:
    """An attempt that runs.

    Args:
        expected: its expected cost.
        seconds: the share of the time of the target for which the attempt is charged so far.
        wall: the time for which its target has cost money so far; more than `seconds` if the attempt shared the target.
        is_paid: whether its target costs money now. An attempt that waits for a machine costs nothing.
    """

    target: str
    expected: float
    seconds: float = 0.0
    wall: float = 0.0
    is_paid: bool = False


@dataclass(slots=True)
class Budget:
    """What a run may spend, and what it has spent.

    Args:
        limit: the highest cost of the run.
        spent: the cost of all attempts that have ended, in all sessions of the run.
        clock: returns the time in seconds.
    """

    limit: float
    costs: CostPlan
    spent: float = 0.0
    clock: Callable[[], float] = time.monotonic
    _running: dict[str, _Running] = field(default_factory=dict)
    _counted_until: float = field(init=False)

    def __post_init__(self) -> None:
        self._counted_until = self.clock()

    def decide(self, cell: Cell, target: str) -> Decision:
        """Decide whether an attempt of a cell may start on a target."""
        expected = self.costs.expected[cell.id, target].cost
        if expected == 0:
            return Decision.FITS
        self._count()
        limit = self.limit * _ROUNDING
        if expected is None or self.so_far + expected > limit:
            return Decision.EXCEEDS
        return Decision.FITS if self._reserved + expected <= limit else Decision.WAITS

    def refused(self, cell: Cell) -> frozenset[str]:
        """Return the targets on which an attempt of a cell may not start now."""
        return frozenset(target for target in cell.targets if self.decide(cell, target) is not Decision.FITS)

    def exceeds(self, cell: Cell) -> bool:
        """Return whether a cell can no longer start on any of its targets."""
        return all(self.decide(cell, target) is Decision.EXCEEDS for target in cell.targets)

    def begin(self, name: str, cell: Cell, target: str, *, seconds: float = 0.0) -> None:
        """Count an attempt that is being submitted.

        Args:
            name: the name of the attempt.
            seconds: the time for which an attempt of an earlier session has already run.
        """
        self._count()
        expected = self.costs.expected.get((cell.id, target))
        cost = expected.cost if expected is not None else None
        self._running[name] = _Running(target, cost or 0.0, seconds, seconds)

    def pay(self, name: str, *, is_paid: bool) -> None:
        """Record whether the target of an attempt costs money from now on."""
        if name in self._running and self._running[name].is_paid is not is_paid:
            self._count()
            self._running[name].is_paid = is_paid

    def end(self, name: str, *, seconds: float | None) -> None:
        """Count the cost of an attempt that has ended.

        Args:
            seconds: the time for which its target cost money, as the target reports it; None if the time is unknown.
        """
        self._count()
        running = self._running.pop(name, None)
        if running is None:
            return
        share = running.seconds / running.wall if running.wall else 1.0
        self.spent += self._cost(running.target, running.seconds if seconds is None else seconds * share)

    @property
    def so_far(self) -> float:
        """The cost of the attempts that have ended, plus the cost so far of the running attempts."""
        return self.spent + sum(self._cost(each.target, each.seconds) for each in self._running.values())

    def refusal(self, cell: Cell) -> str:
        """Return why a cell cannot start any more."""
        costs = [self.costs.expected[cell.id, target].cost for target in cell.targets]
        known = [cost for cost in costs if cost is not None]
        currency = self.costs.currency
        expected = f"is expected to cost {amount(min(known))} {currency}" if known else "has an unknown cost"
        spent = f"{amount(self.so_far)} {currency} are spent, and the cell {expected}"
        return f"the cost limit of {amount(self.limit)} {currency} is reached: {spent}"

    @property
    def _reserved(self) -> float:
        """The expected cost of the run if no further attempt starts."""
        running = (max(each.expected, self._cost(each.target, each.seconds)) for each in self._running.values())
        return self.spent + sum(running)

    def _count(self) -> None:
        """Divide the time since the last call among the attempts whose targets cost money."""
        now = self.clock()
        elapsed, self._counted_until = now - self._counted_until, now
        paid: dict[str, int] = {}
        for each in self._running.values():
            paid[each.target] = paid.get(each.target, 0) + each.is_paid
        for each in self._running.values():
            if each.is_paid:
                shared = self.costs.targets[each.target].shares_price
                each.seconds += elapsed / paid[each.target] if shared else elapsed
                each.wall += elapsed

    def _cost(self, target: str, seconds: float) -> float:
        return (self.costs.targets[target].price.per_hour or 0.0) * seconds / SECONDS_PER_HOUR
