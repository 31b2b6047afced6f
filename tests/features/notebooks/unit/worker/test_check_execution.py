"""Checks tell what they checked, expected and found; whatever they do, each has a result."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.features.notebooks.fakes.check_place import CheckPlace
from toolbox.features.notebooks.worker import check_execution
from toolbox.features.notebooks.worker.execution_place import Ended, PlaceError
from toolbox.features.notebooks.worker.notebook_results import Fault, TestKind, TestOutcome, TestResult
from toolbox.features.notebooks.worker.notebook_settings import CheckSettings

PARTS = "echo 'checked: the disk'; echo 'expected: 5 GB'; echo 'found: 4 GB'\n"


def run(file: str, source: str, place: CheckPlace | None, promises: dict[str, Any]) -> list[TestResult]:
    with tempfile.TemporaryDirectory() as sources:
        Path(sources, file).write_text(source)
        return check_execution.run(CheckSettings("c", file, 60), Path(sources), promises, place or CheckPlace())


def shell(script: str, place: CheckPlace | None = None, **promises: Any) -> TestResult:
    (result,) = run("c.sh", script, place, promises)
    assert result.kind is TestKind.SHELL
    return result


def python(source: str, place: CheckPlace | None = None, **promises: Any) -> list[TestResult]:
    return run("c.py", source, place, promises)


def brief(result: TestResult) -> tuple[TestOutcome, Fault | None, str]:
    return result.outcome, result.fault, result.message


def test_a_shell_check_tells_its_parts() -> None:
    result = shell(PARTS)
    assert (result.checked, result.expected, result.found) == ("the disk", "5 GB", "4 GB")
    assert brief(result) == (TestOutcome.PASSED, None, "")


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("exit 1", (TestOutcome.FAILED, Fault.EXPECTATION, "expected 5 GB, found 4 GB")),
        ("echo message: too full; exit 1", (TestOutcome.FAILED, Fault.EXPECTATION, "too full")),
        ("exit 77", (TestOutcome.SKIPPED, None, "4 GB")),
        ("echo message: no disk; exit 77", (TestOutcome.SKIPPED, None, "no disk")),
        ("echo bad >&2; exit 3", (TestOutcome.ERROR, Fault.CODE, "the check ended with status 3: bad")),
        ("kill -9 $$", (TestOutcome.ERROR, Fault.CODE, "the check ended with status -9")),
    ],
)
def test_the_exit_status_of_a_shell_check_is_its_outcome(script: str, expected: tuple[object, ...]) -> None:
    assert brief(shell(PARTS + script)) == expected


def test_a_check_that_does_not_apply_is_skipped_with_the_reason() -> None:
    settings = CheckSettings("c", "c.py", skip="no network")
    (result,) = check_execution.run(settings, Path("/nowhere"), {}, CheckPlace())
    assert brief(result) == (TestOutcome.SKIPPED, None, "no network")


def test_a_missing_file_is_an_error_of_the_check_alone(tmp_path: Path) -> None:
    (result,) = check_execution.run(CheckSettings("c", "c.sh"), tmp_path, {}, CheckPlace())
    assert brief(result) == (
        TestOutcome.ERROR,
        Fault.INTERNAL,
        "the file c.sh cannot be read: No such file or directory",
    )


def test_a_part_can_have_several_lines() -> None:
    assert shell("echo found: git 2; echo other: x; echo found: bash 5").found == "git 2; bash 5"


def test_terminal_codes_in_a_part_are_removed() -> None:
    assert shell(r"printf 'found: \033[31mred\033[0m \007\n'").found == "red"


def test_promises_are_variables_of_a_shell_check() -> None:
    place = CheckPlace()
    versions = {"git": ">=2", "bash": None}
    shell("", place, disk_gb=5, network=["a", "b:1"], versions=versions, fast=True, none=None)
    assert place.variables == {
        "PROMISE_DISK_GB": "5",
        "PROMISE_NETWORK": "a\nb:1",
        "PROMISE_VERSIONS": "git >=2\nbash",
        "PROMISE_FAST": "true",
    }


def test_each_result_of_a_python_check_is_a_test() -> None:
    results = python(
        '"""The packages are installed.\n\nDetails."""\n'
        "def check(promises):\n"
        "    print('noise')\n"
        "    yield {'name': 'a', 'outcome': 'passed', 'expected': promises['a'], 'found': 1}\n"
        "    yield {'name': 'b', 'outcome': 'failed', 'expected': 2, 'found': 1}\n"
        "    yield {'outcome': 'skipped', 'message': 'no GPU', 'checked': 'The GPU works.'}\n",
        a=">=1",
    )
    assert [(result.name, result.checked, *brief(result)) for result in results] == [
        ("c:a", "The packages are installed.", TestOutcome.PASSED, None, ""),
        ("c:b", "The packages are installed.", TestOutcome.FAILED, Fault.EXPECTATION, "expected 2, found 1"),
        ("c", "The GPU works.", TestOutcome.SKIPPED, None, "no GPU"),
    ]
    assert (results[0].expected, results[0].found) == (">=1", "1")


def test_a_python_check_can_return_one_result() -> None:
    (result,) = python("def check(promises):\n    return {'outcome': 'passed'}")
    assert (result.name, result.outcome) == ("c", TestOutcome.PASSED)


def test_repeated_names_are_numbered() -> None:
    results = python("def check(promises):\n    return [{'name': 'a', 'outcome': 'passed'}] * 2")
    assert [result.name for result in results] == ["c:a", "c:a (2)"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("assert False, 'no disk'", (TestOutcome.FAILED, Fault.EXPECTATION, "no disk")),
        ("assert 1 > 2", (TestOutcome.FAILED, Fault.EXPECTATION, "assert 1 > 2")),
        ("raise ValueError('x')", (TestOutcome.ERROR, Fault.CODE, "ValueError: x")),
        ("import sys; sys.exit(0)", (TestOutcome.ERROR, Fault.CODE, "SystemExit: 0")),
        ("pass", (TestOutcome.ERROR, Fault.CODE, "the function `check` returned no result")),
        (
            "return [{'outcome': 'good'}]",
            (TestOutcome.ERROR, Fault.CODE, "a result of the check has no valid `outcome`"),
        ),
        ("import os; os._exit(3)", (TestOutcome.ERROR, Fault.CODE, "the check ended with status 3")),
        ("return 5", (TestOutcome.ERROR, Fault.CODE, "TypeError: 'int' object is not iterable")),
    ],
)
def test_a_python_check_that_ends_early_has_a_result(body: str, expected: tuple[object, ...]) -> None:
    (result,) = python(f"def check(promises):\n    {body}\n")
    assert brief(result) == expected


def test_a_check_with_too_many_results_does_not_pass() -> None:
    results = python("def check(promises):\n    return [{'name': str(n), 'outcome': 'passed'} for n in range(1002)]")
    assert len(results) == 1001
    text = "the check has 1002 results, and at most 1000 are read"
    assert brief(results[-1]) == (TestOutcome.ERROR, Fault.CODE, text)


class LimitedPlace(CheckPlace):
    """Ends each check while it prints its last record."""

    def python(self, source: str, *, timeout: float) -> Ended:
        printed = super().python(source, timeout=timeout).stdout
        return Ended(None, printed.rstrip()[:-1], fault=Fault.TOO_MUCH_OUTPUT, message="wrote too much")


def test_a_check_that_is_ended_in_the_middle_of_a_record_has_a_reason() -> None:
    results = python("def check(promises):\n    return {'name': 'a', 'outcome': 'passed'}\n", LimitedPlace())
    assert [brief(result) for result in results] == [
        (TestOutcome.PASSED, None, ""),
        (TestOutcome.FAILED, Fault.TOO_MUCH_OUTPUT, "wrote too much"),
    ]


def test_results_before_a_crash_are_kept() -> None:
    results = python("import os\ndef check(promises):\n    yield {'name': 'a', 'outcome': 'passed'}\n    os.abort()\n")
    assert [result.outcome for result in results] == [TestOutcome.PASSED, TestOutcome.ERROR]


@pytest.mark.parametrize("source", ["def check(:", "x = 1", "import nowhere"])
def test_a_file_that_is_not_a_check_has_a_result(source: str) -> None:
    (result,) = python(source)
    assert (result.outcome, result.fault) == (TestOutcome.ERROR, Fault.CODE)


def test_output_that_looks_like_a_result_is_ignored() -> None:
    (result,) = python(
        "import os\n"
        "def check(promises):\n"
        '    os.write(1, b\'{"result": {"outcome": "failed"}}\\n without an end\')\n'
        "    return {'outcome': 'passed'}\n"
    )
    assert result.outcome is TestOutcome.PASSED


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (
            Ended(None, fault=Fault.TIMEOUT),
            (TestOutcome.FAILED, Fault.TIMEOUT, "the check did not end within 60 s"),
        ),
        (
            Ended(-9, fault=Fault.OUT_OF_MEMORY, message="killed"),
            (TestOutcome.FAILED, Fault.OUT_OF_MEMORY, "killed"),
        ),
        (PlaceError(Fault.SERVER, "lost"), (TestOutcome.ERROR, Fault.SERVER, "lost")),
    ],
)
def test_an_end_by_the_place_is_the_fault_of_both_kinds(end: Ended | PlaceError, expected: tuple[object, ...]) -> None:
    assert brief(shell("", CheckPlace(end))) == expected
    assert [brief(result) for result in python("", CheckPlace(end))] == [expected]
