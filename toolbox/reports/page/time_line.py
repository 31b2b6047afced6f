"""Makes the time line of a run: each phase, group or command has its own row, and cells share lanes."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from toolbox.ground.model.text import counted
from toolbox.reports.page import time_axis
from toolbox.reports.page.step_details import StepCard

_LANE: Final = 14  # pixels
_THINNEST: Final = 3
_HIGHEST: Final = 140
_SAME_MOMENT: Final = 0.01  # seconds: ends are rounded, so a cell may seem to begin before the end of another


@dataclass(frozen=True, slots=True)
class Bar:
    """A step in its row: `left` and `width` in percent of the run, `top` and `height` in pixels."""

    card: StepCard
    left: float
    width: float
    top: float = 0
    height: float = _LANE


@dataclass(frozen=True, slots=True)
class Row:
    """Bars with one label. The height is in pixels."""

    label: str
    depth: int
    bars: Sequence[Bar]
    height: float = _LANE


@dataclass(frozen=True, slots=True)
class TimeLine:
    """The rows of the time line.

    Args:
        ticks: the marks below the rows, each with its position in percent and its text.
    """

    rows: Sequence[Row]
    ticks: Sequence[tuple[float, str]]


@dataclass(frozen=True, slots=True)
class _Span:
    begin: datetime
    seconds: float

    def bar(self, card: StepCard, end: float, top: float = 0, height: float = _LANE) -> Bar:
        begin = self.at(card)
        scale = 100 / self.seconds
        return Bar(card, round(begin * scale, 2), round(max(end - begin, 0) * scale, 2), round(top, 1), height)

    def at(self, card: StepCard) -> float:
        assert card.step.started is not None, "`make` selects the steps that have begun"
        return max(0.0, (card.step.started - self.begin).total_seconds())

    def end(self, card: StepCard) -> float:
        """Return the end of a step in seconds after the start of the run; the end of the run if unknown."""
        seconds = card.step.seconds
        return self.seconds if seconds is None else min(self.seconds, self.at(card) + seconds)


def make(steps: Sequence[StepCard], cells: Sequence[StepCard], now: datetime, *, is_running: bool) -> TimeLine | None:
    """Return the time line; None if no step has begun.

    Args:
        steps: all steps except cells, in their order.
        now: the end of the time line of a run that is still running.
    """
    begun = [card for card in (*steps, *cells) if card.step.started is not None]
    if not begun:
        return None
    begin = min(card.step.started for card in begun if card.step.started)
    ends = [card.step.started + timedelta(seconds=card.step.seconds or 0) for card in begun if card.step.started]
    end = max([*ends, *([now] if is_running else [])])
    span = _Span(begin, max((end - begin).total_seconds(), 0.001))
    rows = []
    cells_in: dict[str, list[StepCard]] = {}
    for cell in cells:
        if cell.step.started is not None:
            cells_in.setdefault(cell.step.step.rpartition("/")[0], []).append(cell)
    for card in steps:
        if card.step.started is not None:
            rows.append(Row(card.step.name, card.step.depth, [span.bar(card, span.end(card))]))
        if inner := cells_in.pop(card.step.step, []):
            rows.append(_lanes(inner, span, card.step.depth + 1))
    rows += [_lanes(inner, span, 0) for inner in cells_in.values()]
    return TimeLine(rows, time_axis.ticks(span.seconds))


def _lanes(cells: Sequence[StepCard], span: _Span, depth: int) -> Row:
    """Return a row with the cells in as few lanes as possible. No two cells of a lane overlap."""
    placed: list[tuple[StepCard, float, int]] = []
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
    return Row(counted(len(cells), "cell"), depth, bars, lanes * height)
