"""What runs cost: the time for which their targets were taken, times the price of these, by day or by month (UTC)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from toolbox.results.records import RunRow


class Period(StrEnum):
    """What to sum over."""

    DAY = "day"
    MONTH = "month"


@dataclass(slots=True)
class Cost:
    """What the runs of a project cost in a period.

    Args:
        period: `2026-11-21` or `2026-11`.
        cost: of the cells whose price is known; None where there is none.
        unpriced: how many of the runs have cells without a price.
        seconds: wall time of the runs.
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
    found: dict[tuple[str, str, str], Cost] = {}
    for run in runs:
        name = run.started.strftime("%Y-%m-%d" if period is Period.DAY else "%Y-%m")
        one = found.setdefault((name, run.project, run.currency), Cost(name, run.project, run.currency))
        one.runs += 1
        one.seconds += run.seconds or 0.0
        one.unpriced += run.unpriced > 0
        if run.cost is not None:
            one.cost = (one.cost or 0.0) + run.cost
    return sorted(
        sorted(found.values(), key=lambda one: (one.project, one.currency)), key=lambda one: one.period, reverse=True
    )


def shares(intervals: Sequence[tuple[float, float]]) -> list[float]:
    """Return the time that each has of something that they share evenly while they are there at once.

    Args:
        intervals: from when to when each is there, in seconds.
    """
    changes = sorted([(begin, 1) for begin, _ in intervals] + [(end, -1) for _, end in intervals])
    each = {moment: 0.0 for moment, _ in changes}  # what one has had that was there from the beginning on
    total, present = 0.0, 0
    for (moment, change), (later, _) in itertools.pairwise(changes):
        present += change
        total += (later - moment) / present if present else 0.0
        each[later] = total
    return [each[end] - each[begin] for begin, end in intervals]
