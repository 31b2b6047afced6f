"""Computes what each attempt of a run costs: its share of the time of its target, times the price of the target."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from toolbox.ground.model.prices import SECONDS_PER_HOUR
from toolbox.records.runs.run_state import CellAttempt, StepState

_THIS_MACHINE: Final = "local"  # the backend


class Purpose(StrEnum):
    """Why an attempt was executed.

    FIRST: it is the first attempt of the cell.
    RETRY: an earlier attempt failed, was interrupted or was given up.
    CONFIRMATION: the attempt before it had a value out of its range, which another attempt must confirm.
    """

    FIRST = "first"
    RETRY = "retry"
    CONFIRMATION = "confirmation"


@dataclass(frozen=True, slots=True)
class Charge:
    """What an attempt is charged for.

    Args:
        seconds: the share of the attempt in the time of its target; None if the time is unknown.
        cost: None if the time or the price is unknown.
    """

    seconds: float | None = None
    cost: float | None = None


Key = tuple[str, int]
"""The directory of a step, and the number of an attempt."""


def of(steps: Iterable[StepState], targets: Mapping[str, Any]) -> dict[Key, Charge]:
    """Return the charge of each attempt of a run.

    Attempts that are on the same target at the same time share the price of the target, unless each attempt rents
    accelerators of its own.

    Args:
        targets: the targets in `plan.json`, by name.
    """
    by_target: dict[tuple[str, str], list[tuple[Key, CellAttempt]]] = {}
    for step in steps:
        for attempt in step.attempts:
            # In a merged run, the target `local` is another machine for each shard.
            host = attempt.host if targets.get(attempt.target, {}).get("backend") == _THIS_MACHINE else ""
            by_target.setdefault((attempt.target, host), []).append(((step.step, attempt.attempt), attempt))
    charges: dict[Key, Charge] = {}
    for (name, _), attempts in by_target.items():
        target = targets.get(name, {})
        price = price_of(target)
        charges |= {key: Charge() for key, _ in attempts}
        timed = [(key, attempt) for key, attempt in attempts if paid_seconds(attempt) is not None]
        charged = _charged_seconds([attempt for _, attempt in timed], shared=bool(target.get("shares_price", True)))
        for (key, _), seconds in zip(timed, charged, strict=True):
            charges[key] = Charge(seconds, None if price is None else seconds / SECONDS_PER_HOUR * price)
    return charges


def _charged_seconds(attempts: Sequence[CellAttempt], *, shared: bool) -> list[float]:
    """Return the seconds that each attempt on one target is charged for. The time of all attempts is known."""
    paid = [paid_seconds(attempt) or 0.0 for attempt in attempts]
    if not shared:
        return paid
    begins = [attempt.submitted.timestamp() for attempt in attempts]
    return shares([(begin, begin + seconds) for begin, seconds in zip(begins, paid, strict=True)])


def paid_seconds(attempt: CellAttempt) -> float | None:
    """Return the time for which a target cost money because of an attempt; None if the time is unknown."""
    return attempt.seconds if attempt.paid_seconds is None else attempt.paid_seconds


def price_of(target: Mapping[str, Any]) -> float | None:
    """Return the price of a target in `plan.json` per hour; None if it is unknown."""
    price = target.get("cost_per_hour")
    if isinstance(price, bool) or not isinstance(price, int | float) or not math.isfinite(price) or price < 0:
        return None
    return float(price)


def purposes(attempts: Sequence[CellAttempt]) -> list[Purpose]:
    """Return why each attempt of a cell was executed."""
    found = [Purpose.FIRST] * bool(attempts)
    for earlier in attempts[:-1]:
        found.append(Purpose.CONFIRMATION if earlier.deviations else Purpose.RETRY)
    return found


def shares(intervals: Sequence[tuple[float, float]]) -> list[float]:
    """Return the share of each attempt in the time of a target. Attempts that overlap share the time evenly.

    Args:
        intervals: the start and end of each attempt, in seconds.
    """
    changes = sorted([(begin, 1) for begin, _ in intervals] + [(end, -1) for _, end in intervals])
    each = {moment: 0.0 for moment, _ in changes}  # the share, until each moment, of an attempt that is always running
    total, present = 0.0, 0
    for (moment, change), (later, _) in itertools.pairwise(changes):
        present += change
        total += (later - moment) / present if present else 0.0
        each[later] = total
    return [each[end] - each[begin] for begin, end in intervals]
