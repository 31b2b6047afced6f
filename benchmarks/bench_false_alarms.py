"""Computes how often a value is out of bounds although nothing changed: the table of false alarms in docs/bounds.md.

Values are normal with a spread of 5% of their mean. Bounds are computed from many random samples of n values. The rate
is the mean of the exact probabilities that a further value is out of these bounds.
"""

from __future__ import annotations

import math
import sys

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from toolbox.ground.model.bounds import Method
from toolbox.records.results import bounds_formulas

MEAN, SPREAD = 1.0, 0.05
ROUNDS, DRAWS = 20, 50_000


def rates(method: Method, n: int, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return for each sample the probabilities that one value is out of bounds, and that two are on the same side."""
    values = rng.normal(MEAN, SPREAD, (DRAWS, n))
    middle, half = values.mean(axis=1), bounds_formulas.half_width(values, method)
    below, above = ndtr((middle - half - MEAN) / SPREAD), ndtr((MEAN - middle - half) / SPREAD)
    return below + above, below**2 + above**2


def main() -> int:
    """Print the table, and return 1 if the rate of `prediction` differs from its nominal 0.1%."""
    rng = np.random.default_rng(1)
    is_right = True
    print(f"| n | method | out of range | twice, on the same side |\n{'| --- ' * 4}|")
    for n in (5, 10, 30, 100):
        for method in (Method.PREDICTION, Method.TORCHPRIME):
            parts = [rates(method, n, rng) for _ in range(ROUNDS)]
            once, twice = (np.concatenate(column) for column in zip(*parts, strict=True))
            print(f"| {n} | `{method}` | {once.mean():.3%} | {twice.mean():.4%} |", flush=True)
            error = float(once.std()) / math.sqrt(len(once))
            is_right &= method is not Method.PREDICTION or abs(float(once.mean()) - 0.001) < 4 * error
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
