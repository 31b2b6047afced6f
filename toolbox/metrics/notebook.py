"""Reads the time or the memory of a notebook or of one of its cells, which the notebook worker has measured.

A notebook that did not pass has no values, because values of a part of a notebook cannot be compared with earlier runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

from toolbox.model.text import truncate
from toolbox.notebook_worker.notebook_results import TestKind, TestOutcome
from toolbox.notebooks import result_records
from toolbox.notebooks.result_records import CellResult, ResultRecord
from toolbox.runs.evidence_files import RelativeFile

Figure = Literal["seconds", "cpu_seconds", "peak_memory_bytes"]


class Source(BaseModel):
    """The notebook, the figure, and the cell.

    Args:
        notebook: the name of the notebook.
        cell: the number of the code cell, from 1, or its id as a text; None for the whole notebook: the sum of the
            times of its cells, or their highest memory.
        file: the results of the worker.
    """

    model_config = ConfigDict(extra="forbid")

    notebook: str = Field(min_length=1)
    figure: Figure = "seconds"
    cell: Annotated[StrictInt, Field(ge=0)] | Annotated[StrictStr, Field(min_length=1)] | None = None
    file: RelativeFile = result_records.RESULTS_FILE

    def read(self, directory: Path) -> float:
        """Return the figure.

        Raises:
            ValueError: the file cannot be read, the notebook did not pass, or the figure is not known.
        """
        cells = self._cells(self._result(directory))
        values = [value for cell in cells if (value := getattr(cell, self.figure)) is not None]
        if not values or (len(values) < len(cells) and self.figure != "peak_memory_bytes"):
            raise ValueError(f"{self.file}: {self.figure} of {self._title} is not known")
        return float(max(values) if self.figure == "peak_memory_bytes" else sum(values))

    @property
    def _title(self) -> str:
        name = repr(truncate(self.notebook))
        return name if self.cell is None else f"cell {self.cell!r} of {name}"

    def _result(self, directory: Path) -> ResultRecord:
        """Return the only result of the notebook."""
        results = [
            result
            for result in result_records.read(directory, self.file)
            if isinstance(result, ResultRecord) and (result.kind, result.name) == (TestKind.NOTEBOOK, self.notebook)
        ]
        if len(results) != 1:
            count = "no result" if not results else f"{len(results)} results"
            raise ValueError(f"{self.file} has {count} of the notebook {truncate(self.notebook)!r}")
        (result,) = results
        if result.outcome is not TestOutcome.PASSED:
            raise ValueError(f"{self.file}: the notebook {truncate(self.notebook)!r} did not pass")
        return result

    def _cells(self, result: ResultRecord) -> Sequence[CellResult]:
        """Return the executed cells to measure."""
        cells = result.notebook.cells if result.notebook is not None else ()
        if self.cell is not None:
            cells = tuple(cell for cell in cells if self.cell in (cell.number, cell.id))
            if len(cells) != 1:
                count = "no" if not cells else f"{len(cells)} times the"
                raise ValueError(f"{self.file} has {count} {self._title}")
        executed = [cell for cell in cells if cell.outcome is not TestOutcome.SKIPPED]
        if not executed:
            raise ValueError(f"{self.file}: no cell of {self._title} was executed")
        return executed
