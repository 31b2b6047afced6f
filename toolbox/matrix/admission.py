"""Decides which cell starts next: a cell without an attempt, or a cell whose next attempt is due."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable, Iterable, Iterator

from toolbox.matrix.budget import Budget
from toolbox.matrix.cell_run import CellRun, CellState
from toolbox.matrix.plan import Cell
from toolbox.matrix.pools import FairQueue, Pools


class Admission:
    """The cells that wait for their next attempt.

    Args:
        pools: the free capacity of targets and pools, which this class only reads.
        budget: what the run may still spend, which this class only reads; None for no limit.
    """

    def __init__(self, pools: Pools, budget: Budget | None = None) -> None:
        self._pools = pools
        self._budget = budget
        self._queue = FairQueue()
        self._waiting: dict[str, CellRun] = {}  # the cells in the queue that have earlier attempts, by id
        self._paused: list[tuple[float, int, CellRun]] = []  # a heap, ordered by the end of the pause
        self._blocked: dict[str, list[CellRun]] = {}  # cells by target
        self._numbers = itertools.count()  # orders cells whose pauses end at the same time

    def add(self, cell: Cell) -> None:
        """Queue a cell for its first attempt in this session."""
        self._queue.add(cell)

    def add_again(self, run: CellRun, *, first: bool = False) -> None:
        """Queue a cell for another attempt.

        Args:
            first: put the cell before all cells that need the same resources, not after them.
        """
        run.become(CellState.WAITING)
        self._waiting[run.cell.id] = run
        self._queue.add(run.cell, first=first)

    def add_later(self, run: CellRun, seconds: float) -> None:
        """Queue a cell for another attempt after a pause."""
        run.become(CellState.PAUSED)
        heapq.heappush(self._paused, (time.monotonic() + seconds, next(self._numbers), run))

    def block(self, run: CellRun) -> None:
        """Keep a cell back until the remains of its last attempt have been removed, or the removal has failed once."""
        run.become(CellState.BLOCKED)
        self._blocked.setdefault(run.target, []).append(run)

    def unblock(self, target: str) -> None:
        """Queue the cells that were waiting for the removal of attempts from a target."""
        for run in self._blocked.pop(target, ()):
            self.add_again(run)

    @property
    def blocking(self) -> Iterable[str]:
        """The targets from which attempts must be removed before the blocked cells can start."""
        return list(self._blocked)

    def is_idle(self, *, is_stopped: bool) -> bool:
        """Return whether no waiting cell will start in this session.

        Args:
            is_stopped: whether the cells in the queue are no longer started.
        """
        return not (self._paused or self._blocked or (len(self._queue) and not is_stopped))

    def due_in(self, most: float) -> float:
        """Return the number of seconds until the next pause is over, but at most `most`."""
        return min(max(self._paused[0][0] - time.monotonic(), 0.0), most) if self._paused else most

    def end_pauses(self) -> None:
        """Queue the cells whose pause is over, before the other cells that need the same resources."""
        while self._paused and self._paused[0][0] <= time.monotonic():
            self.add_again(heapq.heappop(self._paused)[2], first=True)

    def next(self) -> tuple[Cell, CellRun | None, str] | None:
        """Remove the next cell that can run now from the queue, and return it.

        Returns:
            The cell, its earlier attempts (None if it has none), and its target; None if no cell can run now.
        """
        chosen = self._queue.next(self._choose)
        if chosen is None:
            return None
        cell, target = chosen
        return cell, self._waiting.pop(cell.id, None), target

    def withdraw_unaffordable(self) -> Iterator[tuple[Cell, CellRun | None]]:
        """Remove cells that would exceed the budget, and yield each with its earlier attempts (None if it has none).

        Only the first cell of each line is examined, because the next cell of the line can only start after it.
        """
        if self._budget is not None:
            for cell in self._queue.remove_first(self._budget.exceeds):
                yield cell, self._waiting.pop(cell.id, None)

    def withdraw(self) -> list[CellRun]:
        """Remove all cells that have earlier attempts, and return them."""
        blocked = [run for runs in self._blocked.values() for run in runs]
        runs = [*self.withdraw_paused(lambda _: True), *self._waiting.values(), *blocked]
        self._waiting.clear()
        self._blocked.clear()
        return runs

    def withdraw_paused(self, matches: Callable[[CellRun], bool]) -> list[CellRun]:
        """Remove the matching cells whose pause is not over, and return them."""
        runs = [run for _, _, run in self._paused if matches(run)]
        self._paused = [entry for entry in self._paused if not matches(entry[2])]
        heapq.heapify(self._paused)
        return runs

    def _choose(self, cell: Cell) -> str | None:
        earlier = self._waiting.get(cell.id)
        refused = self._budget.refused(cell) if self._budget is not None else ()
        return self._pools.choose(cell, last_choice=earlier.target if earlier else "", refused=refused)
