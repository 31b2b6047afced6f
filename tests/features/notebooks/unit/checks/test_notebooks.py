"""The check `notebooks` compares results with the settings, and never passes a test without a result."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.features.notebooks.unit.worker_files import (
    cell,
    failed_notebook,
    result,
    write_report,
    write_results,
    write_settings,
)
from toolbox.features.notebooks.checks import notebooks
from toolbox.features.notebooks.checks.notebooks import Check
from toolbox.features.notebooks.worker.notebook_results import (
    FailedCell,
    Fault,
    NotebookRecord,
    TestKind,
    TestOutcome,
)
from toolbox.ground.model.cases import CaseResult
from toolbox.ground.model.evidence import Evidence, Judgement
from toolbox.ground.model.verdicts import Cause
from toolbox.records.runs import junit_files

FAILED, ERROR, SKIPPED = TestOutcome.FAILED, TestOutcome.ERROR, TestOutcome.SKIPPED
DISK = result("disk", kind=TestKind.SHELL)


def judge(directory: Path, **fields: Any) -> Judgement:
    return Check.model_validate(fields).judge(Evidence(directory))


def rows(directory: Path) -> list[CaseResult]:
    """Return the test cases as reports read them."""
    return list(junit_files.read(directory, notebooks.RESULTS))


@pytest.fixture
def row(tmp_path: Path) -> Callable[[dict[str, Any]], CaseResult]:
    """Return a function that judges the result of the notebook `train`, and returns its row."""

    def judged(record: dict[str, Any]) -> CaseResult:
        write_settings(tmp_path, notebooks=("train",))
        write_results(tmp_path, record)
        judge(tmp_path)
        (found,) = rows(tmp_path)
        return found

    return judged


def test_all_tests_are_rows_in_the_order_of_the_settings(tmp_path: Path) -> None:
    write_settings(tmp_path, checks=("disk.sh", "imports.py"), notebooks=("train",))
    environment = result("torch", kind=TestKind.ENVIRONMENT, seconds=9.0)
    write_results(tmp_path, environment, result(), result("imports", kind=TestKind.PYTHON), DISK)
    judgement = judge(tmp_path)
    assert (judgement.passed, judgement.message, judgement.cause) == (True, "4 passed", None)
    assert [(row.title, row.outcome, row.seconds) for row in rows(tmp_path)] == [
        ("environment.torch", "passed", 9.0),
        ("shell.disk", "passed", 1.5),
        ("python.imports", "passed", 1.5),
        ("notebook.train", "passed", 1.5),
    ]


def test_a_failed_cell_is_shown_with_its_source_and_traceback(tmp_path: Path) -> None:
    write_settings(tmp_path, checks=("disk.sh",), notebooks=("train",))
    write_results(tmp_path, DISK, failed_notebook())
    judgement = judge(tmp_path)
    assert (judgement.passed, judgement.cause) == (False, Cause.PRODUCT)
    assert judgement.message.splitlines() == [
        "notebook.train: code cell 3: ValueError: no data",
        "1 of 2 tests did not pass (1 passed, 1 failed)",
    ]
    assert rows(tmp_path)[1].text.splitlines() == [
        "code cell 3:",
        "data = load()",
        "train(data)",
        "",
        "ValueError: no data",
        "",
        "Traceback:",
        "  line 2",
        "ValueError: no data",
    ]


def test_a_failed_check_shows_what_was_checked_expected_and_found(tmp_path: Path) -> None:
    write_settings(tmp_path, checks=("disk.sh",))
    fields = {"checked": "the disk has room", "expected": "10 GiB", "found": "2 GiB"}
    write_results(tmp_path, result("disk", FAILED, TestKind.SHELL, fault=Fault.EXPECTATION, **fields))
    assert judge(tmp_path).message.startswith("shell.disk: expected 10 GiB, found 2 GiB\n")
    (row,) = rows(tmp_path)
    assert row.text.splitlines() == ["checked:  the disk has room", "expected: 10 GiB", "found:    2 GiB"]


NO_KERNEL: dict[str, Any] = {"fault": Fault.NO_KERNEL, "message": "the kernel ir does not exist"}
CAUSES = {Fault.TIMEOUT: Cause.TIMEOUT, Fault.SERVER: Cause.INFRASTRUCTURE, Fault.INTERNAL: Cause.INTERNAL}


@pytest.mark.parametrize("fault", Fault)
def test_each_fault_has_a_cause_and_is_told_in_words(tmp_path: Path, fault: Fault) -> None:
    write_settings(tmp_path, notebooks=("train", "other"))
    write_results(tmp_path, result(outcome=ERROR, fault=fault), result("other"))
    judgement = judge(tmp_path)
    assert judgement.cause is CAUSES.get(fault, Cause.PRODUCT)
    words = judgement.message.splitlines()[0].removeprefix("notebook.train: ")
    assert len(words.split()) >= 3
    assert "_" not in words


@pytest.mark.parametrize(
    ("faults", "cause"),
    [
        ([Fault.TIMEOUT, Fault.CODE], Cause.PRODUCT),
        ([Fault.TIMEOUT, Fault.SERVER, Fault.CODE], Cause.INFRASTRUCTURE),
        ([Fault.SERVER, Fault.INTERNAL], Cause.INTERNAL),
    ],
)
def test_the_worst_cause_wins_and_its_tests_are_named_first(tmp_path: Path, faults: list[Fault], cause: Cause) -> None:
    names = tuple(fault.value for fault in faults)
    write_settings(tmp_path, notebooks=names)
    write_results(tmp_path, *(result(fault.value, FAILED, fault=fault) for fault in faults))
    judgement = judge(tmp_path)
    assert judgement.cause is cause
    named = judgement.message.splitlines()[0].partition(":")[0].removeprefix("notebook.")
    assert CAUSES.get(Fault(named), Cause.PRODUCT) is cause


def test_tests_with_the_same_reason_share_a_line(tmp_path: Path) -> None:
    write_settings(tmp_path, checks=("imports.py", "threads.py"), notebooks=("train", "plot", "score"))
    checks = [result(name, FAILED, TestKind.PYTHON, **NO_KERNEL) for name in ("imports", "threads")]
    books = [result(name, FAILED, **NO_KERNEL) for name in ("train", "plot")]
    write_results(tmp_path, *checks, result("score", FAILED, fault=Fault.CODE, message="bad"), *books)
    assert judge(tmp_path).message.splitlines() == [
        "python.imports, python.threads, notebook.train, and 1 more: the kernel ir does not exist",
        "notebook.score: bad",
        "5 of 5 tests did not pass (5 failed)",
    ]
    assert {row.message for row in rows(tmp_path)} == {"the kernel ir does not exist", "bad"}


def test_only_the_first_reasons_are_named(tmp_path: Path) -> None:
    names = tuple(f"n{number}" for number in range(5))
    write_settings(tmp_path, notebooks=names)
    write_results(tmp_path, *(result(name, FAILED, fault=Fault.CODE, message=f"bad {name}") for name in names))
    assert judge(tmp_path).message.splitlines() == [
        *(f"notebook.n{number}: bad n{number}" for number in range(3)),
        "and 2 more",
        "5 of 5 tests did not pass (5 failed)",
    ]


def test_a_failure_without_a_fault_is_a_failure_of_the_product(tmp_path: Path) -> None:
    write_settings(tmp_path, notebooks=("train",))
    write_results(tmp_path, result(outcome=FAILED))
    assert (judge(tmp_path).cause, rows(tmp_path)[0].message) == (Cause.PRODUCT, "failed without a reason")


def test_the_cell_is_named_once(row: Callable[[dict[str, Any]], CaseResult]) -> None:
    said = failed_notebook(fault=Fault.TIMEOUT, message="code cell 3: no end after 10 s")
    assert row(said).message == "code cell 3: no end after 10 s"
    unsaid = failed_notebook(fault=Fault.TIMEOUT, message="no end after 10 s")
    assert row(unsaid).message == "code cell 3: no end after 10 s"


def test_a_memory_error_is_told_apart_from_an_error_in_the_code(row: Callable[[dict[str, Any]], CaseResult]) -> None:
    record = failed_notebook(fault=Fault.OUT_OF_MEMORY, message="code cell 3: MemoryError")
    assert row(record).message == "code cell 3: MemoryError (out of memory)"


def test_the_cell_with_the_parameters_is_named(row: Callable[[dict[str, Any]], CaseResult]) -> None:
    record = failed_notebook(notebook=NotebookRecord(failed_cell=FailedCell(0, "x = 1", "NameError: y")))
    assert row(record).message == "the cell with the parameters: NameError: y"


def test_a_long_traceback_keeps_the_source_the_exception_and_its_end(
    row: Callable[[dict[str, Any]], CaseResult],
) -> None:
    source = "\n".join(f"line_{number}()" for number in range(1000))
    failed = FailedCell(3, source, "ValueError: no data", "frame\n" * 10_000 + "the last line")
    text = row(failed_notebook(notebook=NotebookRecord(failed_cell=failed))).text
    assert len(text) <= 4000
    assert "[...]" not in text
    assert "line_0()" in text
    assert "... 980 lines ..." in text
    assert "ValueError: no data" in text
    assert text.endswith("the last line")


def test_a_different_output_is_shown_as_a_diff(row: Callable[[dict[str, Any]], CaseResult]) -> None:
    diff = "\n".join(["--- expected", "+++ found", "-1", "+2", *["  more"] * 1000])
    failed = FailedCell(3, "print(x)", traceback=diff)
    fields = {"expected": "1\n" * 1000, "found": "2\n" * 1000, "message": "code cell 3: stdout differs"}
    record = failed_notebook(fault=Fault.OUTPUT, notebook=NotebookRecord(failed_cell=failed), **fields)
    text = row(record).text
    assert text.startswith("code cell 3:\nprint(x)\n\n--- expected\n+++ found\n-1\n+2\n")
    assert len(text) < 4000
    assert "expected:" not in text


def test_a_test_without_a_result_does_not_pass(tmp_path: Path) -> None:
    write_settings(tmp_path, notebooks=("train", "other"))
    write_results(tmp_path, result())
    judgement = judge(tmp_path)
    assert (judgement.passed, judgement.cause) == (False, None)
    assert judgement.message.splitlines()[0] == "notebook.other: there is no result"


def test_the_report_of_the_worker_tells_why_results_are_missing(tmp_path: Path) -> None:
    write_settings(tmp_path, notebooks=("train", "other"))
    write_results(tmp_path, result())
    write_report(tmp_path, fault="the disk\nis \x1b[31mfull")
    judge(tmp_path)
    assert rows(tmp_path)[1].message == "there is no result: the disk is full"
    (tmp_path / "files/results.jsonl").unlink()
    assert judge(tmp_path).message == "files/results.jsonl does not exist: the disk is full"


def test_a_manual_notebook_is_skipped_with_its_reason(tmp_path: Path) -> None:
    write_settings(tmp_path, notebooks=("train",), data="mount the\ndata set")
    write_results(tmp_path, result(), result("data", SKIPPED, message="manual"))
    assert judge(tmp_path).message == "1 passed, 1 skipped"
    assert rows(tmp_path)[1].message == "manual: mount the data set"


def test_a_manual_notebook_that_was_executed_does_not_pass(tmp_path: Path) -> None:
    write_settings(tmp_path, data="mount the data set")
    write_results(tmp_path, result("data"))
    assert judge(tmp_path).message.startswith("notebook.data: is manual, but was executed")


def test_a_notebook_that_the_worker_skipped_shows_its_reason(tmp_path: Path) -> None:
    write_settings(tmp_path, notebooks=("train", "other"))
    write_results(tmp_path, result(), result("other", SKIPPED, message="the notebook has no code cell"))
    assert judge(tmp_path).passed is True
    assert rows(tmp_path)[1].message == "the notebook has no code cell"


def test_a_check_can_have_several_results(tmp_path: Path) -> None:
    write_settings(tmp_path, checks=("disk.sh", "gpu.py"))
    names = ("gpu:driver", "gpu:memory", "gpu:memory (2)", "gpu (2)")
    write_results(tmp_path, *(result(name, kind=TestKind.PYTHON) for name in names), DISK)
    assert judge(tmp_path).message == "5 passed"
    assert [row.title for row in rows(tmp_path)] == ["shell.disk", *(f"python.{name}" for name in names)]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("gpu2:x", TestKind.PYTHON),
        ("x:gpu", TestKind.PYTHON),
        ("gpu:x", TestKind.SHELL),
        ("train:x", TestKind.NOTEBOOK),
    ],
)
def test_a_similar_name_is_not_a_result_of_the_test(tmp_path: Path, name: str, kind: TestKind) -> None:
    write_settings(tmp_path, checks=("gpu.py",), notebooks=("train",))
    write_results(tmp_path, result(), result("gpu", kind=TestKind.PYTHON), result(name, kind=kind))
    judgement = judge(tmp_path)
    assert (judgement.passed, judgement.line) == (False, 3)


def test_a_cell_whose_tests_were_all_skipped_does_not_pass(tmp_path: Path) -> None:
    write_settings(tmp_path, checks=("gpu.sh",), data="mount it")
    environment = result("torch", kind=TestKind.ENVIRONMENT)
    gpu = result("gpu", SKIPPED, TestKind.SHELL, message="no GPU is promised")
    write_results(tmp_path, environment, gpu, result("data", SKIPPED))
    judgement = judge(tmp_path)
    assert judgement.passed is False
    assert judgement.message.splitlines() == [
        "0 tests executed (1 passed, 2 skipped), but at least 1 must be executed",
        "no GPU is promised",
    ]


def test_more_tests_can_be_demanded(tmp_path: Path) -> None:
    write_settings(tmp_path, notebooks=("train",))
    write_results(tmp_path, result())
    assert judge(tmp_path, min_tests=2).passed is False


def test_a_result_that_was_not_requested_fails_the_check(tmp_path: Path) -> None:
    write_settings(tmp_path, notebooks=("train",))
    write_results(tmp_path, result(), result("tr\x1b[31main"))
    judgement = judge(tmp_path)
    assert (judgement.passed, judgement.file, judgement.line) == (False, "files/results.jsonl", 2)
    assert judgement.message == (
        "files/results.jsonl:2 is the result of 'notebook.tr\\x1b[31main', which the settings do not name"
    )


def test_a_check_and_a_notebook_may_have_the_same_name(tmp_path: Path) -> None:
    write_settings(tmp_path, checks=("train.sh",), notebooks=("train",))
    write_results(tmp_path, result())
    assert judge(tmp_path).message.splitlines()[0] == "shell.train: there is no result"


def test_a_test_with_two_results_does_not_pass(tmp_path: Path) -> None:
    write_settings(tmp_path, notebooks=("train",))
    write_results(tmp_path, result(outcome=FAILED, fault=Fault.CODE), result())
    assert judge(tmp_path).message.startswith("notebook.train: the test has several results\n")


def test_a_line_that_is_not_a_result_fails_the_check(tmp_path: Path) -> None:
    write_settings(tmp_path, notebooks=("train",))
    write_results(tmp_path, "{}\n", result())
    judgement = judge(tmp_path)
    assert (judgement.passed, judgement.line, len(rows(tmp_path))) == (False, 1, 1)
    assert judgement.message == "files/results.jsonl:1 is not a result: kind: Field required"


@pytest.mark.parametrize("name", ["src/settings.json", "src/./settings.json"])
def test_settings_that_the_workload_has_changed_are_not_trusted(tmp_path: Path, name: str) -> None:
    write_settings(tmp_path, notebooks=("train",))
    write_results(tmp_path, result())
    evidence = Evidence(tmp_path, changed=frozenset({"src/settings.json"}))
    judgement = Check(settings=name).judge(evidence)
    assert (judgement.passed, judgement.cases) == (False, None)
    assert judgement.message.endswith("settings.json is not as it was sent: the workload has changed it")
    assert Check().finished(evidence) is None


@pytest.mark.parametrize("content", ["[]", "{", "{}", "[" * 100_000, '{"runtime": {}, "checks": [{"file": "x"}]}'])
def test_broken_settings_fail_the_check(tmp_path: Path, content: str) -> None:
    write_results(tmp_path, result())
    (tmp_path / "src").mkdir()
    (tmp_path / "src/settings.json").write_text(content)
    assert judge(tmp_path).message == "src/settings.json does not contain settings of the notebook worker"


def test_settings_without_tests_fail_the_check(tmp_path: Path) -> None:
    write_settings(tmp_path)
    write_results(tmp_path, "x\n")
    assert judge(tmp_path).message == "src/settings.json names no test"


def test_results_that_cannot_be_written_are_an_error_of_the_infrastructure(tmp_path: Path) -> None:
    write_settings(tmp_path, notebooks=("train",))
    write_results(tmp_path, result())
    (tmp_path / notebooks.RESULTS).mkdir()
    judgement = judge(tmp_path)
    assert judgement.message == "notebooks.junit.xml cannot be written: Is a directory"
    assert judgement.cause is Cause.INFRASTRUCTURE


def test_after_the_end_of_the_attempt_only_tests_with_a_result_count(tmp_path: Path) -> None:
    write_settings(tmp_path, notebooks=("train", "other"))
    write_results(tmp_path, result(), json.dumps(result("other")))
    report = Check().finished(Evidence(tmp_path))
    assert report is not None
    assert (str(report), report.is_partial) == ("1 passed", True)


def test_an_attempt_without_results_has_no_rows(tmp_path: Path) -> None:
    write_settings(tmp_path, notebooks=("train",))
    assert Check().finished(Evidence(tmp_path)) is None


HOSTILE = "\x1b]0;pwned\x07\x1b[31m<script>alert(1)</script>\u202e\n::error::x\n=HYPERLINK(1)]]>\uffff\x00"


def test_hostile_text_cannot_break_the_results(tmp_path: Path) -> None:
    write_settings(tmp_path, checks=("disk.sh",), notebooks=("train",))
    failed = FailedCell(3, HOSTILE * 50, HOSTILE, HOSTILE * 1000)
    notebook = failed_notebook(
        message=HOSTILE, notebook=NotebookRecord(cells=(cell(1, id=HOSTILE),), failed_cell=failed)
    )
    check = result("disk", FAILED, TestKind.SHELL, checked=HOSTILE, expected=HOSTILE, found=HOSTILE, message=HOSTILE)
    environment = result(HOSTILE, ERROR, TestKind.ENVIRONMENT, fault=Fault.ENVIRONMENT, message=HOSTILE)
    write_results(tmp_path, environment, check, notebook)
    assert all(line.isprintable() for line in judge(tmp_path).message.splitlines())
    for row in rows(tmp_path):
        assert row.title.isprintable()
        assert row.message.isprintable()
        assert not set(row.text) & {"\x1b", "\u202e", "\x00", "\x07"}


def test_a_flood_of_results_is_refused_in_bounded_time(tmp_path: Path) -> None:
    write_settings(tmp_path, notebooks=("train",))
    write_results(tmp_path, "".join(json.dumps(result(f"n{number}")) + "\n" for number in range(11_000)))
    judgement = judge(tmp_path)
    assert judgement.passed is False
    assert judgement.message == "files/results.jsonl has more than 10000 lines"


def test_a_flood_of_environments_is_refused(tmp_path: Path) -> None:
    write_settings(tmp_path, notebooks=("train",))
    write_results(tmp_path, *(result(f"e{number}", kind=TestKind.ENVIRONMENT) for number in range(11)), result())
    assert judge(tmp_path).line == 11
