"""Decides how an update changes the bounds of each metric of a cell. docs/bounds.md explains the rules.

`bounds_file` writes the new bounds. This module does no I/O.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final

from toolbox.ground.model.bounds import GATED_FROM, REPORTED_FROM, Bound, Method
from toolbox.records.results import bounds_formulas, levels, pooled_noise
from toolbox.records.results.levels import Level
from toolbox.records.results.pooled_noise import Noise
from toolbox.records.results.series import RunReference, Series

LARGEST_WIDENING: Final = 1.5
"""Bounds may become this many times as wide, relative to their means, without `--allow_wider`."""
_STEADY_CONFIDENCE: Final = 0.95


class Action(StrEnum):
    """What an update does with the bounds of a metric."""

    REFUSED = "refused"  # the bounds stay, and a person must decide
    WRITTEN = "written"
    KEPT = "kept"


@dataclass(frozen=True, slots=True)
class Acceptance:
    """A person's acceptance of changed levels.

    Args:
        covers: returns whether the person accepts the changed level of a series.
        by: the person's name; empty if unknown.
    """

    covers: Callable[[Series], bool]
    by: str
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Decision:
    """What an update does with the bounds of one metric of a cell, and why.

    Args:
        before: the bounds in the file; None if the file has none.
        after: the bounds in the file after the update.
        is_accepted: whether this update accepts a changed level of the metric.
    """

    series: Series
    before: Bound | None
    after: Bound | None
    action: Action
    why: str
    is_accepted: bool = False


@dataclass(frozen=True, slots=True)
class BoundsPolicy:
    """How to update bounds.

    Args:
        method: the formula; `prediction` uses the latest 30 values of the level, the other methods use all values.
        acceptance: the changed levels that a person accepts; None if no level is accepted.
        runs: the runs whose values are used; None for all runs. Levels are always found in the values of all runs.
    """

    method: Method = Method.PREDICTION
    confidence: float = bounds_formulas.CONFIDENCE
    may_widen: bool = False
    acceptance: Acceptance | None = None
    runs: Collection[RunReference] | None = None

    def decide(self, series: Series, before: Bound | None, *, is_manual: bool = False) -> Decision:
        """Decide what to do with the bounds of a metric of a cell.

        Args:
            before: the bounds in force; None if there are none.

        Raises:
            ValueError: a value is too large to compute with. The message does not name the series.
        """
        if is_manual:
            return Decision(series, before, before, Action.KEPT, "manual bounds are never changed")
        current = before if before is not None and before.is_in(series.unit) else None
        level = levels.accepted(series, current)
        if self.acceptance is not None and level.changed is not None and self.acceptance.covers(series):
            return self._accept(series, before, level, self.acceptance)
        if level.changed is not None and current is not None and not _reaches_beyond(current, series, level):
            return Decision(series, before, before, Action.REFUSED, _changed(series, level))
        bound = self._computed(series, level, current)
        if bound is None:
            return Decision(series, before, before, Action.KEPT, _too_few(series, level))
        return self._decide_write(series, before, current, bound, level)

    def _accept(self, series: Series, before: Bound | None, level: Level, acceptance: Acceptance) -> Decision:
        """Decide about the changed level that a person accepts. All its values count, even those that failed cells."""
        assert level.changed is not None
        run = series.runs[level.changed]
        new = Level(level.changed, tuple(range(level.changed, len(series.values))), None)
        bound = self._computed(series, new, None, is_accepted=True)
        if bound is None:
            why = f"the level since {run.run} and the earlier levels have too few values: run the project again"
            return Decision(series, before, before, Action.REFUSED, why)
        bound = replace(
            bound,
            accepted_since=run.started,
            accepted_by=acceptance.by,
            accepted_reason=acceptance.reason,
            accepted_at=acceptance.at,
        )
        times = _widening(before, bound) if before is not None and bound.noise_samples is None else 0.0
        if times > LARGEST_WIDENING and not self.may_widen:
            return Decision(series, before, before, Action.REFUSED, _too_wide(times))
        why = f"{acceptance.by or 'a person'} accepted the level since {run.run}"
        return Decision(series, before, bound, Action.WRITTEN, why, is_accepted=True)

    def _computed(
        self, series: Series, level: Level, current: Bound | None, *, is_accepted: bool = False
    ) -> Bound | None:
        """Return the bounds of a level; None if the level has too few values."""
        indices = [index for index in level.indices if self.runs is None or series.runs[index] in self.runs]
        noise = None
        if is_accepted or (current is not None and current.accepted_since is not None):
            failed = [index for index in series.confirmed if index < level.begin]
            noise = pooled_noise.within_levels(series.values[: level.begin], failed)
        if noise is not None and current is not None and current.accepted_at is not None:
            indices = _steady(series, indices, noise, current.accepted_at)
        indices = indices[-bounds_formulas.WINDOW :] if self.method is Method.PREDICTION else indices
        kept = series.at(indices)

        def bound_by(noise: Noise | None) -> Bound:
            bound = bounds_formulas.computed(kept, self.method, self.confidence, noise)
            return bound if current is None else _with_acceptance(bound, current)

        if noise is not None and 0 < len(indices) < GATED_FROM:
            return bound_by(noise)
        if len(indices) < REPORTED_FROM:
            return None
        bound = bound_by(None)
        if noise is None or current is None or self.may_widen or _widening(current, bound) <= LARGEST_WIDENING:
            return bound
        return bound_by(noise)  # the noise of the new level itself would make the bounds too wide

    def _decide_write(
        self, series: Series, before: Bound | None, current: Bound | None, bound: Bound, level: Level
    ) -> Decision:
        """Decide whether to write computed bounds."""
        if current is not None and bound.mean is not None and current.side(bound.mean) is not None:
            why = f"the mean {bound.mean:.6g} is out of the present bounds: {_accept_hint(series)}"
            return Decision(series, before, before, Action.REFUSED, why)
        if current is not None and not self.may_widen and (times := _widening(current, bound)) > LARGEST_WIDENING:
            return Decision(series, before, before, Action.REFUSED, _too_wide(times))
        if bound == before:
            return Decision(series, before, before, Action.KEPT, "unchanged")
        why = bound.origin
        if level.changed is not None:
            why = f"{why}, without the level since {series.runs[level.changed].run}: {_accept_hint(series)}"
        return Decision(series, before, bound, Action.WRITTEN, why)


def _steady(series: Series, indices: Sequence[int], noise: Noise, accepted_at: datetime) -> list[int]:
    """Return the indices of the values of a new level, without values that are far from the values before them.

    While a level has few values, one slower run that passes moves the mean so far that the next slower run passes too.
    So until there are ten values, a value that was measured after the level was accepted counts only if it is in the
    95% prediction interval of the values before it. The interval is computed with the noise of earlier levels.

    Args:
        indices: the indices of the values of the level.
    """
    kept: list[int] = []
    for index in indices:
        if kept and len(kept) < GATED_FROM and series.runs[index].started > accepted_at:
            lower, upper, _ = bounds_formulas.interval_with_noise(series.values[kept], noise, _STEADY_CONFIDENCE)
            if not lower <= series.values[index] <= upper:
                continue
        kept.append(index)
    return kept


def _reaches_beyond(bound: Bound, series: Series, level: Level) -> bool:
    """Return whether bounds were computed from values after the end of the level, which belong to another level."""
    if not level.indices or bound.until is None:
        return False
    return bound.until > series.runs[level.indices[-1]].started


def _with_acceptance(bound: Bound, current: Bound) -> Bound:
    names = ("accepted_since", "accepted_by", "accepted_reason", "accepted_at")
    return replace(bound, **{name: getattr(current, name) for name in names})


def _widening(before: Bound, after: Bound) -> float:
    """Return the ratio of the widths of new and old bounds, relative to their means; 0 if they cannot be compared."""
    if before.lower is None or before.upper is None or after.lower is None or after.upper is None:
        return 0.0
    if not before.is_gating or not before.is_in(after.unit or ""):
        return 0.0
    widths = before.upper - before.lower, after.upper - after.lower
    if before.mean and after.mean and before.mean * after.mean > 0:
        widths = widths[0] / abs(before.mean), widths[1] / abs(after.mean)
    return widths[1] / widths[0] if widths[0] else (float("inf") if widths[1] else 0.0)


def _too_wide(times: float) -> str:
    return f"the bounds would be {times:.2g} times as wide: allow it with --allow_wider"


def _too_few(series: Series, level: Level) -> str:
    if level.changed is not None:
        return _changed(series, level)
    count = len(level.indices)
    return f"{count} accepted value{'s' * (count != 1)}: bounds need {REPORTED_FROM}"


def _changed(series: Series, level: Level) -> str:
    assert level.changed is not None
    return f"the level has changed since {series.runs[level.changed].run}: {_accept_hint(series)}"


def _accept_hint(series: Series) -> str:
    return f"accept with {shlex.quote(f'--accept={series.name}:{series.metric}')} --reason=WHY"
