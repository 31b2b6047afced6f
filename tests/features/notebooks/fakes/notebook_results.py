"""Executes notebooks as the notebook worker does, and writes what the worker leaves, for tests of reports."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toolbox.features.notebooks.worker.notebook_results import (
    EXECUTED,
    RESULTS,
    SAMPLES,
    CellRecord,
    FailedCell,
    Fault,
    NotebookRecord,
    TestKind,
    TestOutcome,
    TestResult,
)

STARTED = 1_790_000_000.0  # when the first test of an attempt begins, in seconds since 1970
Cell = dict[str, Any]


def code(source: str, *outputs: Cell, count: Any = 1, **fields: Any) -> Cell:
    """Return a code cell."""
    return {
        "cell_type": "code",
        "metadata": {},
        "source": source,
        "execution_count": count,
        "outputs": list(outputs),
        **fields,
    }


def markdown(source: str | list[str], **fields: Any) -> Cell:
    """Return a Markdown cell."""
    return {"cell_type": "markdown", "metadata": {}, "source": source, **fields}


def stream(text: str) -> Cell:
    """Return an output on standard output."""
    return {"output_type": "stream", "name": "stdout", "text": text}


def display(**data: Any) -> Cell:
    """Return an output with representations: `text_html` is `text/html`."""
    kinds = {name.replace("_", "/", 1).replace("svg", "svg+xml"): value for name, value in data.items()}
    return {"output_type": "display_data", "metadata": {}, "data": kinds}


def notebook(*cells: Cell, **metadata: Any) -> dict[str, Any]:
    """Return a notebook."""
    language = {"language_info": {"name": "python", "pygments_lexer": "ipython3"}}
    return {"nbformat": 4, "nbformat_minor": 4, "metadata": {**language, **metadata}, "cells": list(cells)}


def executed(*sources: str) -> dict[str, Any]:
    """Return a notebook that nbclient has executed to its end, or to the first error."""
    import nbformat
    from nbclient import NotebookClient

    document = nbformat.from_dict(notebook(*(code(source, count=None) for source in sources)))
    NotebookClient(document, kernel_name="python3", timeout=60, allow_errors=True).execute()
    return dict(json.loads(nbformat.writes(document)))


def write(
    attempt: Path,
    name: str,
    document: object,
    *,
    outcome: TestOutcome = TestOutcome.PASSED,
    seconds: Sequence[float] = (0.5, 2.0, 1.0),
    failed: FailedCell | None = None,
    samples: str | None = "",
) -> Path:
    """Write an executed notebook with its result and its samples into an attempt, and return its path.

    Args:
        document: the notebook; a string is written as it is.
        seconds: the durations of the cells.
        failed: the cell that failed.
        samples: the content of the CSV file; empty for a normal one, None for no file.
    """
    files = attempt / "files"
    for folder in (EXECUTED, SAMPLES):
        (files / folder).mkdir(parents=True, exist_ok=True)
    file = files / EXECUTED / f"{name}.ipynb"
    file.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    if samples is not None:
        (files / SAMPLES / f"{name}.csv").write_text(samples or usage(sum(seconds)), encoding="utf-8")
    result = _result(name, outcome, seconds, failed)
    with (files / RESULTS).open("a", encoding="utf-8") as results:
        results.write(json.dumps(result.as_json()) + "\n")
    return file


def _result(name: str, outcome: TestOutcome, seconds: Sequence[float], failed: FailedCell | None) -> TestResult:
    bad = failed.number if failed else 0
    cells = tuple(
        CellRecord(
            number,
            f"cell-{number}",
            TestOutcome.FAILED if number == bad else TestOutcome.PASSED,
            STARTED + sum(seconds[: number - 1]),
            length,
            length * 0.9,
            number * 100 * 2**20,
        )
        for number, length in enumerate(seconds, 1)
    )
    record = NotebookRecord(f"{name}.ipynb", f"{name}.csv", cells, failed)
    fault = None if outcome is TestOutcome.PASSED else Fault.CODE
    message = f"cell {bad}: {failed.exception}" if failed else ""
    return TestResult(TestKind.NOTEBOOK, name, outcome, STARTED, sum(seconds), fault, message=message, notebook=record)


def usage(seconds: float, *, gpus: int = 1) -> str:
    """Return samples of a kernel that uses up to two processors and a GPU."""
    gpu_columns = "".join(f",gpu{index}_percent,gpu{index}_memory_bytes" for index in range(gpus))
    lines = [f"time,cpu_percent,memory_bytes{gpu_columns}"]
    for tick in range(int(seconds * 5) + 1):
        share = (1 - math.cos(tick / 3)) / 2
        gpu = "".join(f",{100 * share:.1f},{int((2 + tick / 10) * 2**30)}" for _ in range(gpus))
        lines.append(f"{STARTED + tick / 5:.3f},{200 * share:.1f},{int((80 + 5 * tick) * 2**20)}{gpu}")
    return "\n".join(lines) + "\n"
