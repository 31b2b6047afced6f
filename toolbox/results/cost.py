"""Computes the cost of runs: the time on their targets times the price of the targets, by day or month (UTC)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from toolbox.results.records import RunRow


class Period(StrEnum):
    """The period over which to sum."""

    DAY = "day"
    MONTH = "month"


@dataclass(slots=True)
class Cost:
    """The cost of a project's runs in a period.

    Args:
        period: the day or month: `2026-11-21` or `2026-11`.
        unpriced: the number of runs that have cells without a price.
        cost: the cost of the cells with a price; None if no cell has a price.
    """

    period: str
    project: str
    currency: str
    runs: int = 0
    unpriced: int = 0
    seconds: float = 0.0
    cost: float | None = None


def summed(runs: Iterable[RunRow], period: Period) -> list[Cost]:
    """Return the costs by period, project and currency, the latest period first."""
    form = "%Y-%m-%d" if period is Period.DAY else "%Y-%m"
    return total(
        Cost(
            run.started.strftime(form),
            run.project,
            run.currency,
            runs=1,
            unpriced=int(run.unpriced > 0),
            seconds=run.seconds or 0.0,
            cost=run.cost,
        )
        for run in runs
    )


def total(costs: Iterable[Cost]) -> list[Cost]:
    """Return the sums of the costs with the same period, project and currency, the latest period first."""
    sums: dict[tuple[str, str, str], Cost] = {}
    for cost in costs:
        key = cost.period, cost.project, cost.currency
        sum_ = sums.setdefault(key, Cost(*key))
        sum_.runs += cost.runs
        sum_.unpriced += cost.unpriced
        sum_.seconds += cost.seconds
        if cost.cost is not None:
            sum_.cost = (sum_.cost or 0.0) + cost.cost
    by_name = sorted(sums.values(), key=lambda cost: (cost.project, cost.currency))
    return sorted(by_name, key=lambda cost: cost.period, reverse=True)


def shares(intervals: Sequence[tuple[float, float]]) -> list[float]:
    """Return the share of each attempt in the time of a target. Attempts that overlap share the time evenly.

    Args:
        intervals: the start and end of each attempt, in seconds.
    """
    changes = sorted([(begin, 1) for begin, _ in intervals] + [(end, -1) for _, end in intervals])
    each = {moment: 0.0 for moment, _ in changes}  # the share, until each moment, of an attempt that is always running
    total, present = 0.0, 0
    for (moment, change), (later, _) in itertools.pairwise(changes):
        present += change
        total += (later - moment) / present if present else 0.0
        each[later] = total
    return [each[end] - each[begin] for begin, end in intervals]
