"""Reduces the numbers from a metric source to one number, such as their median."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Final, Literal, TypeVar

from toolbox.ground.model.text import abbreviated

Aggregate = Literal[
    "median", "mean", "first", "last", "min", "max", "sum", "count", "p50", "p90", "p95", "p99", "each"
]  # fmt: skip
Value = TypeVar("Value")


def aggregate(values: Sequence[float], how: Aggregate, *, source: str) -> float | tuple[float, ...]:
    """Return the aggregate of the values, or all values if `how` is `each`.

    Args:
        values: finite numbers, in the order in which they were measured.
        how: the name of the aggregate. Percentiles interpolate linearly between the two nearest values, as numpy does.
        source: where the values come from, for error messages.

    Raises:
        ValueError: there are no values, or the aggregate is too large for a float.
    """
    if not values:
        raise ValueError(f"{source}: 0 numbers were found")
    if how == "each":
        return tuple(values)
    try:
        result = float(_AGGREGATES[how](values))
    except OverflowError:
        result = math.inf
    if not math.isfinite(result):
        raise ValueError(f"{source}: the {how} of {len(values)} numbers is too large")
    return result


def after_warmup(values: Iterable[Value], warmup: int, *, source: str) -> list[Value]:
    """Return the values without the first `warmup` values.

    Raises:
        ValueError: no value is left.
    """
    all_values = list(values)
    if len(all_values) <= warmup:
        reason = f", and the warm-up of {warmup} removes all of them" if warmup else ""
        raise ValueError(f"{source}: {len(all_values)} numbers were found{reason}")
    return all_values[warmup:]


def number(value: object, *, source: str) -> float:
    """Convert a value from a file to a float.

    Raises:
        ValueError: the value is not a finite number.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            result = float(value)
        except OverflowError:
            result = math.inf
        if math.isfinite(result):
            return result
        value = result
    # YAML aliases can make the text of a list or mapping extremely long, so the message only names the type.
    description = f"a {type(value).__name__}" if isinstance(value, list | dict) else abbreviated(value)
    if value is None:
        description = "null"  # as in the file
    raise ValueError(f"{source} must be a finite number, not {description}")


def parse_number(text: str, *, source: str) -> float:
    """Parse `text` as a float.

    Raises:
        ValueError: the text is not a finite number.
    """
    try:
        value: object = float(text)
    except ValueError:
        value = text
    return number(value, source=source)


def _percentile(values: Sequence[float], percent: int) -> float:
    """Interpolate with method 7 of Hyndman and Fan, "Sample Quantiles in Statistical Packages" (1996)."""
    ordered = sorted(values)
    position = (len(ordered) - 1) * percent / 100
    index = int(position)
    low, high = ordered[index], ordered[min(index + 1, len(ordered) - 1)]
    return low + (high - low) * (position - index)


_AGGREGATES: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {
    "median": statistics.median,
    "mean": statistics.mean,  # computes with fractions, so that the mean of equal numbers is exactly that number
    "first": itemgetter(0),
    "last": itemgetter(-1),
    "min": min,
    "max": max,
    "sum": math.fsum,
    "count": len,
    **{f"p{percent}": partial(_percentile, percent=percent) for percent in (50, 90, 95, 99)},
}
