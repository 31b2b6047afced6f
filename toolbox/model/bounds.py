"""Bounds of a metric: the range that its values are expected in, and which side of it is the better one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

REPORTED_FROM: Final = 5
"""From how many samples on a value out of its bounds is reported."""
GATED_FROM: Final = 10
"""From how many samples on a value out of its bounds fails its cell."""


class Direction(StrEnum):
    """Which values of a metric are better."""

    LOWER = "lower"
    HIGHER = "higher"


class Side(StrEnum):
    """On which side of its bounds a value is."""

    BELOW = "below"
    ABOVE = "above"

    def is_good(self, direction: Direction | None) -> bool:
        """Tell whether a metric of this direction is better there. None is better of one without direction."""
        return direction is not None and (self is Side.BELOW) is (direction is Direction.LOWER)


class Method(StrEnum):
    """Where bounds come from. `toolbox.results.bounds_formulas` has the formulas; `manual` is what a person wrote."""

    TORCHPRIME = "torchprime"
    PREDICTION = "prediction"
    RATIO = "ratio"
    MANUAL = "manual"


@dataclass(frozen=True, slots=True)
class Bound:
    """The bounds of a metric of a cell, and what they were computed from.

    Args:
        lower: None where there is no lower bound; likewise `upper`.
        mean: of the samples; None where a person wrote the bounds without it.
        samples: how many values there were; None where a person wrote the bounds.
        unit: of the numbers; empty for bare ones, None where nobody wrote it: then it is that of the metric.
        confidence: two-sided; None for a method that has none.
        since: when the first of the samples was measured, and `until` the last.
        noise_samples: how many values of earlier levels tell the noise, where the samples are too few for it.
        minimum_detectable_change: the smallest change for the worse that fails a run with a probability of 90%, as a
            share of the mean; None where it has no meaning.
        accepted_since: when the first run of the accepted level started; None where no changed level was accepted.
        accepted_by: the user who accepted the level, and `accepted_reason` why.
        accepted_at: when the level was accepted.
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

    def compared(self, value: float) -> str:
        """Return how far a value is from the usual one, as text that something may follow; empty where it has none."""
        if not self.mean:
            return ""
        percent = 100 * (value - self.mean) / abs(self.mean)
        return f"{abs(percent):.3g} % {'above' if percent > 0 else 'below'} the usual {self.mean:.6g}, and "

    @property
    def origin(self) -> str:
        """Where they come from, as text."""
        if self.samples is None:
            return "as a person wrote them"
        noise = f" and the noise of {self.noise_samples} earlier ones" if self.noise_samples else ""
        return f"from {self.samples} values{noise} by {self.method}"

    @property
    def _values(self) -> int | None:
        """How many values tell how wide the bounds have to be."""
        return self.noise_samples or self.samples

    @property
    def is_reported(self) -> bool:
        """Whether a value out of these bounds is reported: they are a person's, or there were enough samples."""
        return self._values is None or self._values >= REPORTED_FROM

    @property
    def is_gating(self) -> bool:
        """Whether a value out of these bounds fails its cell: they are a person's, or there were enough samples."""
        return self._values is None or self._values >= GATED_FROM

    def is_in(self, unit: str) -> bool:
        """Tell whether values in this unit can be held against these bounds."""
        return self.unit is None or self.unit == unit

    def side(self, value: float) -> Side | None:
        """Return on which side a value is out of bounds; None for one within, the bounds included."""
        if self.lower is not None and value < self.lower:
            return Side.BELOW
        if self.upper is not None and value > self.upper:
            return Side.ABOVE
        return None
