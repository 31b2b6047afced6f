"""Measures how often `results compare` finds a change, and prints the table of docs/results.md.

Each cell has 1% of normal noise and 30 earlier runs. A slower cell is slower in all runs of the second set. Arguments:
the number of cells per draw (1000), and the number of draws (5).
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np

from toolbox.ground.model.bounds import Direction
from toolbox.records.results.comparison import Change, compare
from toolbox.records.results.series import RunReference, Series

BEGAN: Final = datetime(2026, 1, 1, tzinfo=UTC)
HISTORY: Final = 30
NOISE: Final = 0.01
LOSSES: Final = (0.0, 0.03, 0.05, 0.08)
RUNS: Final = (1, 2, 3, 5)
LEAST_POWER: Final = 0.9  # required share of detected losses of 8%, with two or more runs per set


def counted(cells: int, runs: int, loss: float, rng: np.random.Generator) -> Counter[Change]:
    """Return the number of cells with each change, for `runs` runs per set."""
    count = HISTORY + 2 * runs
    references = tuple(RunReference(f"run-{night}", BEGAN + timedelta(days=night)) for night in range(count))
    values = 100 * (1 + NOISE * rng.standard_normal((cells, count)))
    values[:, -runs:] *= 1 + loss
    history = [
        Series("p", f"{number:06}", f"{number:06}", {}, "time", "s", Direction.LOWER, references, row)
        for number, row in enumerate(values)
    ]
    first, second = slice(HISTORY, HISTORY + runs), slice(HISTORY + runs, None)
    before, after = (
        [replace(each, values=each.values[side], runs=each.runs[side]) for each in history] for side in (first, second)
    )
    return Counter(each.change for each in compare(before, after, history))


def main(cells: int = 1000, draws: int = 5) -> int:
    """Print the table, and return 1 if a limit is exceeded."""
    rng = np.random.default_rng(1)
    is_right = True
    print(f"| loss | runs per set | worse | better | same | unsure | most wrong results in {cells} |\n{'| --- ' * 7}|")
    for loss in LOSSES:
        for runs in RUNS:
            parts = [counted(cells, runs, loss, rng) for _ in range(draws)]
            total = sum(parts, Counter())
            wrong = max(part[Change.BETTER] + (part[Change.WORSE] if not loss else 0) for part in parts)
            shares = " | ".join(
                f"{total[change] / cells / draws:.1%}"
                for change in (Change.WORSE, Change.BETTER, Change.SAME, Change.UNSURE)
            )
            print(f"| {loss:.0%} | {runs} | {shares} | {wrong} |", flush=True)
            is_right &= wrong <= 1
            if loss == max(LOSSES) and runs > 1:
                is_right &= total[Change.WORSE] >= LEAST_POWER * cells * draws
    print(f"within the limits: {'yes' if is_right else 'NO'}")
    return int(not is_right)


if __name__ == "__main__":
    sys.exit(main(*(int(argument) for argument in sys.argv[1:])))
