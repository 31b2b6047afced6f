"""Makes the table of the metrics of all cells, with the bounds from earlier runs."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from toolbox.ground.model.bounds import Bound, Method, Side
from toolbox.ground.model.events import MetricMeasured
from toolbox.reports._web_page import digits
from toolbox.reports.page.step_details import StepCard

MAX_ROWS: Final = 250
MAX_COLUMNS: Final = 30


@dataclass(frozen=True, slots=True)
class Number:
    """A metric of a cell.

    Args:
        value: the value with its unit; empty if unknown.
        fault: why the value is unknown.
        range: the bounds from earlier runs; empty if there are none, or if they have another unit.
        side: the side of the range on which the value is; None if the value is in the range, or if the range
            comes from too few values.
        deviation: the distance from the mean of earlier runs, in percent; empty if the mean is unknown.
    """

    value: str
    fault: str = ""
    range: str = ""
    side: Side | None = None
    deviation: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """The metrics of all cells.

    Args:
        rows: each cell with one number for each metric of the table; None if the cell does not have the metric.
        rows_left_out: the number of rows for which the page has no room.
        columns_left_out: the number of columns for which the page has no room.
        elsewhere: the number of metrics that another section shows.
    """

    names: Sequence[str]
    rows: Sequence[tuple[StepCard, Sequence[Number | None]]]
    rows_left_out: int
    columns_left_out: int
    elsewhere: int


def make(steps: Sequence[StepCard], elsewhere: Collection[str] = ()) -> Table | None:
    """Return the table of the steps that have begun; None if no step has a metric.

    Args:
        elsewhere: the names of metrics that another section shows. The table has those with bounds.
    """
    begun = [card for card in steps if card.step.step]
    every_name = list(dict.fromkeys(metric.metric for card in begun for metric in card.step.metrics))
    bounded = {name for card in begun for name in card.bounds}
    names = [name for name in every_name if name not in elsewhere or name in bounded]
    if not names:
        return None
    kept, shown_names = begun[:MAX_ROWS], names[:MAX_COLUMNS]
    rows = [(card, _numbers(card, shown_names)) for card in kept]
    left_out = len(names) - len(shown_names)
    return Table(shown_names, rows, len(begun) - len(kept), left_out, len(every_name) - len(names))


def _numbers(card: StepCard, names: Sequence[str]) -> list[Number | None]:
    numbers = {metric.metric: _number(metric, card.bounds.get(metric.metric)) for metric in card.step.metrics}
    return [numbers.get(name) for name in names]


def _number(metric: MetricMeasured, planned: Any) -> Number:
    if metric.value is None:
        return Number("", metric.fault or "the value is unknown")
    value = f"{digits(metric.value)} {metric.unit}".strip()
    bound = _bound(planned)
    if bound is None or not bound.is_in(metric.unit):
        return Number(value)
    deviation = f"{100 * (metric.value - bound.mean) / abs(bound.mean):+.1f} %" if bound.mean else ""
    lower, upper = ("-" if limit is None else digits(limit) for limit in (bound.lower, bound.upper))
    is_bounded = bound.lower is not None or bound.upper is not None
    side = bound.side(metric.value) if bound.is_reported else None
    return Number(value, "", f"[{lower}, {upper}]" if is_bounded else "", side, deviation)


def _bound(planned: Any) -> Bound | None:
    """Return a bound of the plan; None if it is not the mapping that `Cell.as_json` writes."""
    with contextlib.suppress(KeyError, TypeError, ValueError):
        unit, samples = planned["unit"], planned["samples"]
        lower, upper, mean = (
            None if planned[name] is None else float(planned[name]) for name in ("lower", "upper", "mean")
        )
        samples = samples if samples is None else int(samples)
        return Bound(lower, upper, mean, samples, Method.MANUAL, unit if unit is None else str(unit))
    return None
