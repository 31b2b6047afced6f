"""An executed notebook is saved while it is executed, but saves take a limited part of the time."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from toolbox.features.notebooks.worker.executed_notebook import CannotWriteError, ExecutedNotebook


@dataclass
class Execution:
    """A notebook whose saves take `save_seconds` of a clock that only the test moves."""

    path: Path
    save_seconds: float
    now: float = 0.0
    saves: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        cells = [new_code_cell("pass", id=str(number)) for number in range(200)]
        notebook = new_notebook(cells=cells, metadata={"papermill": {}})
        self.executed = ExecutedNotebook(notebook, self.path, self._save, lambda: self.now)
        self.executed.notebook_start()

    def _save(self) -> None:
        self.saves.append(self.now)
        self.now += self.save_seconds

    def run(self, number: int, seconds: float) -> None:
        """Execute a cell that prints its number."""
        cell = self.executed.nb.cells[number]
        self.executed.cell_start(cell)
        self.now += seconds
        cell.outputs.append(new_output("stream", text=f"output {number}."))
        self.executed.cell_complete(cell)

    @property
    def saved(self) -> str:
        """The cells in the file, which is a whole document at each moment."""
        return str(json.loads(self.path.read_text())["cells"])


Start = Callable[[float], Execution]


@pytest.fixture(name="start")
def _start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    monkeypatch.setattr(nbformat, "writes", nbformat.v4.writes)  # without validation
    return lambda save_seconds: Execution(tmp_path / "n.ipynb", save_seconds)


def test_saves_of_many_short_cells_are_a_second_apart(start: Start) -> None:
    execution = start(0.001)
    for number in range(200):
        execution.run(number, 0.02)
    assert 4 <= len(execution.saves) <= 5
    assert min(later - sooner for sooner, later in zip(execution.saves, execution.saves[1:], strict=False)) >= 1


def test_slow_saves_take_at_most_a_tenth_of_the_time(start: Start) -> None:
    execution = start(2.0)
    for number in range(200):
        execution.run(number, 1.0)
    assert len(execution.saves) * 2.0 <= 0.1 * execution.now + 2.0
    assert len(execution.saves) > 5


def test_outputs_that_were_not_saved_are_saved_during_a_long_cell(start: Start) -> None:
    execution = start(0.01)
    execution.run(0, 0.1)
    execution.executed.save_pending()
    assert "output 0." not in execution.saved
    execution.now += 1
    execution.executed.save_pending()
    assert "output 0." in execution.saved
    saves = len(execution.saves)
    execution.now += 1000
    execution.executed.save_pending()
    assert len(execution.saves) == saves


def test_the_end_is_always_saved(start: Start) -> None:
    execution = start(100.0)
    execution.run(0, 0.1)
    execution.executed.notebook_complete()
    assert "output 0." in execution.saved


def test_a_file_that_cannot_be_written_is_an_error(start: Start) -> None:
    execution = start(0.0)
    execution.path.unlink()
    execution.path.mkdir()
    with pytest.raises(CannotWriteError, match=r"n\.ipynb cannot be written: Is a directory"):
        execution.executed.notebook_complete()
