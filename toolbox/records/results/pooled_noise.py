"""Computes the noise of a metric, which is the spread of its values about their levels. This module does no I/O."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from toolbox.records.results import change_points

LATEST: Final = 100
"""Number of latest values from which the noise is computed: earlier noise may have been different."""
LARGEST: Final = 1e150
"""The largest absolute value of a number: squares of larger numbers would overflow."""
LEAST_FREEDOM: Final = 4
"""Minimum degrees of freedom to compute the noise of a metric: five values on one level have 4."""


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of a metric.

    Args:
        variance: the variance of a single value at `level`.
        freedom: the degrees of freedom of the variance.
        level: the latest level.
        is_relative: whether the noise grows with the level, because all levels have the same sign.
    """

    variance: float
    freedom: int
    level: float
    is_relative: bool

    def at(self, level: float) -> float:
        """Return the variance of a single value at another level."""
        if self.is_relative and level * self.level > 0:
            ratio = level / self.level
            return self.variance * (ratio * ratio)  # `ratio**2` would raise an exception on overflow
        return self.variance


def within_levels(values: NDArray[np.float64], confirmed: Sequence[int] = ()) -> Noise | None:
    """Return the pooled noise of the latest values; None if they have too few degrees of freedom.

    `change_points.detect` finds the levels, and deviations are taken from the mean of each level, so that shifts don't
    count as noise. The variance of n values on k levels is the sum of the squared deviations divided by n - k: the
    pooled variance of Student's t-test. If all levels have the same sign, deviations are relative to their level.

    Args:
        values: the values in order of time. Values that are too large to compute with are omitted.
        confirmed: the indices of values that failed their cells, which are omitted too.
    """
    kept = np.delete(values, list(confirmed))
    kept = kept[np.abs(kept) < LARGEST][-LATEST:]
    levels = np.split(kept, [change.index for change in change_points.detect(kept)])
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
