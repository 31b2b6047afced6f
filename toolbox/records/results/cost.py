"""Sums the cost of attempts by day, month (UTC), project, target, cell and accelerator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from enum import StrEnum

from toolbox.records.results.records import Spending


class Group(StrEnum):
    """A property of attempts by which costs can be grouped."""

    DAY = "day"
    MONTH = "month"
    PROJECT = "project"
    TARGET = "target"
    CELL = "cell"
    ACCELERATOR = "accelerator"


class Kind(StrEnum):
    """The kind of an attempt, for the parts of a cost. Each attempt has the last kind in this list that applies.

    PLANNED: it is the first attempt of its cell, and it passed or failed as expected.
    FAILURE: it is the first attempt of its cell, and it did not pass.
    RETRY: it repeats an attempt that failed, was interrupted or was given up.
    CONFIRMATION: it repeats an attempt that had a value out of its range.
    """

    PLANNED = "planned"
    FAILURE = "failure"
    RETRY = "retry"
    CONFIRMATION = "confirmation"


# the number of characters of an ISO date that name the period
_PERIODS = {Group.DAY: len("2026-11-21"), Group.MONTH: len("2026-11")}


@dataclass(slots=True)
class Cost:
    """The cost of attempts.

    Args:
        keys: the value of each group, such as `2026-11` for the group `month`.
        attempts: the number of attempts.
        unpriced: the number of attempts whose cost is unknown.
        seconds: the time of the targets that the attempts are charged for. Attempts that share a target share its time.
        cost: the cost of the attempts whose cost is known; None if there are none.
        parts: the parts of `cost` by kind.
    """

    keys: Mapping[Group, str]
    currency: str
    attempts: int = 0
    unpriced: int = 0
    seconds: float = 0.0
    cost: float | None = None
    parts: dict[Kind, float] = field(default_factory=dict)
    _runs: set[int] = field(default_factory=set)

    @property
    def runs(self) -> int:
        """The number of runs with these attempts."""
        return len(self._runs)

    @property
    def series(self) -> tuple[str, ...]:
        """The values of the groups that are not periods, and the currency."""
        return (*(key for group, key in self.keys.items() if group not in _PERIODS), self.currency)

    @property
    def period(self) -> str:
        """The day or the month; empty if the costs are grouped by neither."""
        return self.keys.get(Group.DAY) or self.keys.get(Group.MONTH, "")

    def part(self, kind: Kind) -> float | None:
        """Return the part of the cost of one kind; None if the cost is unknown."""
        return None if self.cost is None else self.parts.get(kind, 0.0)

    def add(self, spending: Spending) -> None:
        """Add the cost of further attempts."""
        self._runs.add(spending.run)
        self.attempts += spending.attempts
        self.unpriced += spending.unpriced
        self.seconds += spending.seconds
        if spending.cost is not None:
            kind = Kind(spending.kind)
            self.cost = (self.cost or 0.0) + spending.cost
            self.parts[kind] = self.parts.get(kind, 0.0) + spending.cost


def grouped(spendings: Iterable[Spending], by: Sequence[Group]) -> list[Cost]:
    """Return the costs by these groups and by currency: the latest period first, then the highest cost first."""
    costs: dict[tuple[str, ...], Cost] = {}
    for spending in spendings:
        keys = {group: _key(spending, group) for group in by}
        identity = (*keys.values(), spending.currency)
        if identity not in costs:
            costs[identity] = Cost(keys, spending.currency)
        costs[identity].add(spending)
    by_name = [costs[identity] for identity in sorted(costs)]
    by_cost = sorted(by_name, key=lambda cost: -1.0 if cost.cost is None else cost.cost, reverse=True)
    return sorted(by_cost, key=lambda cost: [cost.keys[group] for group in by if group in _PERIODS], reverse=True)


def by_series(spendings: Iterable[Spending], by: Sequence[Group]) -> dict[tuple[str, ...], list[Spending]]:
    """Return the spendings of each `Cost.series`."""
    groups = [group for group in by if group not in _PERIODS]
    found: dict[tuple[str, ...], list[Spending]] = {}
    for spending in spendings:
        found.setdefault((*(_key(spending, group) for group in groups), spending.currency), []).append(spending)
    return found


def _key(spending: Spending, group: Group) -> str:
    if group in _PERIODS:
        return spending.started.astimezone(UTC).isoformat()[: _PERIODS[group]]
    return str(getattr(spending, group))
