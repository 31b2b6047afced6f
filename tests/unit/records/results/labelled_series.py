"""This module makes random series like those of nightly runs, with labels where a person would see level shifts.

The same seed gives the same series.

A series is a noise of some kind, a baseline that may wander, excursions, and a number of lasting shifts. Some shifts
are too small to be seen: they are in the values but not in the labels, and a detector that reports one is wrong. A
detector is also wrong if it reports spikes, excursions of a few points, drift, or a change of the spread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Rng = np.random.Generator

TOLERANCE: Final = 5  # points
SHORTEST_LEVEL: Final = 8  # points: a shift that returns earlier is an excursion


@dataclass(frozen=True, slots=True)
class Labelled:
    """A series, its kind of noise, and the first point of each level that a person would notice."""

    kind: str
    values: Values
    labels: tuple[int, ...]


def _autocorrelated(rng: Rng, size: int) -> Values:
    """Return noise in which each value contains a part of the previous value."""
    memory, steps = rng.uniform(0.2, 0.7), rng.standard_normal(size)
    for index in range(1, size):
        steps[index] += memory * steps[index - 1]
    return np.asarray(steps * np.sqrt(1 - memory**2))


def _bimodal(rng: Rng, size: int) -> Values:
    """Return noise with two modes, as if the runs used two kinds of machines."""
    other = rng.random(size) < rng.uniform(0.1, 0.5)
    modes = rng.standard_normal(size) + other * rng.uniform(3, 12)
    return np.asarray((modes - modes.mean()) / modes.std())


def _spread_changes(rng: Rng, size: int) -> Values:
    """Return noise whose spread changes between a few stretches and is at most 1."""
    at = np.sort(rng.integers(0, size, rng.integers(1, 4)))
    spreads = rng.uniform(0.3, 1, len(at) + 1)
    return rng.standard_normal(size) * spreads[np.searchsorted(at, np.arange(size), side="right")]


NOISE: Final[dict[str, Callable[[Rng, int], Values]]] = {
    "normal": lambda rng, size: rng.standard_normal(size),
    "heavy tails": lambda rng, size: rng.standard_t(2.5, size) / 1.4,
    "skewed": lambda rng, size: (rng.lognormal(0, 0.6, size) - 1) / 0.7,
    "spikes": lambda rng, size: (
        rng.standard_normal(size) + (rng.random(size) < rng.uniform(0.01, 0.1)) * rng.uniform(5, 30, size)
    ),
    "autocorrelated": _autocorrelated,
    "bimodal": _bimodal,
    "changing spread": _spread_changes,
    "quantised": lambda rng, size: rng.standard_normal(size),  # `series` rounds the sum of noise, baseline and shifts
    "weekly": lambda rng, size: (
        0.8 * rng.standard_normal(size) + rng.uniform(0.5, 1.2) * (np.arange(size) % 7 == rng.integers(7))
    ),
}


def _excursions(rng: Rng, size: int) -> Values:
    """Return zeros with excursions: stretches of one to four points that leave the level and return."""
    result = np.zeros(size)
    for _ in range(rng.poisson(size / 150)):
        begin = rng.integers(size)
        result[begin : begin + rng.integers(1, 5)] = rng.choice([-1, 1]) * rng.uniform(3, 12)
    return result


def _baseline(rng: Rng, size: int) -> Values:
    """Return a baseline that is constant in most series, and drifts or swings slowly in others."""
    shape = rng.random()
    if shape < 0.1:
        return np.linspace(0, rng.uniform(-4, 4), size)
    if shape < 0.2:
        angles = np.arange(size) * 2 * np.pi / rng.uniform(60, 300) + rng.uniform(0, 6)
        return np.asarray(rng.uniform(0.3, 0.9) * np.sin(angles))
    if shape < 0.3:
        return np.asarray(np.cumsum(rng.standard_normal(size)) * rng.uniform(0.03, 0.1))
    return np.zeros(size)


def _shifts(rng: Rng, size: int, count: int) -> tuple[NDArray[np.int64], Values]:
    """Return the points where levels begin and the size of each shift, in spreads of the noise.

    Some shifts are undone days later.
    """
    steps = dict[int, float]()
    for begin in rng.integers(SHORTEST_LEVEL, max(size - SHORTEST_LEVEL, SHORTEST_LEVEL + 1), count).tolist():
        steps[begin] = rng.lognormal(0.8, 0.9) * rng.choice([-1, 1])
        if rng.random() < 0.3:
            steps[begin + int(rng.integers(SHORTEST_LEVEL, 25))] = -steps[begin]
    last, kept = 0, dict[int, float]()
    for index in sorted(steps):
        if last + SHORTEST_LEVEL <= index <= size - SHORTEST_LEVEL:
            last, kept[index] = index, steps[index]
    return np.array(list(kept), dtype=np.int64), np.array(list(kept.values()))


def _seen(step: float, before: int, after: int) -> bool:
    """Return whether a person would see a step between two levels.

    Args:
        step: its height, in spreads of the noise.
        before: the number of points of the level before it.
        after: the number of points of the level after it.
    """
    return abs(step) >= max(2.0, 6 * math.sqrt(1 / before + 1 / after))


def series(kind: str, rng: Rng, *, size: int | None = None, shifts: int | None = None) -> Labelled:
    """Return a series with a kind of noise.

    Args:
        size: the number of points; if None, a random number from 25 to 1000.
        shifts: the number of shifts, visible or not; some are undone later. If None, a random number up to 6.
    """
    size = int(np.clip(rng.lognormal(5.1, 0.7), 25, 1000)) if size is None else size
    at, steps = _shifts(rng, size, min(rng.poisson(1.3), 6) if shifts is None else shifts)
    levels = np.repeat(np.cumsum([0, *steps]), lengths := np.diff([0, *at, size]))
    labels = tuple(
        int(index)
        for index, step, before, after in zip(at, steps, lengths[:-1], lengths[1:], strict=True)
        if _seen(step, before, after)
    )
    spread = rng.lognormal(-4, 0.7)  # as a share of the level: a few percent, as in nightly runs
    shape = levels + _baseline(rng, size) + _excursions(rng, size) + NOISE[kind](rng, size)
    if kind == "quantised":
        grid = rng.uniform(0.4, 3)
        shape = np.round(shape * grid) / grid
    return Labelled(kind, 10 ** rng.uniform(0, 5) * (1 + spread * shape), labels)


def collection(seed: int, count: int, *, size: int | None = None, shifts: int | None = None) -> list[Labelled]:
    """Return `count` series for each kind of noise."""
    rng = np.random.default_rng(seed)
    return [series(kind, rng, size=size, shifts=shifts) for kind in NOISE for _ in range(count)]


@dataclass(frozen=True, slots=True)
class Score:
    """The number of labels that were found, of found points without a label, and of labels that were missed."""

    hits: int = 0
    false: int = 0
    missed: int = 0

    def __add__(self, other: Score) -> Score:
        return Score(self.hits + other.hits, self.false + other.false, self.missed + other.missed)

    @property
    def precision(self) -> float:
        """The share of the found points that have a label."""
        return self.hits / max(1, self.hits + self.false)

    @property
    def recall(self) -> float:
        """The share of the labels that were found."""
        return self.hits / max(1, self.hits + self.missed)

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        return 2 * self.hits / max(1, 2 * self.hits + self.false + self.missed)


def score(labels: Iterable[int], found: Iterable[int]) -> Score:
    """Return how well found points match labels.

    Each label takes the nearest found point within TOLERANCE that no other label has taken.
    """
    left, hits, missed = list(found), 0, 0
    for label in labels:
        near = [point for point in left if abs(point - label) <= TOLERANCE]
        if near:
            left.remove(min(near, key=lambda point: abs(point - label)))
        hits, missed = hits + bool(near), missed + (not near)
    return Score(hits, len(left), missed)
