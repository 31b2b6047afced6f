"""Which cell may start next: cells without an attempt, and cells whose next attempt is due."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable, Iterable, Mapping

from toolbox.matrix.cell_progress import CellRun, CellState
from toolbox.matrix.plan import Cell
from toolbox.matrix.pools import FairQueue, Pools
from toolbox.matrix.targets import PlannedTarget


class Admission:
    """The cells that wait for their next attempt, and the room that targets and pools have for them.

    Args:
        jobs: the number of cells that may run at once.
        pools: the capacity of each pool of the whole run, by label.
    """

    def __init__(self, targets: Mapping[str, PlannedTarget], jobs: int, pools: Mapping[str, int]) -> None:
        self._pools = Pools(targets, jobs, pools)
        self._queue = FairQueue()
        self._waiting: dict[str, CellRun] = {}  # in the queue, and with earlier attempts
        self._paused: list[tuple[float, int, CellRun]] = []
        self._blocked: dict[str, list[CellRun]] = {}  # by target
        self._numbers = itertools.count()

    def add(self, cell: Cell) -> None:
        """Let a cell wait for its first attempt in this session."""
        self._queue.add(cell)

    def add_again(self, run: CellRun, *, first: bool = False) -> None:
        """Let a cell wait for another attempt, at the head of the cells of its kind or at their end."""
        run.become(CellState.WAITING)
        self._waiting[run.cell.id] = run
        self._queue.add(run.cell, first=first)

    def add_later(self, run: CellRun, seconds: float) -> None:
        """Let a cell wait for another attempt after a pause."""
        run.become(CellState.PAUSED)
        heapq.heappush(self._paused, (time.monotonic() + seconds, next(self._numbers), run))

    def block(self, run: CellRun) -> None:
        """Let a cell wait until what its last attempt left on its target is removed, or that has been tried."""
        run.become(CellState.BLOCKED)
        self._blocked.setdefault(run.target, []).append(run)

    def unblock(self, target: str) -> None:
        """Let the cells wait for room that waited for the removal of attempts from a target."""
        for run in self._blocked.pop(target, ()):
            self.add_again(run)

    @property
    def blocking(self) -> Iterable[str]:
        """The targets from which attempts have to be removed first."""
        return list(self._blocked)

    def is_idle(self, *, is_stopped: bool) -> bool:
        """Return whether no cell waits that could start later.

        Args:
            is_stopped: whether cells in the queue are not started any more.
        """
        return not (self._paused or self._blocked or (len(self._queue) and not is_stopped))

    def due_in(self, most: float) -> float:
        """Return the seconds until the next pause is over, at most this many."""
        return min(max(self._paused[0][0] - time.monotonic(), 0.0), most) if self._paused else most

    def end_pauses(self) -> None:
        """Let the cells wait for room whose pause is over, before all others of their kind."""
        while self._paused and self._paused[0][0] <= time.monotonic():
            self.add_again(heapq.heappop(self._paused)[2], first=True)

    def next(self) -> tuple[Cell, CellRun | None, str] | None:
        """Return the next cell that has room, with its earlier attempts and the target; None where no cell has room."""
        found = self._queue.next(self._choose)
        if found is None:
            return None
        cell, target = found
        return cell, self._waiting.pop(cell.id, None), target

    def take(self, run: CellRun) -> None:
        """Note that an attempt uses its target."""
        self._pools.take(run.target, run.cell)

    def give_back(self, run: CellRun) -> None:
        """Note that an attempt no longer uses its target."""
        self._pools.give_back(run.target, run.cell)

    def avoid(self, target: str) -> None:
        """Prefer other targets for a while: this one could not be reached."""
        self._pools.avoid(target)

    def trust(self, target: str) -> None:
        """Use a target as any other again: it has answered."""
        self._pools.trust(target)

    def withdraw(self) -> list[CellRun]:
        """Take out all cells that have earlier attempts, and return them."""
        blocked = [run for runs in self._blocked.values() for run in runs]
        found = [*self.withdraw_paused(lambda _: True), *self._waiting.values(), *blocked]
        self._waiting.clear()
        self._blocked.clear()
        return found

    def withdraw_paused(self, is_wanted: Callable[[CellRun], bool]) -> list[CellRun]:
        """Take out some of the cells whose pause is not over, and return them."""
        found = [run for _, _, run in self._paused if is_wanted(run)]
        self._paused = [entry for entry in self._paused if not is_wanted(entry[2])]
        heapq.heapify(self._paused)
        return found

    def _choose(self, cell: Cell) -> str | None:
        earlier = self._waiting.get(cell.id)
        return self._pools.choose(cell, avoid=earlier.target if earlier else "")
