"""Reads the samples of the CPU, memory and GPU use of a notebook, and reduces them to lines of limited length.

A target has written the CSV file, so its size, order and numbers can be anything. A line keeps the lowest and the
highest number of each short interval, so that no peak is lost.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

BINS: Final = 200  # intervals of a line
MAX_GPUS: Final = 8
MAX_ROWS: Final = 2_000_000
_LONGEST_LINE: Final = 4096  # characters
_LARGEST: Final = 1e15  # a larger number is not a sample
_COLUMN: Final = re.compile(r"cpu_percent|memory_bytes|gpu[0-9]{1,2}_(?:percent|memory_bytes)")
Point = tuple[float, float]


@dataclass(slots=True)
class Series:
    """The samples of a column. `points` are times and numbers in the order of time."""

    highest: float = 0.0
    _bins: dict[int, tuple[Point, Point]] = field(default_factory=dict)

    def add(self, index: int, point: Point) -> None:
        """Add a sample to an interval."""
        low, high = self._bins.get(index, (point, point))
        self._bins[index] = (min(low, point, key=_number), max(high, point, key=_number))
        self.highest = max(self.highest, point[1])

    @property
    def points(self) -> Sequence[Point]:
        """The lowest and the highest sample of each interval."""
        return [point for index in sorted(self._bins) for point in sorted(set(self._bins[index]))]


@dataclass(slots=True)
class RowBudget:
    """The number of further rows that may be read for a page. The files of a page may be very long."""

    left: int = MAX_ROWS


def read(file: Path, begin: float, end: float, budget: RowBudget | None = None) -> dict[str, Series]:
    """Return the samples between two times, by column; empty if the file cannot be read.

    The last sample before `begin` and the first sample after `end` are moved to these times, so that the line of a
    short notebook has at least two points.

    Args:
        begin: in seconds since 1970.
    """
    series: dict[str, Series] = {}
    outer: dict[tuple[str, float], Point] = {}  # the sample that is nearest to `begin` or `end`, by column
    with suppress(OSError, ValueError):
        for time, numbers in _rows(file, budget or RowBudget()):
            nearest = min(max(begin, time), end)
            index = min(BINS - 1, int(BINS * (nearest - begin) / max(end - begin, 1e-6)))
            for name, number in numbers.items():
                if nearest == time:
                    series.setdefault(name, Series()).add(index, (time, number))
                elif abs(nearest - time) < outer.get((name, nearest), (math.inf, 0.0))[0]:
                    outer[name, nearest] = (abs(nearest - time), number)
    for (name, nearest), (_, number) in outer.items():
        series.setdefault(name, Series()).add(0 if nearest == begin else BINS - 1, (nearest, number))
    return series


def _number(point: Point) -> float:
    return point[1]


def _rows(file: Path, budget: RowBudget) -> Iterator[tuple[float, Mapping[str, float]]]:
    with file.open(encoding="utf-8", errors="replace") as stream:
        header = stream.readline(_LONGEST_LINE).rstrip("\n").split(",")
        columns = {index: name for index, name in enumerate(header) if _COLUMN.fullmatch(name)}
        if "time" not in header:
            return
        at = header.index("time")
        while budget.left > 0 and (line := stream.readline(_LONGEST_LINE)):
            budget.left -= 1
            values = line.rstrip("\n").split(",")
            time = _parsed(values[at]) if at < len(values) else None
            if time is not None:
                pairs = ((name, _parsed(values[index])) for index, name in columns.items() if index < len(values))
                yield time, {name: number for name, number in pairs if number is not None}


def _parsed(text: str) -> float | None:
    """Return a number; None if the text is not a number that a sample can have."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and 0 <= number <= _LARGEST else None
