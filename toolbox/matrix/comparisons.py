"""Cells that are compared with other cells: when both are known, the checks of the one are judged with the other.

A cell is compared with the outcome of the other cell without that cell's own comparisons.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from toolbox.matrix import judgement
from toolbox.matrix.cell_progress import CellRun, Conclusion
from toolbox.matrix.judgement import NamedCheck
from toolbox.matrix.plan import Cell, Plan
from toolbox.matrix.relations import Relations
from toolbox.model.evidence import Metric, Reference
from toolbox.model.verdicts import Verdict
from toolbox.runs.steps import Outcome


class Comparisons:
    """The comparisons between the cells of one plan."""

    def __init__(self, plan: Plan) -> None:
        self._cells = {cell.id: cell for cell in plan.cells}
        self._relations = Relations(list(plan.combinations.values()))
        self._known: dict[str, tuple[Outcome, Mapping[str, Metric]]] = {}
        self._held: dict[str, list[tuple[CellRun, Conclusion]]] = {}  # by the cell that they wait for

    def note(self, cell: str, outcome: Outcome, metrics: Mapping[str, Metric]) -> None:
        """Record the outcome of a cell, without its comparisons."""
        self._known[cell] = (outcome, metrics)

    def note_end(self, cell: str, outcome: Outcome, metrics: Mapping[str, Metric]) -> None:
        """Record how a cell ended, unless its outcome without comparisons is known."""
        self._known.setdefault(cell, (outcome, metrics))

    def forget(self, cell: str) -> None:
        """Record that another attempt of a cell follows, so that its outcome is not known yet."""
        self._known.pop(cell, None)

    def hold(self, run: CellRun, conclusion: Conclusion) -> bool:
        """Keep a cell that has to wait for another one, and return whether it has to."""
        other = self._awaited(run.cell)
        if other is not None:
            self._held.setdefault(other, []).append((run, conclusion))
        return other is not None

    def compared(self, run: CellRun, conclusion: Conclusion) -> Conclusion:
        """Return a conclusion with the judgements of the checks that compare the cell with other cells."""
        checks = [check for check in run.cell.expectations.checks if self._compares(check, run.cell)]
        judged = judgement.judge(checks, run.directory, conclusion.metrics, partial(self._reference, run.cell))
        return replace(conclusion, judgements=(*conclusion.judgements, *judged))

    def released_by(self, cell: str) -> Iterator[tuple[CellRun, Conclusion]]:
        """Yield the cells that waited for this one and need no other cell any more."""
        for run, conclusion in self._held.pop(cell, ()):
            if not self.hold(run, conclusion):
                yield run, conclusion

    def left(self) -> Iterator[tuple[CellRun, Conclusion, Cell]]:
        """Yield the cells that still wait, each with the cell that it waits for, and keep them no longer."""
        held, self._held = self._held, {}
        for other, waiting in held.items():
            for run, conclusion in waiting:
                yield run, conclusion, self._cells[other]

    def _awaited(self, cell: Cell) -> str | None:
        """Return the first of the cells that this one is compared with whose outcome is not known yet."""
        for check in cell.expectations.checks:
            other = self._relations.other(cell.settings, check.to) if check.to is not None else None
            if other is not None and self._is_to_come(other.id):
                return other.id
        return None

    def _is_to_come(self, identity: str) -> bool:
        """Return whether a cell will have an end of its own, now or when the run is resumed."""
        cell = self._cells.get(identity)
        if cell is None or cell.skip:
            return False
        return identity not in self._known or self._known[identity][0].verdict is Verdict.CANCELLED

    def _compares(self, check: NamedCheck, cell: Cell) -> bool:
        """Return whether a check compares this cell with another cell, and not with itself."""
        if check.to is None:
            return False
        other = self._relations.other(cell.settings, check.to)
        return other is None or other.id != cell.id

    def _reference(self, cell: Cell, to: Mapping[str, Any]) -> Reference:
        other = self._relations.other(cell.settings, to)
        if other is None:
            return Reference(str(dict(to)), fault="there is no such cell", is_missing=True)
        if other.id not in self._known:
            return Reference(other.name, fault="it was not run", is_missing=True)
        outcome, metrics = self._known[other.id]
        is_good = outcome.verdict is Verdict.PASSED
        return Reference(other.name, metrics) if is_good else Reference(other.name, fault=f"it was {outcome.verdict}")
