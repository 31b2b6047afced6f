"""What runs cost: the time of their attempts, times the price of their targets, by day or by month (UTC)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from toolbox.results.queries import RunRow


class Period(StrEnum):
    """What to sum over."""

    DAY = "day"
    MONTH = "month"


@dataclass(slots=True)
class Cost:
    """What the runs of a project cost in a period.

    Args:
        period: `2026-11-21` or `2026-11`.
        cost: None where no target had a price.
        unpriced: how many runs had none.
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
        if run.cost is None:
            one.unpriced += 1
        else:
            one.cost = (one.cost or 0.0) + run.cost
    return sorted(
        sorted(found.values(), key=lambda one: (one.project, one.currency)), key=lambda one: one.period, reverse=True
    )
