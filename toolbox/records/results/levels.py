"""Finds the values that belong to the accepted level of a series, and whether the level has changed since then.

The bounds of a series are computed from the accepted level, and a new level is accepted only by a person. A value that
failed its cell in two attempts belongs to no accepted level. This module does no I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from toolbox.ground.model.bounds import Bound
from toolbox.records.results import change_points
from toolbox.records.results.change_points import ChangePoint
from toolbox.records.results.segmentation import REACH, SHORTEST
from toolbox.records.results.series import Series


@dataclass(frozen=True, slots=True)
class Level:
    """The accepted level of a series.

    Args:
        begin: the index of the first value of the level.
        indices: the indices of the values from which bounds are computed, in order of time.
        changed: the index at which the current level of the series begins; None if the current level is the accepted
            level.
    """

    begin: int
    indices: tuple[int, ...]
    changed: int | None


def accepted(series: Series, bound: Bound | None) -> Level:
    """Return the accepted level of a series.

    Without bounds, the accepted level begins at the last confirmed change. With bounds, the accepted level is the level
    from which the bounds were computed. A later level that does not differ from the accepted level is part of it.

    Args:
        bound: the bounds in force, in the unit of the series.
    """
    shifts = change_points.detect_latest(series.values)
    begin, last_begin = _begin(series, bound, shifts)
    failed = _failed(series, bound)
    kept: list[int] = []
    changed: int | None = None
    edges = [begin, *(shift.index for shift in shifts if shift.index > last_begin), len(series.values)]
    for number, (first, last) in enumerate(pairwise(edges)):
        stretch = [index for index in range(first, last) if index not in failed]
        if number == 0 or _is_same_level(series, kept, range(first, last)):
            kept, changed = kept + stretch, None
        else:
            changed = first
    if changed is None and len(series.values) - 1 in failed:
        changed = _first_failed(failed, len(series.values) - 1)
    return Level(begin, tuple(kept), changed)


def _begin(series: Series, bound: Bound | None, shifts: Sequence[ChangePoint]) -> tuple[int, int]:
    """Return the index at which the accepted level begins, and the last index at which it may begin.

    The index of a change may move a little when values are added. No level is shorter than `SHORTEST`, so a change
    less than `SHORTEST` values after the recorded start of the level is the start of the level, not of another level.
    """
    if bound is None or bound.since is None:
        begin = max((shift.index for shift in shifts if shift.state is change_points.State.CONFIRMED), default=0)
        return begin, begin
    last_begin = series.first_index_since(bound.since) + SHORTEST - 1
    begin = max((shift.index for shift in shifts if shift.index <= last_begin), default=0)
    if bound.accepted_since is not None:
        first = series.first_index_since(bound.accepted_since)
        last_begin = max(last_begin, first + SHORTEST - 1)
        begin = first if begin < first + SHORTEST else begin
    return begin, last_begin


def _failed(series: Series, bound: Bound | None) -> frozenset[int]:
    """Return the indices of confirmed failures, without those that a person accepted as a new level."""
    if bound is None or bound.accepted_since is None or bound.accepted_at is None:
        return frozenset(series.confirmed)
    since, until = bound.accepted_since, bound.accepted_at
    return frozenset(index for index in series.confirmed if not since <= series.runs[index].started <= until)


def _is_same_level(series: Series, kept: Sequence[int], later: Sequence[int]) -> bool:
    """Return whether later values belong to the level of the kept values: together they show no change of level."""
    if not kept:
        return False
    both = [*kept[-REACH:], *later]
    return not change_points.detect(series.values[both])


def _first_failed(failed: frozenset[int], last: int) -> int:
    """Return the index of the first failure in the sequence of consecutive failures that ends at `last`."""
    while last - 1 in failed:
        last -= 1
    return last
