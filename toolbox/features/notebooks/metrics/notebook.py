"""Reads the time or the memory of a notebook or of one of its cells, which the notebook worker has measured.

A notebook that did not pass has no values, because values of a part of a notebook cannot be compared with earlier runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

from toolbox.features.notebooks import result_records
from toolbox.features.notebooks.worker.notebook_results import CellRecord, TestKind, TestOutcome, TestResult
from toolbox.ground.model.text import truncate
from toolbox.records.runs.evidence_files import RecordFault, RelativeFile, readable

Figure = Literal["seconds", "cpu_seconds", "peak_memory_bytes"]
_MAX_FILES: Final = 4  # that are kept in memory, because several cells may be judged at once


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
        cells = self._cells(_results(directory, self.file))
        values = [value for cell in cells if (value := getattr(cell, self.figure)) is not None]
        if not values or (len(values) < len(cells) and self.figure != "peak_memory_bytes"):
            raise ValueError(f"{self.file}: {self.figure} of {self._title} is not known")
        return float(max(values) if self.figure == "peak_memory_bytes" else sum(values))

    @property
    def _title(self) -> str:
        name = repr(truncate(self.notebook))
        return name if self.cell is None else f"cell {self.cell!r} of {name}"

    def _cells(self, results: _Results) -> Sequence[CellRecord]:
        """Return the executed cells to measure."""
        found = results.notebooks.get(self.notebook, [])
        if len(found) != 1:
            count = "no result" if not found else f"{len(found)} results"
            raise ValueError(f"{self.file} has {count} of the notebook {truncate(self.notebook)!r}")
        (result,) = found
        if result.outcome is not TestOutcome.PASSED:
            raise ValueError(f"{self.file}: the notebook {truncate(self.notebook)!r} did not pass")
        cells: Sequence[CellRecord] = result.notebook.cells if result.notebook is not None else ()
        if self.cell is not None:
            cells = results.cells.get((self.notebook, self.cell), [])
            if len(cells) != 1:
                count = "no" if not cells else f"{len(cells)} times the"
                raise ValueError(f"{self.file} has {count} {self._title}")
        executed = [cell for cell in cells if cell.outcome is not TestOutcome.SKIPPED]
        if not executed:
            raise ValueError(f"{self.file}: no cell of {self._title} was executed")
        return executed


@dataclass(frozen=True, slots=True)
class _Results:
    """The results of the notebooks in a file.

    Args:
        cells: the cells by the name of the notebook, and by their numbers and their ids.
        fault: why the file cannot be read; empty if it can.
    """

    notebooks: dict[str, list[TestResult]] = field(default_factory=dict)
    cells: dict[tuple[str, int | str], list[CellRecord]] = field(default_factory=dict)
    fault: str = ""


def _results(directory: Path, file: str) -> _Results:
    """Return the results in a file. Each metric of an attempt reads the same file, which is parsed only once.

    Raises:
        ValueError: the file cannot be read.
    """
    with readable(directory, file) as path:
        status = path.stat()
    results = _parsed(directory, file, (status.st_ino, status.st_mtime_ns, status.st_size))
    if results.fault:
        raise ValueError(results.fault)
    return results


@lru_cache(maxsize=_MAX_FILES)
def _parsed(directory: Path, file: str, _version: tuple[int, ...]) -> _Results:
    results = _Results()
    try:
        for result in result_records.read(directory, file):
            if isinstance(result, TestResult) and result.kind is TestKind.NOTEBOOK:
                results.notebooks.setdefault(result.name, []).append(result)
    except RecordFault as fault:
        return _Results(fault=str(fault))
    for name, found in results.notebooks.items():
        for cell in (cell for result in found if result.notebook is not None for cell in result.notebook.cells):
            for key in (cell.number, cell.id):
                results.cells.setdefault((name, key), []).append(cell)
    return results
