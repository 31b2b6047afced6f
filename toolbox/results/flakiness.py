"""How flaky cells are: pass and fail of the same thing, under the same key, and how sure that is.

A key is a revision with the resolved settings, the accelerator and the image. One under which a cell has both passed
and failed is a flake event. Of n keys with at least two runs, of which k are events, the rate of events has the
posterior Beta(k + 1/2, n - k + 1/2): that of Jeffreys' prior (Brown, Cai and DasGupta, Interval Estimation for a
Binomial Proportion, Statistical Science 16, 2001).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

FEWEST_RUNS: Final = 2  # of a key, to show whether the cell is flaky under it
FLAKY_RATE: Final = 0.05  # of 20 such cells, one fails for nothing in most runs (1 - 0.95 ** 20 is 64 %)
FLAKY_EVENTS: Final = 2  # one says little: what runs again under the same key is above all what has just failed
LOWER_QUANTILE: Final = 0.05
BROKEN_RUNS: Final = 3  # a cell that fails every fifth time for nothing does so three times in a row in 1 of 125
CLEAN_KEYS: Final = 20  # a cell that fails under 14 % of its keys or more is clean that often in 1 of 20 (0.86 ** 20)


class State(StrEnum):
    """What the runs of a cell show.

    BROKEN: its latest runs, at least `BROKEN_RUNS`, all failed, and so did all others of their keys. Whether they
        have keys does not matter: what always fails does so whatever the code was.
    OUT_OF_RANGE: as BROKEN, but its latest `BROKEN_RUNS` runs failed only because measured values were out of their
        ranges. The cell does its work, and became slower, or faster.
    FLAKY: it has at least `FLAKY_EVENTS` flake events, and the lower bound of their rate is `FLAKY_RATE` or more.
    SUSPECT: it has flake events, and they are not as clear.
    HEALTHY: it has none, or its latest `CLEAN_KEYS` keys are clean.
    """

    BROKEN = "broken"
    OUT_OF_RANGE = "out of range"
    FLAKY = "flaky"
    SUSPECT = "suspect"
    HEALTHY = "healthy"


@dataclass(frozen=True, slots=True)
class Observation:
    """How a cell ended once; of a cell with several attempts there is one for each.

    Args:
        cell: its id.
        revision: of what was tested; None where it is not known. One that ends in `+` holds changes of no commit.
        settings: the digest of its resolved settings, with the image.
        passed: None where that says nothing of the cell: infrastructure, capacity, an interruption.
        time: by which observations are put in order.
        quarantined: whether the cell was in quarantine then.
        out_of_range: whether it failed only because measured values were out of their ranges.
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
        """What was tested. None where two runs that say the same need not be of the same code."""
        if not self.revision or self.revision.endswith("+"):
            return None
        return f"{self.revision}/{self.accelerator}/{self.settings}"


@dataclass(frozen=True, slots=True)
class FlakeEvent:
    """A key under which a cell has both passed and failed.

    Args:
        passed: the runs in which it passed, in their order, and `failed` those in which it failed.
        time: when it was last run.
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
        name: as its latest run called it.
        keys: how many it has with at least `FEWEST_RUNS` runs.
        events: those that are flake events, the latest last.
        mean: of the posterior of the rate of flake events; None where no key has enough runs.
        lower: its 5 % quantile; 0 without an event.
        clean: how many of its latest keys, in a row, have only passes.
        may_be_released: whether it is in quarantine, and the latest `CLEAN_KEYS` keys that it had there are clean.
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
    """Return how flaky each cell of a project is: the broken ones first, the healthy last, the flakiest of each before.

    What was seen comes in any order. Cells of which nothing was seen that says something are left out: nothing is
    known of them.
    """
    by_cell: dict[str, list[Observation]] = {}
    for observation in sorted(observations, key=lambda observation: observation.time):
        by_cell.setdefault(observation.cell, []).append(observation)
    order = list(State)
    found = [_assess(cell) for cell in by_cell.values() if any(seen.passed is not None for seen in cell)]
    return sorted(
        found, key=lambda cell: (order.index(cell.state), -cell.lower, -(cell.mean or 0), cell.name, cell.cell)
    )


def jeffreys(events: int, keys: int) -> tuple[float, float]:
    """Return the mean and the lower bound of the rate of flake events, where so many of the keys are events.

    The bound is the 5 % quantile of the posterior, and 0 where there is no event, as Brown, Cai and DasGupta have it.
    """
    from scipy.special import betaincinv

    alpha, beta = events + 0.5, keys - events + 0.5
    return alpha / (alpha + beta), float(betaincinv(alpha, beta, LOWER_QUANTILE)) if events else 0.0


def _assess(observations: Sequence[Observation]) -> Flakiness:
    """Return how flaky a cell is, from what was seen of it in the order of time."""
    by_key: dict[str | int, list[Observation]] = {}
    for number, observation in enumerate(observations):
        if observation.passed is not None:
            key = number if observation.key is None else observation.key  # without one, a run stands alone
            by_key[key] = [*by_key.pop(key, ()), observation]  # the key that was run last is the last one
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
    """Return the state of a cell that fails all the time, None for another; a run without a key is a group alone."""
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
    """Return how many of the latest keys, in a row, have only passes."""
    return sum(1 for _ in itertools.takewhile(lambda runs: all(run.passed for run in runs), reversed(keys)))


def _event(runs: Sequence[Observation]) -> FlakeEvent:
    latest = runs[-1]
    passed, failed = ([run.run for run in runs if run.passed is wanted] for wanted in (True, False))
    return FlakeEvent(str(latest.key), str(latest.revision), tuple(passed), tuple(failed), latest.time)
