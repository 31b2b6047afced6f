"""Tracks the used capacity of targets and pools, and queues the cells that wait for capacity."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from toolbox.matrix.plan import Cell
from toolbox.matrix.targets import PlannedTarget

_JOBS: Final = "jobs"
_UNREACHABLE_SECONDS: Final = 60.0
_MAX_PASSED_OVER: Final = 10


@dataclass(slots=True)
class Pools:
    """The used capacity of each target and of each pool.

    Args:
        jobs: the number of cells that may run at once.
        pools: the capacity of each pool, by the label of the resource.
    """

    targets: Mapping[str, PlannedTarget]
    jobs: int
    pools: Mapping[str, int]
    _unreachable_until: dict[str, float] = field(default_factory=dict)
    _used: Counter[str] = field(default_factory=Counter)
    _used_on: dict[str, Counter[str]] = field(default_factory=dict)

    def choose(self, cell: Cell, last_choice: str = "", *, refused: Collection[str] = ()) -> str | None:
        """Return the least loaded target with enough free capacity for a cell; None if no target has enough now.

        Args:
            last_choice: a target to use only if no other target is free, because the cell has failed there.
            refused: targets that the cell must not use now.
        """
        if self._used[_JOBS] >= self.jobs or not _has_room(self._used, self.pools, cell.resources):
            return None
        now = time.monotonic()
        reachable = [name for name in cell.targets if self._unreachable_until.get(name, now) <= now]
        needs = {**cell.resources, _JOBS: 1}
        free = [
            name
            for name in reachable or cell.targets
            if name not in refused and _has_room(self._usage(name), self.targets[name].capacity, needs)
        ]
        return min(free, key=lambda name: (name == last_choice, self._load(name)), default=None)

    def reserve(self, target: str, cell: Cell) -> None:
        """Record that a cell uses capacity of a target."""
        for used in (self._used, self._usage(target)):
            used.update({**cell.resources, _JOBS: 1})

    def release(self, target: str, cell: Cell) -> None:
        """Record that a cell no longer uses capacity of a target."""
        for used in (self._used, self._usage(target)):
            used.subtract({**cell.resources, _JOBS: 1})

    def mark_unreachable(self, target: str) -> None:
        """For a while, don't use a target that refuses attempts, unless all targets of a cell do.

        Attempts on such a target fail fast, so the target would look free and get all cells.
        """
        self._unreachable_until[target] = time.monotonic() + _UNREACHABLE_SECONDS

    def mark_reachable(self, target: str) -> None:
        """Use a target normally again."""
        self._unreachable_until.pop(target, None)

    def _usage(self, target: str) -> Counter[str]:
        return self._used_on.setdefault(target, Counter())

    def _load(self, target: str) -> float:
        return self._usage(target)[_JOBS] / self.targets[target].capacity.get(_JOBS, 1)


def _has_room(used: Mapping[str, int], capacity: Mapping[str, int], needs: Mapping[str, int]) -> bool:
    return all(used.get(label, 0) + count <= capacity[label] for label, count in needs.items() if label in capacity)


@dataclass(slots=True)
class _Line:
    """Cells that need the same resources.

    Args:
        passed_over: how often a cell of another line started while cells of this line were waiting.
    """

    targets: frozenset[str]
    cells: deque[Cell] = field(default_factory=deque)
    passed_over: int = 0

    def yields_to(self, other: _Line) -> bool:
        """Return whether this line must leave shared targets to another line, which has waited too long."""
        return self is not other and other.passed_over >= _MAX_PASSED_OVER and bool(self.targets & other.targets)


class FairQueue:
    """The waiting cells. Cells that need the same resources wait in one line, and the lines take turns.

    Cells with small needs may start before earlier cells with large needs. After a line was passed over ten times, the
    other lines do not use the targets of that line until one of its cells has started.
    """

    def __init__(self) -> None:
        self._lines: dict[object, _Line] = {}
        self._turns: deque[_Line] = deque()

    def __len__(self) -> int:
        return sum(len(line.cells) for line in self._turns)

    def add(self, cell: Cell, *, first: bool = False) -> None:
        """Add a waiting cell to its line.

        Args:
            first: add the cell at the head of the line, not at the end.
        """
        key = (cell.targets, tuple(sorted(cell.resources.items())))
        if key not in self._lines:
            self._lines[key] = _Line(frozenset(cell.targets))
            self._turns.append(self._lines[key])
        cells = self._lines[key].cells
        (cells.appendleft if first else cells.append)(cell)

    def remove_first(self, matches: Callable[[Cell], bool]) -> Iterator[Cell]:
        """Remove the matching cells at the heads of all lines, and yield them."""
        for line in self._turns:
            while line.cells and matches(line.cells[0]):
                yield line.cells.popleft()

    def next(self, choose: Callable[[Cell], str | None]) -> tuple[Cell, str] | None:
        """Remove the next cell that can run now, and return the cell and its target; None if no cell can run now.

        Args:
            choose: returns the target for a cell; None if no target is free.
        """
        waiting = [line for line in self._turns if line.cells]
        starved = max(waiting, key=lambda line: line.passed_over, default=None)
        for _ in range(len(self._turns)):
            line = self._turns[0]
            self._turns.rotate(-1)
            if not line.cells or (starved is not None and line.yields_to(starved)):
                continue
            if (target := choose(line.cells[0])) is not None:
                for other in self._turns:
                    other.passed_over += bool(other.cells) and other is not line
                line.passed_over = 0
                return line.cells.popleft(), target
        return None
