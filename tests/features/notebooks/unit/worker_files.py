"""Writes the files that the notebook worker leaves in an attempt."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from toolbox.features.notebooks.worker.notebook_results import (
    CellRecord,
    FailedCell,
    Fault,
    NotebookRecord,
    TestKind,
    TestOutcome,
    TestResult,
    WorkerReport,
)
from toolbox.features.notebooks.worker.notebook_settings import (
    CheckSettings,
    Limits,
    NotebookSettings,
    Runtime,
    Settings,
)


def result(
    name: str = "train",
    outcome: TestOutcome = TestOutcome.PASSED,
    kind: TestKind = TestKind.NOTEBOOK,
    **fields: Any,
) -> dict[str, Any]:
    """Return the JSON object of a result, as the worker makes it."""
    fields = {"started": 1_700_000_000.0, "seconds": 1.5, **fields}
    return TestResult(kind, name, outcome, **fields).as_json()


def cell(number: int, **fields: Any) -> CellRecord:
    """Return the record of a cell."""
    fields = {"outcome": TestOutcome.PASSED, "seconds": 1.0, **fields}
    return CellRecord(number, fields.pop("id", f"cell-{number}"), **fields)


def failed_notebook(name: str = "train", fault: Fault = Fault.CODE, **fields: Any) -> dict[str, Any]:
    """Return the result of a notebook whose third cell raised a ValueError."""
    failed = FailedCell(
        3, "data = load()\ntrain(data)", "ValueError: no data", "Traceback:\n  line 2\nValueError: no data"
    )
    notebook = NotebookRecord(f"{name}.ipynb", f"{name}.csv", (cell(1), cell(2)), failed)
    return result(name, TestOutcome.FAILED, fault=fault, **{"notebook": notebook, **fields})


def write_settings(
    directory: Path, *, checks: tuple[str, ...] = (), notebooks: tuple[str, ...] = (), **manual: str
) -> None:
    """Write `src/settings.json` of the attempt.

    Args:
        checks: the files of the checks. The name of a check is the name of its file without its ending.
        notebooks: the names of the notebooks.
        manual: what a person must do before a notebook, by its name.
    """
    settings = Settings(
        Runtime("torch"),
        Limits(cpus=1),
        tuple(CheckSettings(Path(file).stem, f"checks/{file}") for file in checks),
        tuple(
            NotebookSettings(name, f"notebooks/{name}.ipynb", manual=manual.get(name)) for name in (*notebooks, *manual)
        ),
    )
    (directory / "src").mkdir(exist_ok=True)
    (directory / "src/settings.json").write_text(json.dumps(asdict(settings)))


def write_results(directory: Path, *lines: dict[str, Any] | str) -> None:
    """Write `files/results.jsonl` of the attempt. A text is written as it is."""
    (directory / "files").mkdir(exist_ok=True)
    content = "".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)
    (directory / "files/results.jsonl").write_text(content)


def write_report(directory: Path, **fields: Any) -> None:
    """Write `files/notebook_worker.json` of the attempt."""
    (directory / "files").mkdir(exist_ok=True)
    report = WorkerReport(**{"versions": {"python": "3.12.1"}, **fields})
    (directory / "files/notebook_worker.json").write_text(json.dumps(report.as_json()))
