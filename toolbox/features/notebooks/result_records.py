"""Reads `results.jsonl` and `notebook_worker.json`, which a target has written.

`toolbox/features/notebooks/worker/notebook_results.py` describes the files, with the types and the limits of all
fields. The code under test can write to the files, also on this machine. So types are validated strictly, and sizes and
numbers are limited. Unknown fields are ignored. A record that contradicts itself, such as a test that passed with a
fault, is not a result.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from toolbox.features.notebooks.worker import notebook_results
from toolbox.features.notebooks.worker.notebook_results import (
    NotebookRecord,
    TestKind,
    TestOutcome,
    TestResult,
    WorkerReport,
)
from toolbox.records.runs.evidence_files import RecordFault, complete_lines, first_fault, readable

RESULTS_FILE: Final = f"files/{notebook_results.RESULTS}"
REPORT_FILE: Final = f"files/{notebook_results.REPORT}"
LARGEST_FILE: Final = 1 << 26  # bytes
LONGEST_LINE: Final = 1 << 23  # bytes
MAX_RESULTS: Final = 10_000
MAX_FAULTS: Final = 100  # after this number of lines that are not results, the rest of the file is not read
_LARGEST_REPORT: Final = 1 << 20  # bytes
_WORDS: Final = {TestOutcome.PASSED: "passed", TestOutcome.SKIPPED: "was skipped"}
_RESULT: Final = TypeAdapter(TestResult)
_REPORT: Final = TypeAdapter(WorkerReport)


def read(directory: Path, file: str = RESULTS_FILE) -> Iterator[TestResult | RecordFault]:
    """Yield the result of each line of a file, or why the line is not a result.

    Args:
        directory: the directory of the attempt.

    Raises:
        RecordFault: the file is missing, empty or too large, or has too many lines that are not results.
    """
    faults = 0
    limits = {"largest": LARGEST_FILE, "longest": LONGEST_LINE, "most": MAX_RESULTS}
    for number, line in complete_lines(directory, file, **limits, nothing="no test has ended"):
        result = _parsed(line, file, number)
        faults += isinstance(result, RecordFault)
        yield result
        if faults == MAX_FAULTS:
            raise RecordFault(f"{file} has {MAX_FAULTS} lines that are not results: the rest is not read", number)


def read_report(directory: Path, file: str = REPORT_FILE) -> WorkerReport:
    """Return the report of the worker.

    Args:
        directory: the directory of the attempt.

    Raises:
        RecordFault: the file is missing, too large, or not a report.
    """
    try:
        with readable(directory, file) as path, path.open("rb") as stream:
            content = stream.read(_LARGEST_REPORT + 1)
    except ValueError as error:
        raise RecordFault(str(error)) from None
    if len(content) > _LARGEST_REPORT:
        raise RecordFault(f"{file} has more than {_LARGEST_REPORT} bytes")
    try:
        return _REPORT.validate_json(content)
    except ValidationError as error:
        raise RecordFault(f"{file} is not a report of the worker: {first_fault(error)}") from None


def _parsed(line: bytes, file: str, number: int) -> TestResult | RecordFault:
    try:
        result = _RESULT.validate_json(line)
        reason = _contradiction(result)
    except ValidationError as error:
        reason = first_fault(error)
    return RecordFault(f"{file}:{number} is not a result: {reason}", number) if reason else result


def _contradiction(result: TestResult) -> str:
    """Return why a result cannot be true; empty if it can."""
    notebook = result.notebook or NotebookRecord()
    for field in ("executed", "samples"):
        if not _is_file_name(getattr(notebook, field)):
            return f"notebook.{field}: must be the name of a file, without a directory"
    if result.outcome in _WORDS and result.fault is not None:
        return f"a test that {_WORDS[result.outcome]} must not have a fault"
    if result.outcome in _WORDS and notebook.failed_cell is not None:
        return f"a notebook that {_WORDS[result.outcome]} must not have a failed cell"
    if result.notebook is not None and result.kind is not TestKind.NOTEBOOK:
        return "only a notebook has the field `notebook`"
    return ""


def _is_file_name(name: str) -> bool:
    return name not in {".", ".."} and "/" not in name and "\\" not in name and name.isprintable()
