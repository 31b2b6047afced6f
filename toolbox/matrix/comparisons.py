"""Delays the checks that compare a cell with another cell until the outcome of the other cell is known.

If the other cell has comparisons of its own, its outcome before them is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from toolbox.ground.model.evidence import Evidence, Metric, Reference
from toolbox.ground.model.verdicts import Verdict
from toolbox.matrix import attempt_judgement
from toolbox.matrix.attempt_judgement import NamedCheck
from toolbox.matrix.cell_run import CellRun, Conclusion
from toolbox.matrix.plan import Cell, Plan
from toolbox.matrix.relations import Relations
from toolbox.records.runs.steps import Outcome
from toolbox.targets import staging


class Comparisons:
    """The comparisons between the cells of one plan."""

    def __init__(self, plan: Plan) -> None:
        self._cells = {cell.id: cell for cell in plan.cells}
        self._relations = Relations(plan.combinations)
        self._outcomes: dict[str, tuple[Outcome, Mapping[str, Metric]]] = {}  # by cell id
        self._directories: dict[str, Path | None] = {}  # of the latest attempts, by cell id
        self._postponed: dict[str, list[tuple[CellRun, Conclusion]]] = {}  # by the id of the cell they wait for

    def note(self, cell: str, outcome: Outcome, metrics: Mapping[str, Metric], directory: Path | None) -> None:
        """Record the outcome of a cell before its comparisons.

        Args:
            directory: the directory of the latest attempt; None if the run has no files of the cell.
        """
        self._outcomes[cell] = (outcome, metrics)
        self._directories[cell] = directory

    def note_end(self, cell: str, outcome: Outcome, metrics: Mapping[str, Metric]) -> None:
        """Record the final outcome of a cell, unless `note` has recorded its outcome before comparisons."""
        self._outcomes.setdefault(cell, (outcome, metrics))

    def forget(self, cell: str) -> None:
        """Remove the outcome of a cell, because another attempt of the cell follows."""
        self._outcomes.pop(cell, None)

    def postpone(self, run: CellRun, conclusion: Conclusion) -> bool:
        """Postpone the comparisons of a cell if another cell must end first, and return whether they are postponed."""
        other = self._awaited(run.cell)
        if other is not None:
            self._postponed.setdefault(other, []).append((run, conclusion))
        return other is not None

    def compared(self, run: CellRun, conclusion: Conclusion) -> Conclusion:
        """Return a conclusion with the judgements of the checks that compare the cell with other cells."""
        checks = [check for check in run.cell.expectations.checks if self._compares(check, run.cell)]
        evidence = Evidence(
            run.directory, conclusion.metrics, changed=staging.changed_files(run.cell.workload, run.directory)
        )
        judged = attempt_judgement.judge(checks, evidence, partial(self._reference, run.cell))
        return replace(conclusion, judgements=(*conclusion.judgements, *judged))

    def ready_after(self, cell: str) -> Iterator[tuple[CellRun, Conclusion]]:
        """Yield the cells that were waiting for this cell, unless they must also wait for another cell."""
        for run, conclusion in self._postponed.pop(cell, ()):
            if not self.postpone(run, conclusion):
                yield run, conclusion

    def withdraw(self) -> Iterator[tuple[CellRun, Conclusion, Cell]]:
        """Remove all postponed cells, and yield each with the cell that it waits for."""
        postponed, self._postponed = self._postponed, {}
        for other, waiting in postponed.items():
            for run, conclusion in waiting:
                yield run, conclusion, self._cells[other]

    def _awaited(self, cell: Cell) -> str | None:
        """Return the id of an unfinished cell with which this cell must be compared; None if there is none."""
        for check in cell.expectations.checks:
            other = self._relations.other(cell.settings, check.to) if check.to is not None else None
            if other is not None and self._will_end(other.id):
                return other.id
        return None

    def _will_end(self, identity: str) -> bool:
        """Return whether a cell has not ended yet, but will end in this session or in a resumed run."""
        cell = self._cells.get(identity)
        if cell is None or cell.skip:
            return False
        return identity not in self._outcomes or self._outcomes[identity][0].verdict is Verdict.CANCELLED

    def _compares(self, check: NamedCheck, cell: Cell) -> bool:
        """Return whether a check compares this cell with a cell other than itself."""
        if check.to is None:
            return False
        other = self._relations.other(cell.settings, check.to)
        return other is None or other.id != cell.id

    def _reference(self, cell: Cell, to: Mapping[str, Any]) -> Reference:
        other = self._relations.other(cell.settings, to)
        if other is None:
            return Reference(str(dict(to)), fault="the matrix has no cell with these values", is_missing=True)
        if other.id not in self._outcomes:
            return Reference(other.name, fault="the cell was not run", is_missing=True)
        outcome, metrics = self._outcomes[other.id]
        if outcome.verdict is Verdict.PASSED:
            return Reference(other.name, metrics, directory=self._directories.get(other.id))
        return Reference(other.name, fault=f"its verdict is {outcome.verdict}")
