"""The source `notebook` reads the time and the memory of a notebook or of a cell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.features.notebooks.unit.worker_files import cell, failed_notebook, result, write_results
from toolbox.features.notebooks import result_records
from toolbox.features.notebooks.metrics.notebook import Source
from toolbox.features.notebooks.worker.notebook_results import (
    CellRecord,
    NotebookRecord,
    TestKind,
    TestOutcome,
    TestResult,
)
from toolbox.records.runs.evidence_files import RecordFault

CELLS = (
    cell(1, id="load", seconds=0.5, cpu_seconds=0.4, peak_memory_bytes=100),
    cell(2, id="3", seconds=2.0, cpu_seconds=1.6, peak_memory_bytes=300),
    cell(3, id="plot", outcome=TestOutcome.SKIPPED, seconds=None),
)


def read(directory: Path, *cells: CellRecord, **fields: Any) -> float:
    write_results(directory, result(notebook=NotebookRecord(cells=cells or CELLS)), result("other"))
    return Source.model_validate({"notebook": "train", **fields}).read(directory)


@pytest.mark.parametrize(
    ("fields", "value"),
    [
        ({}, 2.5),
        ({"figure": "cpu_seconds"}, 2.0),
        ({"figure": "peak_memory_bytes"}, 300),
        ({"cell": 1}, 0.5),
        ({"cell": 2, "figure": "peak_memory_bytes"}, 300),
        ({"cell": "load", "figure": "cpu_seconds"}, 0.4),
        ({"cell": "3"}, 2.0),
    ],
)
def test_a_figure_is_read(tmp_path: Path, fields: dict[str, Any], value: float) -> None:
    assert read(tmp_path, **fields) == value


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"cell": 3}, r"results\.jsonl: no cell of cell 3 of 'train' was executed"),
        ({"cell": 9}, r"results\.jsonl has no cell 9 of 'train'"),
        ({"cell": "1"}, r"results\.jsonl has no cell '1' of 'train'"),
        ({"notebook": "other"}, r"results\.jsonl: no cell of 'other' was executed"),
        ({"notebook": "gone"}, r"results\.jsonl has no result of the notebook 'gone'"),
    ],
)
def test_a_cell_that_was_not_executed_has_no_figure(tmp_path: Path, fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read(tmp_path, **fields)


def test_the_metrics_of_an_attempt_parse_the_results_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[Path] = []
    original = result_records.read

    def counted(directory: Path, file: str) -> Iterator[TestResult | RecordFault]:
        parsed.append(directory)
        return original(directory, file)

    monkeypatch.setattr(result_records, "read", counted)
    assert read(tmp_path, cell="load") == 0.5
    assert Source(notebook="train", cell=2).read(tmp_path) == 2.0
    assert parsed == [tmp_path]
    write_results(tmp_path, result(notebook=NotebookRecord(cells=(cell(1, seconds=9.0),))))
    assert Source(notebook="train").read(tmp_path) == 9.0


def test_a_damaged_file_has_no_figures(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files/results.jsonl").write_text("5\n" * 200)
    for _ in range(2):
        with pytest.raises(ValueError, match="has 100 lines that are not results"):
            Source(notebook="train").read(tmp_path)


def test_a_time_that_is_not_known_of_each_cell_is_not_known_of_the_notebook(tmp_path: Path) -> None:
    cells = (cell(1, cpu_seconds=1.0, peak_memory_bytes=5), cell(2))
    assert read(tmp_path, *cells, figure="peak_memory_bytes") == 5
    with pytest.raises(ValueError, match="cpu_seconds of 'train' is not known"):
        read(tmp_path, *cells, figure="cpu_seconds")


def test_two_cells_with_the_same_id_have_no_figure(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="2 times the cell 'x'"):
        read(tmp_path, cell(1, id="x"), cell(2, id="x"), cell="x")


def test_a_notebook_that_did_not_pass_has_no_figure(tmp_path: Path) -> None:
    write_results(tmp_path, failed_notebook())
    with pytest.raises(ValueError, match="'train' did not pass"):
        Source(notebook="train").read(tmp_path)


def test_a_notebook_with_two_results_has_no_figure(tmp_path: Path) -> None:
    write_results(tmp_path, result(), result(), result(kind=TestKind.SHELL))
    with pytest.raises(ValueError, match="has 2 results of the notebook 'train'"):
        Source(notebook="train").read(tmp_path)


@pytest.mark.parametrize("fields", [{"cell": -1}, {"cell": ""}, {"cell": True}, {"cell": 1.5}, {"figure": "joules"}])
def test_a_cell_is_a_number_or_an_id(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Source.model_validate({"notebook": "train", **fields})
