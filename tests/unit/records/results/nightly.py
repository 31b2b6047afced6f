"""A simulated cell has nightly runs, each of which is judged by the bounds and followed by their update."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np

from toolbox.ground.model.bounds import Bound, Direction
from toolbox.records.results.bounds_update import Acceptance, Action, BoundsPolicy, Decision
from toolbox.records.results.series import RunReference, Series

BEGAN: Final = datetime(2026, 1, 1, 2, tzinfo=UTC)
HISTORY: Final = 40


@dataclass
class Nights:
    """A cell whose metric is better when it is lower.

    Args:
        seed: the seed of the random values.
        noise: the spread of the values, as a share of their level.
        level: the level of the metric in the next nights.
    """

    seed: int
    noise: float = 0.01
    level: float = 22.0
    bound: Bound | None = None
    values: list[float] = field(default_factory=list)
    confirmed: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    @property
    def now(self) -> datetime:
        """The time ten hours after the latest run."""
        return BEGAN + timedelta(days=len(self.values) - 1, hours=10)

    @property
    def series(self) -> Series:
        """The series of all values so far."""
        runs = tuple(RunReference(f"run-{night}", BEGAN + timedelta(days=night)) for night in range(len(self.values)))
        values = np.array(self.values)
        return Series("p", "3f2a", "x=a", {}, "time", "s", Direction.LOWER, runs, values, tuple(self.confirmed))

    def run(self) -> bool:
        """Measure a value, repeat the measurement if the value is out of bounds, and return whether the cell failed."""
        value, again = self.level * (1 + self.noise * self._rng.standard_normal(2))
        self.values.append(float(value))
        if self.bound is None or not self.bound.is_gating:
            return False
        side = self.bound.side(value)
        if side is None or self.bound.side(again) is not side:
            return False
        self.confirmed.append(len(self.values) - 1)
        return True

    def update(self, *, accept: bool = False, may_widen: bool = False) -> Decision:
        """Update the bounds as a user or a nightly job does, and return the decision."""
        acceptance = Acceptance(lambda _: True, "ada", "a faster kernel", self.now) if accept else None
        decision = BoundsPolicy(acceptance=acceptance, may_widen=may_widen).decide(self.series, self.bound)
        self.bound = decision.after
        return decision

    def nights(self, count: int, level: float | None = None) -> list[bool]:
        """Run and update for some nights, at another level if given; return for each run whether it failed."""
        self.level = level or self.level
        failed = []
        for _ in range(count):
            failed.append(self.run())
            self.update()
        return failed


def with_history(seed: int, noise: float = 0.01, count: int = HISTORY) -> Nights:
    """Return a cell with a history at one level, and with the bounds from this history."""
    nights = Nights(seed, noise)
    for _ in range(count):
        nights.run()
    decision = nights.update()
    assert decision.action is Action.WRITTEN
    return nights
