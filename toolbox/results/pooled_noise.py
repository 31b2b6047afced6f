"""How noisy a metric is: the spread of its values about their levels, whatever the levels were.

`comparison` and `bounds` use it. Nothing here reads or writes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from toolbox.results import changes

LATEST: Final = 100
"""Values that tell the noise: older ones belong to another time."""
LARGEST: Final = 1e150
"""The squares of larger numbers overflow."""
LEAST_FREEDOM: Final = 4
"""Degrees of freedom: five values of one level. Fewer do not tell how noisy a metric is."""


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of a metric.

    Args:
        variance: of one value at `level`, the latest level.
        freedom: degrees of freedom of the variance.
        is_relative: whether the noise grows with the level: all levels are above 0, or all are below 0.
    """

    variance: float
    freedom: int
    level: float
    is_relative: bool

    def at(self, level: float) -> float:
        """Return the variance of one value at another level."""
        if self.is_relative and level * self.level > 0:
            ratio = level / self.level
            return self.variance * (ratio * ratio)  # a power of floats raises where it overflows
        return self.variance


def within_levels(values: NDArray[np.float64], confirmed: Sequence[int] = ()) -> Noise | None:
    """Return the pooled noise of the latest values; None where they have too few degrees of freedom.

    Each value deviates from the mean of its own level, as `changes.detect` finds the levels, so a shift adds nothing.
    The variance is the sum of the squared deviations over n - k, for n values on k levels: the pooled variance of
    Student's t-test. Where all levels have one sign, a deviation is taken as a share of its level.

    Args:
        values: in the order of time; those that are too large to compute with are left out.
        confirmed: the places of values that failed their cells. They belong to a level that was not accepted.
    """
    kept = np.delete(values, list(confirmed))
    kept = kept[np.abs(kept) < LARGEST][-LATEST:]
    levels = np.split(kept, [change.index for change in changes.detect(kept)])
    freedom = len(kept) - len(levels)
    if freedom < LEAST_FREEDOM:
        return None
    means = np.array([float(level.mean()) for level in levels])
    is_relative = bool((means > 0).all() or (means < 0).all())
    with np.errstate(over="ignore"):
        scales = np.abs(means[-1] / means) if is_relative else np.ones(len(levels))
        parts = [(level - mean) * scale for level, mean, scale in zip(levels, means, scales, strict=True)]
        variance = sum(float(part @ part) for part in parts) / freedom
    return Noise(variance, freedom, float(means[-1]), is_relative) if math.isfinite(variance) else None
