"""The time line of a run: each phase, group or command has its own row, and cells share lanes."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from toolbox.model.text import duration
from toolbox.reports.page.step_details import Shown

_TICKS: Final = 4
_MOST_DIGITS: Final = 5
_LANE: Final = 14  # pixels
_THINNEST: Final = 3
_HIGHEST: Final = 140
_SAME_MOMENT: Final = 0.01  # seconds; the ends are rounded


@dataclass(frozen=True, slots=True)
class Bar:
    """A step in its row. `left` and `width` are in percent of the run, `top` and `height` in pixels."""

    shown: Shown
    left: float
    width: float
    top: float = 0
    height: float = _LANE


@dataclass(frozen=True, slots=True)
class Row:
    """Bars with one label. `height`: in pixels."""

    label: str
    depth: int
    bars: Sequence[Bar]
    height: float = _LANE


@dataclass(frozen=True, slots=True)
class TimeLine:
    """The rows, and the marks below them: the position of each in percent, and its text."""

    rows: Sequence[Row]
    ticks: Sequence[tuple[float, str]]


@dataclass(frozen=True, slots=True)
class _Span:
    begin: datetime
    seconds: float

    def bar(self, shown: Shown, end: float, top: float = 0, height: float = _LANE) -> Bar:
        begin = self.at(shown)
        scale = 100 / self.seconds
        return Bar(shown, round(begin * scale, 2), round(max(end - begin, 0) * scale, 2), round(top, 1), height)

    def at(self, shown: Shown) -> float:
        assert shown.step.started is not None, "only steps that have begun are here"
        return max(0.0, (shown.step.started - self.begin).total_seconds())

    def end(self, shown: Shown) -> float:
        """Return when a step ended; the end of the run if that is not known."""
        seconds = shown.step.seconds
        return self.seconds if seconds is None else min(self.seconds, self.at(shown) + seconds)


def make(steps: Sequence[Shown], cells: Sequence[Shown], now: datetime, *, is_running: bool) -> TimeLine | None:
    """Return the time line; None if no step has begun.

    Args:
        steps: all steps but the cells, in their order.
        now: the end of the time line of a run that is going on.
    """
    begun = [shown for shown in (*steps, *cells) if shown.step.started is not None]
    if not begun:
        return None
    begin = min(shown.step.started for shown in begun if shown.step.started)
    ends = [shown.step.started + timedelta(seconds=shown.step.seconds or 0) for shown in begun if shown.step.started]
    end = max([*ends, *([now] if is_running else [])])
    span = _Span(begin, max((end - begin).total_seconds(), 0.001))
    rows = []
    inside: dict[str, list[Shown]] = {}
    for cell in cells:
        if cell.step.started is not None:
            inside.setdefault(cell.step.step.rpartition("/")[0], []).append(cell)
    for shown in steps:
        if shown.step.started is not None:
            rows.append(Row(shown.step.name, shown.step.depth, [span.bar(shown, span.end(shown))]))
        if found := inside.pop(shown.step.step, []):
            rows.append(_lanes(found, span, shown.step.depth + 1))
    rows += [_lanes(found, span, 0) for found in inside.values()]
    return TimeLine(rows, _ticks(span.seconds))


def _ticks(seconds: float) -> list[tuple[float, str]]:
    """Return the marks, with as many digits as are needed for rounding not to show."""
    step = seconds / _TICKS
    digits = next(
        (digits for digits in range(1, _MOST_DIGITS) if abs(round(step, digits) - step) <= step / 20), _MOST_DIGITS
    )
    return [(100 * index / _TICKS, duration(step * index, digits)) for index in range(_TICKS + 1)]


def _lanes(cells: Sequence[Shown], span: _Span, depth: int) -> Row:
    """Return the row of cells, in the smallest number of lanes in which no two cells overlap."""
    placed: list[tuple[Shown, float, int]] = []
    busy: list[tuple[float, int]] = []
    lanes = 0
    for cell in sorted(cells, key=span.at):
        end = span.end(cell)
        if busy and busy[0][0] <= span.at(cell) + _SAME_MOMENT:
            lane = busy[0][1]
            heapq.heapreplace(busy, (end, lane))
        else:
            lane, lanes = lanes, lanes + 1
            heapq.heappush(busy, (end, lane))
        placed.append((cell, end, lane))
    height = max(_THINNEST, min(_LANE, _HIGHEST / lanes))
    bars = [span.bar(cell, end, lane * height, round(height - 1, 1)) for cell, end, lane in placed]
    noun = "cell" if len(cells) == 1 else "cells"
    return Row(f"{len(cells)} {noun}", depth, bars, lanes * height)
