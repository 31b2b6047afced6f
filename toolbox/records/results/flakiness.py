"""Assesses how flaky cells are: how often the same code both passes and fails, and how certain this is.

A key is a revision with the resolved settings, the accelerator and the image. A key under which a cell has both passed
and failed is a flake event. Let n be the number of keys with at least two runs, and k the number of flake events. With
Jeffreys' prior, the posterior distribution of the rate of flake events is Beta(k + 1/2, n - k + 1/2) (Brown, Cai and
DasGupta, Interval Estimation for a Binomial Proportion, Statistical Science 16, 2001).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

FEWEST_RUNS: Final = 2  # minimum number of runs of a key that can show flakiness
FLAKY_RATE: Final = 0.05  # at this rate, most runs of 20 cells have a random failure (1 - 0.95 ** 20 is 64 %)
FLAKY_EVENTS: Final = 2  # one event shows little, because people usually repeat a cell that has just failed
LOWER_QUANTILE: Final = 0.05
BROKEN_RUNS: Final = 3  # if 1 of 5 runs fails at random, 1 of 125 sequences of three runs has only failures
CLEAN_KEYS: Final = 20  # if 14 % of the keys have failures, 1 of 20 sequences of 20 keys has none (0.86 ** 20)


class State(StrEnum):
    """The state of a cell according to its runs.

    BROKEN: at least the latest `BROKEN_RUNS` runs failed, and so did all other runs under the same keys. Runs without
        a key count too.
    OUT_OF_RANGE: as BROKEN, but the latest `BROKEN_RUNS` runs failed only because measured values were out of their
        ranges. The cell works, but became slower or faster.
    FLAKY: the cell has at least `FLAKY_EVENTS` flake events, whose rate has a lower bound of at least `FLAKY_RATE`.
    SUSPECT: the cell has flake events, but not enough to be FLAKY.
    HEALTHY: the cell has no flake events, or its latest `CLEAN_KEYS` keys are clean.
    """

    BROKEN = "broken"
    OUT_OF_RANGE = "out of range"
    FLAKY = "flaky"
    SUSPECT = "suspect"
    HEALTHY = "healthy"


@dataclass(frozen=True, slots=True)
class Observation:
    """The outcome of one attempt of a cell.

    Args:
        revision: the revision under test; None if unknown. It ends in `+` if it contains uncommitted changes.
        settings: the digest of the resolved settings, with the image.
        passed: whether the attempt passed; None if its outcome says nothing about the cell, for example because the
            infrastructure failed.
        time: the start of the run.
        quarantined: whether the cell was in quarantine in this run.
        out_of_range: whether the attempt failed only because measured values were out of their ranges.
    """

    cell: str
    name: str
    revision: str | None
    accelerator: str
    settings: str
    passed: bool | None
    time: datetime
    run: str
    quarantined: bool = False
    out_of_range: bool = False

    @property
    def key(self) -> str | None:
        """A text that identifies the code and its environment; None if the revision does not identify the code."""
        if not self.revision or self.revision.endswith("+"):
            return None
        return f"{self.revision}/{self.accelerator}/{self.settings}"


@dataclass(frozen=True, slots=True)
class FlakeEvent:
    """A key under which a cell has both passed and failed.

    Args:
        passed: the runs in which the cell passed, in order of time.
        failed: the runs in which the cell failed, in order of time.
        time: when the key was last run.
    """

    key: str
    revision: str
    passed: tuple[str, ...]
    failed: tuple[str, ...]
    time: datetime


@dataclass(frozen=True, slots=True)
class Flakiness:
    """How flaky a cell is.

    Args:
        name: the name of the cell in the latest run.
        keys: the number of keys with at least `FEWEST_RUNS` runs.
        events: the flake events, the latest last.
        mean: the posterior mean of the rate of flake events; None if no key has enough runs.
        lower: the 5 % quantile of this posterior; 0 without an event.
        clean: the number of latest keys, in a row, that have only passes.
        may_be_released: whether the cell is in quarantine, and its latest `CLEAN_KEYS` keys in quarantine are clean.
    """

    cell: str
    name: str
    state: State
    keys: int
    events: tuple[FlakeEvent, ...]
    mean: float | None
    lower: float
    clean: int
    may_be_released: bool


def assess(observations: Iterable[Observation]) -> list[Flakiness]:
    """Return the flakiness of each cell of a project, sorted by state in the order of `State`, then flakiest first.

    The observations may be in any order. Cells of which no attempt passed or failed are omitted.
    """
    by_cell: dict[str, list[Observation]] = {}
    for observation in sorted(observations, key=lambda observation: observation.time):
        by_cell.setdefault(observation.cell, []).append(observation)
    order = list(State)
    cells = [_assess(cell) for cell in by_cell.values() if any(attempt.passed is not None for attempt in cell)]
    return sorted(
        cells, key=lambda cell: (order.index(cell.state), -cell.lower, -(cell.mean or 0), cell.name, cell.cell)
    )


def jeffreys(events: int, keys: int) -> tuple[float, float]:
    """Return the mean and the lower bound of the rate of flake events, given the numbers of flake events and keys.

    The bound is the 5 % quantile of the posterior, and 0 without events, as Brown, Cai and DasGupta recommend.
    """
    from scipy.special import betaincinv

    alpha, beta = events + 0.5, keys - events + 0.5
    return alpha / (alpha + beta), float(betaincinv(alpha, beta, LOWER_QUANTILE)) if events else 0.0


def _assess(observations: Sequence[Observation]) -> Flakiness:
    """Return the flakiness of a cell from its observations, which are in order of time."""
    by_key: dict[str | int, list[Observation]] = {}
    for number, observation in enumerate(observations):
        if observation.passed is not None:
            key = number if observation.key is None else observation.key  # without a key, a run is a group of its own
            by_key[key] = [*by_key.pop(key, ()), observation]  # move the key to the end: keys are sorted by last run
    groups = list(by_key.values())
    keys = [runs for runs in groups if runs[0].key is not None]
    events = tuple(_event(runs) for runs in keys if len({run.passed for run in runs}) > 1)
    judged = sum(len(runs) >= FEWEST_RUNS for runs in keys)
    mean, lower = jeffreys(len(events), judged)
    clean = _clean(keys)
    in_quarantine = itertools.takewhile(lambda runs: all(run.quarantined for run in runs), reversed(keys))
    latest = observations[-1]
    return Flakiness(
        latest.cell,
        latest.name,
        _failing(groups) or _state(len(events), lower, clean),
        judged,
        events,
        mean if judged else None,
        lower,
        clean,
        latest.quarantined and min(clean, sum(1 for _ in in_quarantine)) >= CLEAN_KEYS,
    )


def _failing(groups: Sequence[Sequence[Observation]]) -> State | None:
    """Return the state of a cell that always fails; None for other cells.

    Args:
        groups: the observations of each key; a run without a key is a group of its own.
    """
    failing = itertools.takewhile(lambda runs: not any(run.passed for run in runs), reversed(groups))
    latest = sorted(itertools.chain.from_iterable(failing), key=lambda run: run.time)[-BROKEN_RUNS:]
    if len(latest) < BROKEN_RUNS:
        return None
    return State.OUT_OF_RANGE if all(run.out_of_range for run in latest) else State.BROKEN


def _state(events: int, lower: float, clean: int) -> State:
    if not events or clean >= CLEAN_KEYS:
        return State.HEALTHY
    return State.FLAKY if events >= FLAKY_EVENTS and lower >= FLAKY_RATE else State.SUSPECT


def _clean(keys: Sequence[Sequence[Observation]]) -> int:
    """Return the number of latest keys, in a row, that have only passes."""
    return sum(1 for _ in itertools.takewhile(lambda runs: all(run.passed for run in runs), reversed(keys)))


def _event(runs: Sequence[Observation]) -> FlakeEvent:
    latest = runs[-1]
    passed, failed = ([run.run for run in runs if run.passed is has_passed] for has_passed in (True, False))
    return FlakeEvent(str(latest.key), str(latest.revision), tuple(passed), tuple(failed), latest.time)
