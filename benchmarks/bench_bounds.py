"""Simulates nightly runs with an update of the bounds after each run, and prints the tables of docs/bounds.md.

A cell has 40 nights at one level. Then, in the first table, its level becomes worse, and no person accepts the new
level. In the second table, its level improves by 10%, a person accepts that after some nights, and a loss of 5% follows
at once. A night fails if both of its attempts are out of bounds. Argument: the number of cells of each kind (100).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.unit.records.results.nightly import with_history  # importable because of `sys.path` above

NIGHTS: Final = 30
LEVEL: Final = 22.0
LOSSES: Final = (0.0, 0.03, 0.05, 0.08)
LEAST_FAILED: Final = 0.99  # required share of failed nights with a loss of 8%


def unaccepted(cells: int, loss: float) -> tuple[float, float, float]:
    """Return the share of cells that fail in the first night, in all nights, and in the last night."""
    failed = np.array([with_history(seed).nights(NIGHTS, (1 + loss) * LEVEL) for seed in range(cells)])
    return float(failed[:, 0].mean()), float(failed.mean()), float(failed[:, -1].mean())


def accepted(cells: int, noise: float, count: int) -> tuple[float, float, float]:
    """Return the half-width of the bounds of a level that was accepted after `count` nights, and two shares.

    The first share is the share of cells that fail in the first night with a loss of 5%, the second share is the share
    of failures in ten such nights.
    """
    widths, failed = [], []
    for seed in range(cells):
        nights = with_history(seed, noise)
        nights.nights(count, 0.9 * LEVEL)
        bound = nights.update(accept=True).after
        assert bound is not None
        assert bound.upper is not None
        assert bound.mean is not None
        widths.append(bound.upper / bound.mean - 1)
        failed.append(nights.nights(10, 1.05 * 0.9 * LEVEL))
    return float(np.mean(widths)), float(np.mean([each[0] for each in failed])), float(np.mean(failed))


def main(cells: int = 100) -> int:
    """Print the tables, and return 1 if a limit is exceeded."""
    is_right = True
    print(f"| noise | loss that no person accepted | first night fails | all {NIGHTS} nights | night {NIGHTS} |")
    print("| --- " * 5 + "|")
    for loss in LOSSES:
        shares = unaccepted(cells, loss)
        print(f"| 1% | {loss:.0%} | {' | '.join(f'{share:.1%}' for share in shares)} |", flush=True)
        is_right &= loss < max(LOSSES) or min(shares) >= LEAST_FAILED
    print("\n| noise | values when accepted | half-width | first night with a loss of 5% fails | ten nights |")
    print("| --- " * 5 + "|")
    for noise in (0.005, 0.01):
        for count in (1, 2, 4, 9):
            width, first, every = accepted(cells, noise, count)
            print(f"| {noise:.1%} | {count} | {width:.1%} | {first:.0%} | {every:.0%} |", flush=True)
            is_right &= count == 1 or width < 0.05  # noqa: PLR2004  # from the second night on
    print(f"within the limits: {'yes' if is_right else 'NO'}")
    return int(not is_right)


if __name__ == "__main__":
    sys.exit(main(*(int(argument) for argument in sys.argv[1:])))
