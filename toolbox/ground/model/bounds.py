"""Bounds of a metric: the range in which its values are expected, and which side of the range is better."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

REPORTED_FROM: Final = 5
"""A value out of its bounds is reported if the bounds were computed from at least this number of samples."""
GATED_FROM: Final = 10
"""A value out of its bounds fails its cell if the bounds were computed from at least this number of samples."""


class Direction(StrEnum):
    """Whether lower or higher values of a metric are better."""

    LOWER = "lower"
    HIGHER = "higher"

    def improves(self, before: float, after: float) -> bool:
        """Return whether a value that has changed has become better."""
        return after < before if self is Direction.LOWER else after > before


class Side(StrEnum):
    """Whether a value is below its lower bound or above its upper bound."""

    BELOW = "below"
    ABOVE = "above"

    def is_good(self, direction: Direction | None) -> bool:
        """Return whether a value on this side is better than the bounds; False if the metric has no direction."""
        return direction is not None and (self is Side.BELOW) is (direction is Direction.LOWER)


class Method(StrEnum):
    """The origin of bounds: a formula of `toolbox.records.results.bounds_formulas`, or `manual` if a person wrote
    them.
    """

    TORCHPRIME = "torchprime"
    PREDICTION = "prediction"
    RATIO = "ratio"
    MANUAL = "manual"


@dataclass(frozen=True, slots=True)
class Bound:
    """The bounds of one metric of one cell, and the data that they were computed from.

    Args:
        lower: the lower bound; None if the values are not limited below.
        upper: the upper bound; None if the values are not limited above.
        mean: the mean of the samples; None if a person wrote the bounds without a mean.
        samples: the number of samples; None if a person wrote the bounds.
        unit: the unit of the numbers; empty for bare numbers; None for the unit of the metric.
        confidence: the two-sided confidence level; None if the method does not use a confidence level.
        since: when the first sample was measured.
        noise_samples: the number of values before an accepted change from which the noise was estimated; None if the
            noise was estimated from the samples.
        minimum_detectable_change: the smallest change for the worse that fails a run with a probability of 90%, as a
            share of the mean; None if the mean is 0 or unknown.
        accepted_since: when the first run after an accepted change started; None if no user accepted a change of the
            metric with `results update_bounds`.
    """

    lower: float | None
    upper: float | None
    mean: float | None
    samples: int | None
    method: Method
    unit: str | None = None
    confidence: float | None = None
    since: datetime | None = None
    until: datetime | None = None
    noise_samples: int | None = None
    minimum_detectable_change: float | None = None
    accepted_since: datetime | None = None
    accepted_by: str | None = None
    accepted_reason: str | None = None
    accepted_at: datetime | None = None

    @property
    def range(self) -> str:
        """The range as text, without the unit: `[0.5, 1.5]`."""
        lower, upper = ("-" if bound is None else f"{bound:.6g}" for bound in (self.lower, self.upper))
        return f"[{lower}, {upper}]"

    def deviation_text(self, value: float) -> str:
        """Return how far a value is from the mean, as the beginning of a sentence; empty without a mean."""
        if not self.mean:
            return ""
        percent = 100 * (value - self.mean) / abs(self.mean)
        return f"{abs(percent):.3g} % {'above' if percent > 0 else 'below'} the usual {self.mean:.6g}, and "

    @property
    def origin(self) -> str:
        """The origin of the bounds as text, such as `from 20 values by prediction`."""
        if self.samples is None:
            return "as a person wrote them"
        noise = f" and the noise of {self.noise_samples} earlier ones" if self.noise_samples else ""
        return f"from {self.samples} values{noise} by {self.method}"

    @property
    def _sample_count(self) -> int | None:
        """The number of values that determine the width of the bounds."""
        return self.noise_samples or self.samples

    @property
    def is_reported(self) -> bool:
        """Whether a value out of these bounds is reported: a person wrote them, or `REPORTED_FROM` samples exist."""
        return self._sample_count is None or self._sample_count >= REPORTED_FROM

    @property
    def is_gating(self) -> bool:
        """Whether a value out of these bounds fails its cell: a person wrote them, or `GATED_FROM` samples exist."""
        return self._sample_count is None or self._sample_count >= GATED_FROM

    def is_in(self, unit: str) -> bool:
        """Return whether values in this unit can be compared with these bounds."""
        return self.unit is None or self.unit == unit

    def side(self, value: float) -> Side | None:
        """Return the side on which a value is out of bounds; None if the value is in the range or equals a bound."""
        if self.lower is not None and value < self.lower:
            return Side.BELOW
        if self.upper is not None and value > self.upper:
            return Side.ABOVE
        return None
