"""The files of the notebook worker are read as foreign data: what the worker writes is read, and lies are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.features.notebooks.unit.worker_files import cell, failed_notebook, result, write_report, write_results
from toolbox.features.notebooks import result_records
from toolbox.features.notebooks.worker.notebook_results import (
    Fault,
    NotebookRecord,
    TestKind,
    TestOutcome,
    TestResult,
)
from toolbox.records.runs.evidence_files import RecordFault

LONG = "x" * 256


def read(directory: Path) -> list[TestResult | RecordFault]:
    return list(result_records.read(directory))


def only_fault(directory: Path, line: dict[str, Any] | str) -> str:
    write_results(directory, line)
    (found,) = read(directory)
    assert isinstance(found, RecordFault), found
    assert found.line == 1
    assert str(found).isprintable()
    assert len(str(found)) < 300
    return str(found).removeprefix("files/results.jsonl:1 is not a result: ")


def test_what_the_worker_writes_is_read(tmp_path: Path) -> None:
    write_results(tmp_path, failed_notebook(), result("disk", kind=TestKind.SHELL, checked="the disk has room"))
    notebook, check = read(tmp_path)
    assert isinstance(notebook, TestResult)
    assert (notebook.title, notebook.fault, notebook.outcome) == ("notebook.train", Fault.CODE, TestOutcome.FAILED)
    assert notebook.notebook is not None
    assert notebook.notebook.failed_cell is not None
    assert notebook.notebook.failed_cell.exception == "ValueError: no data"
    assert [each.seconds for each in notebook.notebook.cells] == [1.0, 1.0]
    assert isinstance(check, TestResult)
    assert (check.title, check.checked) == ("shell.disk", "the disk has room")


def test_the_torn_last_line_of_a_dead_worker_is_no_result(tmp_path: Path) -> None:
    write_results(tmp_path, result(), json.dumps(result("other")))
    assert len(read(tmp_path)) == 1


def test_a_line_that_is_not_a_result_does_not_hide_the_next_lines(tmp_path: Path) -> None:
    write_results(tmp_path, "not json\n", result())
    fault, good = read(tmp_path)
    assert isinstance(fault, RecordFault)
    assert isinstance(good, TestResult)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "notebooks"}, "kind: must be 'environment', 'shell', 'python' or 'notebook'"),
        ({"outcome": "fine"}, "outcome: must be"),
        ({"name": ""}, "name: must have at least 1 character"),
        ({"name": LONG}, "name: must have at most 255 characters"),
        ({"name": 5}, "name: must be a valid string"),
        ({"seconds": -1}, "seconds: must be greater than or equal to 0"),
        ({"seconds": 1e300}, "seconds: must be less than or equal to 1000000000"),
        ({"seconds": "1"}, "seconds: must be a valid number"),
        ({"seconds": None}, "seconds: must be a valid number"),
        ({"started": -5}, "started: must be greater than or equal to 0"),
        ({"fault": "cosmic rays"}, "fault: must be"),
        ({"message": ["x"]}, "message: must be a valid string"),
        ({"found": "x" * (2**18 + 1)}, "found: must have at most 262144 characters"),
        ({"notebook": {"executed": "../../x.ipynb"}}, "notebook.executed: must be the name of a file"),
        ({"notebook": {"executed": "/etc/passwd"}}, "notebook.executed: must be the name of a file"),
        ({"notebook": {"executed": ".."}}, "notebook.executed: must be the name of a file"),
        ({"notebook": {"executed": "a\\b"}}, "notebook.executed: must be the name of a file"),
        ({"notebook": {"executed": "a\0b"}}, "notebook.executed: must be the name of a file"),
        ({"notebook": {"executed": LONG}}, "notebook.executed: must have at most 255 characters"),
        ({"notebook": {"samples": "\x1b[31m"}}, "notebook.samples: must be the name of a file"),
        ({"notebook": {"cells": [{"number": -1}]}}, "notebook.cells.0.number: must be greater than or equal to 0"),
        ({"notebook": {"cells": [{"number": True}]}}, "notebook.cells.0.number: must be a valid integer"),
        (
            {"notebook": {"cells": [{"number": 1, "id": "a", "outcome": "passed"}] * 10_001}},
            "notebook.cells: must have at most 10000 items",
        ),
        (
            {"notebook": {"cells": [{"number": 1, "id": "a", "outcome": "passed", "peak_memory_bytes": 2**63}]}},
            "notebook.cells.0.peak_memory_bytes: must be less than",
        ),
    ],
)
def test_a_lie_is_not_a_result(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    assert only_fault(tmp_path, {**result(), **fields}).startswith(message)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[]\n", "must be an object"),
        ("\n", "Invalid JSON"),
        ("[" * 100_000 + "\n", "Invalid JSON"),
        ('{"x": ' * 10_000 + "1" + "}" * 10_000 + "\n", "Invalid JSON"),
        ('{"kind": "shell", "name": "\\ud800"}\n', "Invalid JSON"),
        (json.dumps(result()).replace("1.5", "NaN") + "\n", "seconds: must be a finite number"),
        (json.dumps(result()).replace("1.5", "1e999") + "\n", "seconds: must be a finite number"),
        (json.dumps(result()).replace("1.5", "9" * 10_000) + "\n", "Invalid JSON"),
    ],
)
def test_a_line_that_is_not_sound_json_is_not_a_result(tmp_path: Path, line: str, message: str) -> None:
    assert message in only_fault(tmp_path, line)


@pytest.mark.parametrize("outcome", [TestOutcome.PASSED, TestOutcome.SKIPPED])
def test_a_result_that_contradicts_itself_is_refused(tmp_path: Path, outcome: TestOutcome) -> None:
    assert "must not have a fault" in only_fault(tmp_path, result(outcome=outcome, fault=Fault.CODE))
    failed = {**failed_notebook(), "outcome": outcome.value, "fault": None}
    assert "must not have a failed cell" in only_fault(tmp_path, failed)


def test_only_a_notebook_has_cells(tmp_path: Path) -> None:
    record = result("disk", kind=TestKind.SHELL, notebook=NotebookRecord(cells=(cell(1),)))
    assert only_fault(tmp_path, record) == "only a notebook has the field `notebook`"


def test_unknown_fields_are_ignored(tmp_path: Path) -> None:
    write_results(tmp_path, {**result(), "__class__": {"deep": [[[[]]]]}})
    assert isinstance(read(tmp_path)[0], TestResult)


def test_a_file_of_many_lines_is_read_up_to_a_limit(tmp_path: Path) -> None:
    write_results(tmp_path, (json.dumps(result()) + "\n") * 10_001)
    results = result_records.read(tmp_path)
    assert [isinstance(next(results), TestResult) for _ in range(10_000)] == [True] * 10_000
    with pytest.raises(RecordFault, match="has more than 10000 lines"):
        next(results)


def test_a_file_of_nonsense_is_read_up_to_a_limit(tmp_path: Path) -> None:
    write_results(tmp_path, "x\n" * 1_000_000)
    with pytest.raises(RecordFault, match="has 100 lines that are not results"):
        read(tmp_path)


def test_a_line_without_end_is_not_read_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_records, "LONGEST_LINE", 1000)
    write_results(tmp_path, "x" * 1001)
    with pytest.raises(RecordFault, match=r"results\.jsonl:1 has more than 1000 bytes"):
        read(tmp_path)


def test_a_large_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_records, "LARGEST_FILE", 10)
    write_results(tmp_path, result())
    with pytest.raises(RecordFault, match="more than 10"):
        read(tmp_path)


@pytest.mark.parametrize("content", [None, ""])
def test_a_missing_or_empty_file_says_that_nothing_ended(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        write_results(tmp_path, content)
    with pytest.raises(RecordFault, match=r"does not exist|is empty: no test has ended"):
        read(tmp_path)


def test_the_report_of_the_worker_is_read(tmp_path: Path) -> None:
    write_report(tmp_path, environment="abc", environment_seconds=12.5, is_finished=True)
    report = result_records.read_report(tmp_path)
    assert (report.versions, report.environment_seconds, report.is_finished) == ({"python": "3.12.1"}, 12.5, True)


@pytest.mark.parametrize(
    "content",
    ["", "[]", "null", '{"environment_seconds": NaN}', '{"versions": {"a": 1}}', "[" * 100_000, '{"fault": 5}'],
)
def test_a_broken_report_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files/notebook_worker.json").write_text(content)
    with pytest.raises(RecordFault, match=r"notebook_worker\.json is not a report of the worker"):
        result_records.read_report(tmp_path)


def test_a_large_report_is_refused(tmp_path: Path) -> None:
    write_report(tmp_path, fault="x" * 2**20)
    with pytest.raises(RecordFault, match="more than 1048576 bytes"):
        result_records.read_report(tmp_path)
