"""Which values of a series belong to the level that its bounds are for, and whether the level has changed since.

A level that changed is not adopted before a person accepts it, so the bounds say which level is accepted. Values that
failed their cells and were confirmed belong to no accepted level. `bounds_update` calls this, and it is pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from toolbox.model.bounds import Bound
from toolbox.results import bounds_formulas, changes
from toolbox.results.segmentation import REACH, SHORTEST
from toolbox.results.series import Series


@dataclass(frozen=True, slots=True)
class Level:
    """The accepted level of a series.

    Args:
        begin: the place of its first value.
        places: of the values that bounds may be computed from, in the order of time.
        changed: the place where the level begins that the series has now; None where that is the accepted one.
    """

    begin: int
    places: tuple[int, ...]
    changed: int | None


def accepted(series: Series, bound: Bound | None) -> Level:
    """Return the accepted level of a series.

    Without bounds, that is the level after the last confirmed change: there is nothing to protect yet. With bounds, it
    is the level that they were computed from. A later level that does not differ from it is the same level again.

    Args:
        bound: the bounds in force, in the unit of the series.
    """
    found = _changes(series)
    begin, known = _begin(series, bound, found)
    failed = _failed(series, bound)
    kept: list[int] = []
    changed: int | None = None
    edges = [begin, *(place for place, _ in found if place > known), len(series.values)]
    for number, (first, last) in enumerate(pairwise(edges)):
        stretch = [place for place in range(first, last) if place not in failed]
        if number == 0 or _is_same_level(series, kept, range(first, last)):
            kept, changed = kept + stretch, None
        else:
            changed = first
    if changed is None and len(series.values) - 1 in failed:
        changed = _first_failed(failed, len(series.values) - 1)
    return Level(begin, tuple(kept), changed)


def place_since(series: Series, moment: datetime) -> int:
    """Return the place of the first value of a run that started then or later; the number of values where none did."""
    places = (place for place, run in enumerate(series.runs) if run.started >= moment)
    return next(places, len(series.values))


def _changes(series: Series) -> list[tuple[int, changes.State]]:
    offset = max(0, len(series.values) - bounds_formulas.LOOK_BACK)
    return [(offset + change.index, change.state) for change in changes.detect(series.values[offset:])]


def _begin(series: Series, bound: Bound | None, found: Sequence[tuple[int, changes.State]]) -> tuple[int, int]:
    """Return where the accepted level begins, and the last place at which a change belongs to that beginning.

    As values are added, a change may be placed a few values earlier or later than before. No level is shorter than
    `SHORTEST`, so a change that is closer to the beginning than that is the beginning itself.
    """
    if bound is None or bound.since is None:
        begin = max((place for place, state in found if state is changes.State.CONFIRMED), default=0)
        return begin, begin
    known = place_since(series, bound.since) + SHORTEST - 1
    begin = max((place for place, _ in found if place <= known), default=0)
    if bound.accepted_since is not None:
        first = place_since(series, bound.accepted_since)
        known = max(known, first + SHORTEST - 1)
        begin = first if begin < first + SHORTEST else begin
    return begin, known


def _failed(series: Series, bound: Bound | None) -> frozenset[int]:
    """Return the places of confirmed failures, without those that a person accepted as a new level."""
    if bound is None or bound.accepted_since is None or bound.accepted_at is None:
        return frozenset(series.confirmed)
    since, until = bound.accepted_since, bound.accepted_at
    return frozenset(place for place in series.confirmed if not since <= series.runs[place].started <= until)


def _is_same_level(series: Series, kept: Sequence[int], later: Sequence[int]) -> bool:
    """Tell whether values belong to the level of earlier ones: side by side, the two show no change."""
    if not kept:
        return False
    both = [*kept[-REACH:], *later]
    return not changes.detect(series.values[both])


def _first_failed(failed: frozenset[int], last: int) -> int:
    """Return the first of the failures, one after the other, that end with the last one."""
    while last - 1 in failed:
        last -= 1
    return last
