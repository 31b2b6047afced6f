"""Makes the charts of the dashboard: small lines as SVG, and the data of the charts that its script draws."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
from markupsafe import Markup

from toolbox.ground.model.bounds import Side
from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.text import truncate
from toolbox.records.results.cost import Cost
from toolbox.records.results.histories import History
from toolbox.records.results.series import RunReference

_POINTS: Final = 48  # points of a small line
_WIDTH: Final = 96  # pixels
_HEIGHT: Final = 20
_MAX_POINTS: Final = 24_000  # points of all charts of a page, so that the page stays small
_FEWEST_POINTS: Final = 50
_MAX_DAYS: Final = 92


def line(history: History) -> Markup:
    """Return the history of a metric as a small line. Screen readers skip the line and read the numbers beside it."""
    parts = np.array_split(history.series.values, min(_POINTS, history.size))
    levels = np.array([np.median(part) for part in parts])
    low, high = float(levels.min()), float(levels.max())
    span = high - low
    is_flat = span == 0 or not math.isfinite(span)
    heights = np.full(len(levels), _HEIGHT / 2) if is_flat else (_HEIGHT - 2) * (1 - (levels - low) / span) + 1
    step = _WIDTH / max(1, len(levels) - 1)
    points = " ".join(f"{index * step:.0f},{height:.1f}" for index, height in enumerate(heights))
    return Markup(  # noqa: S704  # the values are numbers
        f'<svg class="line" viewBox="-2 0 {_WIDTH + 4} {_HEIGHT}" width="{_WIDTH + 4}" height="{_HEIGHT}" '
        f'aria-hidden="true"><polyline points="{points}"/>'
        f'<circle cx="{(len(levels) - 1) * step:.0f}" cy="{heights[-1]:.1f}" r="2"/></svg>'
    )


class _Runs:
    """The runs of a page. A run with several metrics is listed only once."""

    def __init__(self) -> None:
        self._places: dict[int, int] = {}
        self.names: list[tuple[str, str]] = []
        self.times: list[int] = []

    def place(self, run: RunReference) -> int:
        """Return the index of a run. All series must share one `RunReference` object for a run."""
        place = self._places.setdefault(id(run), len(self.names))
        if place == len(self.names):
            self.names.append((truncate(clean(run.run), 200), truncate(clean(run.revision or ""), 60)))
            self.times.append(_seconds(run.started))
        return place


def points(metrics: int) -> int:
    """Return how many of the latest values the chart of each metric of a cell shows."""
    return max(_FEWEST_POINTS, _MAX_POINTS // max(1, metrics))


def of_cell(histories: Sequence[History]) -> dict[str, Any]:
    """Return the charts of the metrics of a cell."""
    runs = _Runs()
    begins = [max(0, history.size - points(len(histories))) for history in histories]
    charts = [_chart(history, begin, runs) for history, begin in zip(histories, begins, strict=True)]
    return {"charts": charts, "runs": runs.names, "times": runs.times}


def _chart(history: History, begin: int, runs: _Runs) -> dict[str, Any]:
    series, bound = history.series, history.bound
    confirmed = [shift for shift in history.shifts if shift.is_confirmed and shift.change.index > begin]
    levels = [[0, _number(confirmed[0].change.before)]] if confirmed else []
    levels += [[shift.change.index - begin, _number(shift.change.after)] for shift in confirmed]
    band = None
    if bound is not None and history.bounded_from is not None:
        band = [max(0, history.bounded_from - begin), bound.lower, bound.upper, history.is_in_force]
    return {
        "kind": "metric",
        "unit": truncate(clean(series.unit), 40),
        "at": [runs.place(run) for run in series.runs[begin:]],
        "values": [_number(value) for value in series.values[begin:].tolist()],
        "levels": levels,
        "changes": [
            [shift.change.index - begin, shift.is_confirmed, shift.is_worse, shift.percent]
            for shift in history.shifts
            if shift.change.index > begin
        ],
        "band": band,
        "outside": [
            [index - begin, side is Side.ABOVE, side.is_good(series.direction)]
            for index, side in history.outside.items()
            if index >= begin
        ],
    }


def of_costs(days: Iterable[Cost]) -> list[dict[str, Any]]:
    """Return the charts of the cost of the latest days, one per currency.

    Args:
        days: the costs, at most one for each day and currency.
    """
    priced: dict[str, dict[str, float]] = defaultdict(dict)
    for day in days:
        if day.cost is not None:
            priced[day.currency][day.period] = day.cost
    return [_costs(currency, costs) for currency, costs in sorted(priced.items())]


def _costs(currency: str, costs: Mapping[str, float]) -> dict[str, Any]:
    days = sorted(costs)[-_MAX_DAYS:]
    return {
        "kind": "cost",
        "unit": truncate(clean(currency), 40),
        "times": [_seconds(datetime.fromisoformat(day).replace(tzinfo=UTC)) for day in days],
        "values": [_number(costs[day]) for day in days],
    }


def _seconds(when: datetime) -> int:
    return int(when.timestamp())


def _number(value: float) -> float:
    """Return a number rounded to the digits that a chart can show."""
    return float(f"{value:.6g}")
