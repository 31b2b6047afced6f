"""The check `junit` judges the test cases of a suite, and never counts missing results as a pass."""

from pathlib import Path

import pytest

from toolbox.ground.model.evidence import Evidence
from toolbox.judges.checks import junit

from .conftest import Judge

PASSED = '<testcase classname="m" name="p" time="0.25"/>'
FAILED = '<testcase classname="m" name="f"><failure message="1 != 2"/></testcase>'
SKIPPED = '<testcase classname="m" name="s"><skipped/></testcase>'
FLAKY = '<testcase classname="m" name="y"><flakyFailure message="once"/></testcase>'


def write(directory: Path, *cases: str) -> None:
    """Write a JUnit file with these test cases."""
    (directory / "junit.xml").write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")


def test_a_suite_that_passed_passes(judge: Judge, tmp_path: Path) -> None:
    write(tmp_path, PASSED, SKIPPED)
    judgement = judge(check="junit", glob="*.xml")
    assert (judgement.passed, judgement.message) == (True, "1 passed, 1 skipped, in 0.2 s")


def test_the_message_names_the_first_failures(judge: Judge, tmp_path: Path) -> None:
    write(tmp_path, PASSED, *[FAILED] * 5)
    judgement = judge(check="junit", glob="*.xml")
    assert judgement.passed is False
    assert judgement.message.splitlines() == [
        "5 of 6 tests did not pass (1 passed, 5 failed)",
        "m.f: 1 != 2",
        "m.f #2: 1 != 2",
        "m.f #3: 1 != 2",
        "and 2 more",
    ]
    assert judgement.cases is not None
    assert judgement.cases.failed == 5


@pytest.mark.parametrize(("fail_on", "passed"), [(["failed", "error"], True), (["flaky"], False)])
def test_the_configuration_decides_which_outcomes_fail(
    judge: Judge, tmp_path: Path, fail_on: list[str], passed: bool
) -> None:
    write(tmp_path, PASSED, FLAKY)
    assert judge(check="junit", glob="*.xml", fail_on=fail_on).passed is passed


@pytest.mark.parametrize("cases", [[], [SKIPPED, SKIPPED]])
def test_a_suite_that_ran_no_test_has_not_passed(judge: Judge, tmp_path: Path, cases: list[str]) -> None:
    write(tmp_path, *cases)
    judgement = judge(check="junit", glob="*.xml")
    assert judgement.passed is False
    assert judgement.message.endswith("but at least 1 must run")


def test_a_suite_that_lost_tests_has_not_passed(judge: Judge, tmp_path: Path) -> None:
    write(tmp_path, PASSED)
    assert judge(check="junit", glob="*.xml", min_tests=2).message == "1 test ran (1 passed), but at least 2 must run"


@pytest.mark.parametrize(("counts", "fail_on"), [('failures="1"', "failed"), ('errors="1"', "error")])
def test_a_file_that_counts_a_failure_without_naming_it_has_not_passed(
    judge: Judge, tmp_path: Path, counts: str, fail_on: str
) -> None:
    (tmp_path / "junit.xml").write_text(f"<testsuites {counts}><testsuite>{PASSED}</testsuite></testsuites>")
    judgement = judge(check="junit", glob="*.xml", fail_on=[fail_on])
    assert judgement.passed is False
    assert "the suite counts 1 " in judgement.message


def test_a_total_time_is_only_shown_if_it_is_known(judge: Judge, tmp_path: Path) -> None:
    write(tmp_path, PASSED, PASSED.replace("0.25", "1,234"))
    assert judge(check="junit", glob="*.xml").message == "2 passed"


def test_a_broken_file_fails_with_its_line(judge: Judge, tmp_path: Path) -> None:
    (tmp_path / "junit.xml").write_text("<testsuite>\n<")
    judgement = judge(check="junit", glob="*.xml")
    assert (judgement.passed, judgement.file, judgement.line) == (False, "junit.xml", 2)


def test_a_missing_file_fails(judge: Judge) -> None:
    judgement = judge(check="junit", glob="*.xml")
    assert (judgement.passed, judgement.cases) == (False, None)


@pytest.mark.parametrize(
    ("files", "counts"),
    [
        ({}, None),
        ({"a.xml": ""}, None),
        ({"a.xml": "<testsuite>"}, None),
        ({"a.xml": f"<testsuite>{FAILED}{PASSED}<testcase"}, {"passed": 1, "failed": 1}),
        ({"a.xml": "", "b.xml": f"<testsuite>{PASSED}</testsuite>"}, {"passed": 1}),
    ],
)
def test_only_test_cases_that_finished_are_known_of_an_interrupted_suite(
    tmp_path: Path, files: dict[str, str], counts: dict[str, int] | None
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    report = junit.Check(glob="*.xml").finished(Evidence(tmp_path))
    assert (report.counts if report is not None else None) == counts
