"""Decides which cell may run next: tracks the free capacity of targets and pools, and queues the waiting cells."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from toolbox.matrix.plan import Cell
from toolbox.matrix.targets import PlannedTarget

_JOBS: Final = "jobs"
_OUT_SECONDS: Final = 60.0
_MOST_PASSED_OVER: Final = 10


@dataclass(slots=True)
class Pools:
    """The capacity in use, per target and per pool of the whole run.

    Args:
        jobs: how many cells may run at once.
        pools: how much of each resource all cells together may take, by label.
    """

    targets: Mapping[str, PlannedTarget]
    jobs: int
    pools: Mapping[str, int]
    _out_until: dict[str, float] = field(default_factory=dict)
    _used: Counter[str] = field(default_factory=Counter)
    _used_on: dict[str, Counter[str]] = field(default_factory=dict)

    def choose(self, cell: Cell, avoid: str = "") -> str | None:
        """Return the least loaded target that has room for a cell; None if there is none now.

        Args:
            avoid: a target to use only if there is no other, because the cell has failed there.
        """
        if self._used[_JOBS] >= self.jobs or not _has_room(self._used, self.pools, cell.resources):
            return None
        now = time.monotonic()
        healthy = [name for name in cell.targets if self._out_until.get(name, now) <= now]
        needs = {**cell.resources, _JOBS: 1}
        free = [
            name for name in healthy or cell.targets if _has_room(self._usage(name), self.targets[name].capacity, needs)
        ]
        return min(free, key=lambda name: (name == avoid, self._load(name)), default=None)

    def take(self, target: str, cell: Cell) -> None:
        """Record that a cell runs on a target."""
        for used in (self._used, self._usage(target)):
            used.update({**cell.resources, _JOBS: 1})

    def give_back(self, target: str, cell: Cell) -> None:
        """Record that a cell does not run on a target any more."""
        for used in (self._used, self._usage(target)):
            used.subtract({**cell.resources, _JOBS: 1})

    def avoid(self, target: str) -> None:
        """For a while, use an unreachable target only if there is no other: it fails fast, and so looks free."""
        self._out_until[target] = time.monotonic() + _OUT_SECONDS

    def trust(self, target: str) -> None:
        """Use a target normally again: it has answered."""
        self._out_until.pop(target, None)

    def _usage(self, target: str) -> Counter[str]:
        return self._used_on.setdefault(target, Counter())

    def _load(self, target: str) -> float:
        return self._usage(target)[_JOBS] / self.targets[target].capacity.get(_JOBS, 1)


def _has_room(used: Mapping[str, int], capacity: Mapping[str, int], needs: Mapping[str, int]) -> bool:
    return all(used.get(label, 0) + count <= capacity[label] for label, count in needs.items() if label in capacity)


@dataclass(slots=True)
class _Line:
    """Cells that need the same resources. `passed_over`: how often other cells started while these waited."""

    targets: frozenset[str]
    cells: deque[Cell] = field(default_factory=deque)
    passed_over: int = 0

    def yields_to(self, other: _Line) -> bool:
        """Return whether these cells must leave shared targets to a line that has waited too long."""
        return self is not other and other.passed_over >= _MOST_PASSED_OVER and bool(self.targets & other.targets)


class FairQueue:
    """The waiting cells. Cells that need the same resources wait in one line, and the lines take turns.

    Lines with small needs pass over a line with large needs. After a line was passed over ten times, the other lines
    don't use its targets until one of its cells has started.
    """

    def __init__(self) -> None:
        self._lines: dict[object, _Line] = {}
        self._turns: deque[_Line] = deque()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, cell: Cell, *, first: bool = False) -> None:
        """Add a waiting cell at the end of its line, or at the head of it."""
        key = (cell.targets, tuple(sorted(cell.resources.items())))
        if key not in self._lines:
            self._lines[key] = _Line(frozenset(cell.targets))
            self._turns.append(self._lines[key])
        cells = self._lines[key].cells
        (cells.appendleft if first else cells.append)(cell)
        self._length += 1

    def next(self, choose: Callable[[Cell], str | None]) -> tuple[Cell, str] | None:
        """Return the next cell for which there is a target, and the target; None if no cell can run now."""
        waiting = [line for line in self._turns if line.cells]
        starved = max(waiting, key=lambda line: line.passed_over, default=None)
        for _ in range(len(self._turns)):
            line = self._turns[0]
            self._turns.rotate(-1)
            if not line.cells or (starved is not None and line.yields_to(starved)):
                continue
            if (target := choose(line.cells[0])) is not None:
                self._length -= 1
                for other in self._turns:
                    other.passed_over += bool(other.cells) and other is not line
                line.passed_over = 0
                return line.cells.popleft(), target
        return None
