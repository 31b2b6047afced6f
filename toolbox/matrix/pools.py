"""Who may run now: what the targets and the pools have left, and whose turn it is."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from toolbox.matrix.plan import Cell
from toolbox.matrix.targets import Target

_JOBS: Final = "jobs"


@dataclass(slots=True)
class Pools:
    """What is in use, of the targets and of the pools of the whole run.

    Args:
        jobs: how many cells may run at once.
        pools: how much of each label they may have together.
    """

    targets: Mapping[str, Target]
    jobs: int
    pools: Mapping[str, int]
    _used: Counter[str] = field(default_factory=Counter)
    _used_on: dict[str, Counter[str]] = field(default_factory=dict)

    def choose(self, cell: Cell, avoid: str = "") -> str | None:
        """Return the target with the least to do that has room for a cell; None where there is none now.

        Args:
            avoid: a target to take only where there is no other: the cell has failed there.
        """
        if self._used[_JOBS] >= self.jobs or not _has_room(self._used, self.pools, cell.resources):
            return None
        needs = {**cell.resources, _JOBS: 1}
        free = [name for name in cell.targets if _has_room(self._on(name), self.targets[name].capacity, needs)]
        return min(free, key=lambda name: (name == avoid, self._load(name)), default=None)

    def take(self, target: str, cell: Cell) -> None:
        """Note that a cell runs on a target."""
        for used in (self._used, self._on(target)):
            used.update({**cell.resources, _JOBS: 1})

    def give_back(self, target: str, cell: Cell) -> None:
        """Note that it does no more."""
        for used in (self._used, self._on(target)):
            used.subtract({**cell.resources, _JOBS: 1})

    def _on(self, target: str) -> Counter[str]:
        return self._used_on.setdefault(target, Counter())

    def _load(self, target: str) -> float:
        return self._on(target)[_JOBS] / self.targets[target].capacity.get(_JOBS, 1)


def _has_room(used: Mapping[str, int], capacity: Mapping[str, int], needs: Mapping[str, int]) -> bool:
    return all(used.get(label, 0) + count <= capacity[label] for label, count in needs.items() if label in capacity)


class FairQueue:
    """The cells that wait. Those that need the same wait in one line, and the lines take turns."""

    def __init__(self) -> None:
        self._lines: dict[object, deque[Cell]] = {}
        self._turns: deque[object] = deque()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, cell: Cell, *, first: bool = False) -> None:
        """Have a cell wait: at the end of its line, or at its head."""
        key = (cell.targets, tuple(sorted(cell.resources.items())))
        if key not in self._lines:
            self._lines[key] = deque()
            self._turns.append(key)
        line = self._lines[key]
        (line.appendleft if first else line.append)(cell)
        self._length += 1

    def next(self, choose: Callable[[Cell], str | None]) -> tuple[Cell, str] | None:
        """Return the next cell for which there is a target, and that; None where nobody can run now."""
        for _ in range(len(self._turns)):
            key = self._turns[0]
            self._turns.rotate(-1)
            line = self._lines[key]
            if line and (target := choose(line[0])) is not None:
                self._length -= 1
                return line.popleft(), target
        return None
