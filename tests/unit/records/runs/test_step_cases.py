"""The test cases of a step come from its JUnit files, or else from the journal."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.browser.runs import Run, suite
from toolbox.ground.model.cases import CaseOutcome
from toolbox.ground.model.verdicts import Verdict
from toolbox.ground.system import redaction
from toolbox.ground.system.redaction import Redactor
from toolbox.records.runs import step_cases
from toolbox.records.runs.run_state import RunState
from toolbox.records.runs.step_cases import StepCases


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "r-1")


@pytest.fixture
def secret() -> Iterator[str]:
    """Yield a secret that is registered in this process."""
    before = redaction.current()
    redaction.use(Redactor())
    redaction.current().add(["hunter2"])
    yield "hunter2"
    redaction.use(before)


def cases_of(state: RunState) -> StepCases:
    cases = step_cases.read(state.directory, state.cells[0], state.secrets_left)
    assert cases is not None
    return cases


def test_all_test_cases_are_read_from_the_files(run: Run) -> None:
    run.cell(Verdict.FAILED, junit=suite(3, failing="test_bad"), x=1)
    cases = cases_of(run.write())
    assert (len(cases.cases), cases.is_complete, cases.total, cases.failed) == (4, True, 4, 1)
    assert [(case.name, case.text) for case in cases.failures] == [("test_bad", "test_bad")]
    assert str(cases) == "3 passed, 1 failed"


@pytest.mark.parametrize("content", [None, "<testsuite/>", "<testsuite>"])
def test_files_that_were_removed_or_changed_do_not_count(run: Run, content: str | None) -> None:
    attempt = run.cell(Verdict.FAILED, junit=suite(3, failing="test_bad"), x=1)
    file = attempt / "files/junit.xml"
    file.unlink()
    if content is not None:
        file.write_text(content)
    cases = cases_of(run.write())
    assert (cases.is_complete, cases.counts) == (False, {CaseOutcome.PASSED: 3, CaseOutcome.FAILED: 1})
    assert [case.name for case in cases.cases] == ["test_bad"]


def test_a_file_with_a_secret_that_could_not_be_masked_is_not_read(run: Run) -> None:
    attempt = run.cell(junit=suite(3), x=1)
    state = run.write()
    withheld = [str((attempt / "files/junit.xml").relative_to(state.directory))]
    cases = step_cases.read(state.directory, state.cells[0], withheld)
    assert cases is not None
    assert (cases.is_complete, cases.cases) == (False, [])


def test_a_secret_in_an_encoding_that_was_not_swept_is_masked(run: Run, secret: str) -> None:
    attempt = run.cell(junit=suite(1), x=1)
    document = f'<?xml version="1.0" encoding="UTF-16"?><testsuite><testcase name="a {secret}"/></testsuite>'
    (attempt / "files/junit.xml").write_text(document, encoding="utf-16")
    assert [case.name for case in cases_of(run.write()).cases] == ["a ***"]


def test_a_step_without_a_suite_has_no_test_cases(run: Run) -> None:
    run.cell(x=1)
    state = run.write()
    assert step_cases.read(state.directory, state.cells[0]) is None


@pytest.mark.parametrize("where", ["a pattern", "an absolute pattern", "a step", "a link"])
def test_files_outside_the_run_are_not_read(run: Run, tmp_path: Path, where: str) -> None:
    attempt = run.cell(junit=suite(3), x=1)
    outside = tmp_path / "outside" / attempt.name / "files"
    outside.mkdir(parents=True)
    (outside / "junit.xml").write_text(suite(3))
    state = run.write()
    step = state.cells[0]
    (report,) = step.cases
    if where == "a step":
        step = replace(step, step="../outside")
    elif where == "a link":
        (attempt / "files/junit.xml").unlink()
        (attempt / "files/junit.xml").symlink_to(outside / "junit.xml")
    else:
        up = str(tmp_path) if where == "an absolute pattern" else "../" * 4
        step = replace(step, cases=(replace(report, glob=f"{up}/outside/*/files/*.xml"),))
    cases = step_cases.read(state.directory, step)
    assert cases is not None
    assert (cases.is_complete, cases.cases) == (False, [])
