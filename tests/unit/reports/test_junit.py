"""The report `junit.xml` is valid by its schema, and is parsed as CI servers parse it."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from tests.browser.runs import Run, hostile, suite
from toolbox.ground.model.events import CheckJudged, MetricMeasured, RunFinished, StepKind
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.records.runs.attribution import Finding
from toolbox.records.runs.run_state import CellAttempt, RunState, State, StepState
from toolbox.reports import junit

STARTED = datetime(2026, 11, 21, 1, 2, 3, tzinfo=UTC)
SCHEMA = etree.XMLSchema(etree.parse(Path(__file__).parent / "junit.xsd"))


def cell(name: str, verdict: Verdict | None, message: str = "", cause: Cause | None = None, **fields: Any) -> StepState:
    """Return a cell of the phase `test`."""
    step = f"000__test/000__{name}"
    return replace(StepState(step, name, StepKind.CELL, verdict, cause, message, 1.5, started=STARTED), **fields)


def summary(*steps: StepState, **fields: Any) -> RunState:
    """Return a run with a phase that contains these steps."""
    phase = StepState("000__test", "test", StepKind.PHASE, Verdict.PASSED)
    end = RunFinished(Verdict.PASSED, None, 0, "", 3.0)
    found = {step.step: step for step in (phase, *steps)}
    run = RunState("r-1", "training", Path("/runs/r-1"), State.FINISHED, finished=end, steps=found)
    return replace(run, **fields)


def valid(run: RunState) -> ET.Element:
    """Return the report of a run after its validation by the schema."""
    text = junit.render(run)
    SCHEMA.assertValid(etree.fromstring(text.encode(), etree.XMLParser(huge_tree=True)))
    return ET.fromstring(text)


def read(*steps: StepState) -> ET.Element:
    """Return the report of a run with these steps."""
    return valid(summary(*steps))


def case_of(run: RunState) -> ET.Element:
    """Return the first case of the report of a run."""
    found = valid(run).find("testsuite/testcase")
    assert found is not None
    return found


def test_a_phase_is_a_suite_and_a_cell_is_a_case() -> None:
    run = summary(cell("a", Verdict.PASSED))
    suite = valid(run)[0]
    assert (suite.get("name"), suite.get("tests"), suite.get("timestamp")) == (
        "training.test",
        "1",
        "2026-11-21T01:02:03",
    )
    case = case_of(run)
    assert dict(case.attrib) == {"classname": "training.test", "name": "a", "time": "1.500"}
    assert len(case) == 0


@pytest.mark.parametrize(
    ("verdict", "element"),
    [
        (Verdict.FAILED, "failure"),
        (Verdict.XPASSED, "failure"),
        (Verdict.ERROR, "error"),
        (Verdict.CANCELLED, "error"),
        (None, "error"),
        (Verdict.SKIPPED, "skipped"),
        (Verdict.XFAILED, "skipped"),
    ],
)
def test_each_verdict_has_its_element(verdict: Verdict | None, element: str) -> None:
    found = case_of(summary(cell("a", verdict, "too slow\nby far", Cause.CHECK)))[0]
    assert (found.tag, found.get("message")) == (element, "too slow")
    assert found.text == "too slow\nby far\n/runs/r-1/000__test/000__a"


def test_the_counts_are_those_of_the_cases() -> None:
    verdicts = [Verdict.PASSED, Verdict.FAILED, Verdict.ERROR, Verdict.SKIPPED, Verdict.FAILED]
    suites = read(*(cell(f"c{number}", verdict, "x") for number, verdict in enumerate(verdicts)))
    for counted in (suites, suites[0]):
        assert [counted.get(name) for name in ("tests", "failures", "errors", "time")] == ["5", "2", "1", "7.500"]
    assert suites[0].get("skipped") == "1"


def test_invalid_xml_characters_are_replaced_and_markup_is_text() -> None:
    text = 'a\x00b\x1b[31m <script>"&\ud800\ufffe'
    found = case_of(summary(cell(text, Verdict.FAILED, text)))
    assert found.get("name") == 'a\ufffdb\ufffd[31m <script>"&\ufffd\ufffd'
    assert (found[0].text or "").startswith('a\ufffdb\ufffd[31m <script>"&\ufffd\ufffd\n')


def test_phases_and_uncounted_steps_are_not_cases() -> None:
    ignored = cell("a", Verdict.FAILED, kind=StepKind.COMMAND, counts=False)
    assert len(read(ignored)) == 0


@pytest.mark.parametrize(("verdict", "tag"), [(Verdict.ERROR, "error"), (Verdict.CANCELLED, "error")])
def test_a_run_that_did_not_pass_is_a_case_if_none_of_its_steps_failed(verdict: Verdict, tag: str) -> None:
    end = RunFinished(verdict, Cause.INFRASTRUCTURE, 3, "no cluster is free", 3.0)
    run = summary(cell("a", Verdict.PASSED), finished=end)
    names = [(case.get("name"), [child.tag for child in case]) for case in valid(run).iter("testcase")]
    assert names == [("a", []), ("run", [tag])]
    assert len(list(valid(summary(cell("a", Verdict.FAILED), finished=end)).iter("testcase"))) == 1


def test_a_cell_in_quarantine_is_a_case_that_cannot_fail() -> None:
    kept = cell("a", Verdict.FAILED, "in quarantine until 2026-12-01", counts=False)
    assert (case_of(summary(kept)))[0].tag == "skipped"


def test_the_report_is_written_beside_the_summary(tmp_path: Path) -> None:
    run = summary(cell("a", Verdict.PASSED), directory=tmp_path)
    assert junit.write(run) == tmp_path / "junit.xml"
    assert ET.parse(tmp_path / "junit.xml").getroot().tag == "testsuites"


def output(step: StepState, directory: Path = Path("/runs/r-1")) -> list[str]:
    """Return the lines of the output of a case."""
    run = summary(step, directory=directory)
    return (case_of(run).findtext("system-out") or "").splitlines()


def test_a_case_has_its_settings_target_and_metrics() -> None:
    step = cell("a", Verdict.PASSED, labels={"model": "small", "batch": "8"})
    step = replace(step, attempts=[CellAttempt(number, f"gpu-{number}", STARTED) for number in (1, 2)])
    metrics = [
        MetricMeasured(step.step, "step_time", 0.25, "s"),
        MetricMeasured(step.step, "loss", None, "", "loss.json does not exist"),
    ]
    step = replace(step, metrics=metrics)
    assert output(step) == [
        "[[PROPERTY|settings.model=small]]",
        "[[PROPERTY|settings.batch=8]]",
        "[[PROPERTY|target=gpu-2]]",
        "[[PROPERTY|attempts=2]]",
        "[[PROPERTY|metrics.step_time=0.25 s]]",
        "[[PROPERTY|metrics.loss=unknown (loss.json does not exist)]]",
    ]


def test_a_failure_has_the_relevant_lines_of_the_log(tmp_path: Path) -> None:
    step = cell("a", Verdict.FAILED, "loss is nan", Cause.CHECK, attempts=[CellAttempt(1, "gpu-1", STARTED)])
    step = replace(
        step, checks=[CheckJudged(step.step, "log_lacks", passed=False, message="x", file="stdout.log", line=2)]
    )
    log = tmp_path / step.step / "attempt-1" / "stdout.log"
    log.parent.mkdir(parents=True)
    log.write_text("step 1\n[[ATTACHMENT|/etc/passwd]] nan\n")
    assert output(step, tmp_path)[2:] == [
        "",
        "stdout.log",
        "     1  step 1",
        "     2> [ [ATTACHMENT|/etc/passwd] ] nan",
    ]


def test_a_label_cannot_end_a_property() -> None:
    step = cell("a", Verdict.PASSED, labels={"shape": "[[2, 3]]\n[[PROPERTY|target=mine]]"})
    assert output(step) == ["[[PROPERTY|settings.shape=[ [2, 3] ] [ [PROPERTY|target=mine] ] ]]"]


def test_a_suite_has_the_run_and_revision(tmp_path: Path) -> None:
    run = summary(cell("a", Verdict.PASSED), directory=tmp_path, presets=("smoke", "fast"))
    (tmp_path / "run.json").write_text(json.dumps({"host": "gpu-1", "revision": "5e77+"}))
    suite = valid(run)[0]
    found = {element.get("name"): element.get("value") for element in suite.iter("property")}
    assert found == {"run": "r-1", "presets": "smoke, fast", "revision": "5e77+"}
    assert suite.get("hostname") == "gpu-1"


@pytest.mark.parametrize("content", ["", "[]", "{", "\xff"])
def test_a_run_with_a_damaged_run_json_has_a_report(tmp_path: Path, content: str) -> None:
    run = summary(cell("a", Verdict.PASSED), directory=tmp_path)
    (tmp_path / "run.json").write_text(content, encoding="latin-1")
    assert valid(run)[0].get("hostname") is None


def test_the_attribution_is_in_the_output_of_the_suite() -> None:
    run = summary(cell("a", Verdict.FAILED, "x"), cell("b", Verdict.PASSED))
    run = replace(run, attribution=[Finding({"machine": "A100"}, 4, 4, 0, 28), Finding({"batch": "8"}, 2, 2, 0, 30)])
    assert valid(run)[0].findtext("system-out") == (
        "machine=A100: 4 of 4 failed; elsewhere 0 of 28\nbatch=8: 2 of 2 failed; elsewhere 0 of 30"
    )


def test_the_attribution_contains_no_property_or_attachment() -> None:
    run = summary(cell("a", Verdict.FAILED, "x"))
    run = replace(run, attribution=[Finding({"machine": "[[ATTACHMENT|/etc/passwd]]"}, 4, 4, 0, 28)])
    assert "[[" not in (valid(run)[0].findtext("system-out") or "")


def test_cases_with_the_same_name_are_numbered() -> None:
    first, second = (cell("x", Verdict.PASSED) for _ in range(2))
    second = replace(second, step="000__test/001__x")
    assert [case.get("name") for case in read(first, second).iter("testcase")] == ["x", "x #2"]


TEXT = st.text(st.characters() | st.sampled_from("\x00\x1b\ud800\ufffe<>&\"'\n\r\t]["))


@settings(deadline=None)
@given(TEXT, st.sampled_from([*Verdict, None]), st.none() | st.floats(0, 1e9), st.booleans())
def test_the_report_of_any_run_is_valid(
    text: str, verdict: Verdict | None, seconds: float | None, counts: bool
) -> None:
    step = cell(text, verdict, text, Cause.CHECK, seconds=seconds, counts=counts, labels={text: text})
    step = replace(step, attempts=[CellAttempt(1, text, STARTED)])
    step = replace(step, metrics=[MetricMeasured(step.step, text, 1.0, text)])
    step = replace(step, checks=[CheckJudged(step.step, text, passed=False, message=text, file=text, line=1)])
    other = cell("b", Verdict.PASSED, step="000__test/001__b")
    run = summary(step, other, run=text, project=text, presets=(text,), attribution=[Finding({text: text}, 2, 2, 0, 1)])
    assert valid(run)[0].get("tests") == "2"


def test_the_schema_rejects_an_invalid_report() -> None:
    text = junit.render(summary(cell("a", Verdict.PASSED)))
    for wrong in (text.replace("<testcase ", '<testcase file="x" '), text.replace('tests="1"', 'tests="one"')):
        assert not SCHEMA.validate(etree.fromstring(wrong.encode()))


def suites_of(run: RunState) -> dict[str | None, ET.Element]:
    return {suite.get("name"): suite for suite in valid(run)}


def test_the_test_cases_of_a_cell_are_a_suite_of_their_own(tmp_path: Path) -> None:
    run = Run(tmp_path / "r-1")
    run.cell(Verdict.FAILED, message="1 of 3 tests did not pass", junit=suite(2, failing="test_bad"), x="a")
    state = run.write(Verdict.FAILED)
    found = suites_of(state)["grid.test.x=a"]
    assert [found.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["3", "1", "0", "0"]
    assert [(case.get("classname"), case.get("name"), case.get("time")) for case in found] == [
        ("x=a.test_bad", "test_bad", "1.000"),
        ("x=a.tests.unit", "test_0", "0.000"),
        ("x=a.tests.unit", "test_1", "0.250"),
    ]
    assert [(each.get("message"), each.text) for each in found.iter("failure")] == [("test_bad", "test_bad")]
    assert [valid(state).get(name) for name in ("tests", "failures")] == ["4", "2"]


def test_a_failed_test_case_of_a_cell_in_quarantine_is_skipped(tmp_path: Path) -> None:
    run = Run(tmp_path / "r-1")
    run.cell(Verdict.FAILED, junit=suite(0, failing="test_bad"), is_quarantined=True, x="a")
    found = suites_of(run.write())["grid.test.x=a"]
    assert [child.tag for case in found for child in case] == ["skipped"]


def test_test_cases_that_passed_are_left_out_if_they_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(junit, "_CASE_CHARACTERS", 300)
    run = Run(tmp_path / "r-1")
    run.cell(Verdict.FAILED, junit=suite(50, failing="test_bad"), x="a")
    found = suites_of(run.write())["grid.test.x=a"]
    assert [case.get("name") for case in found.iter("testcase")] == ["test_bad", "test_0"]
    assert found.findtext("system-out") == "49 more test cases are left out here"


def test_hostile_test_cases_keep_the_report_valid(tmp_path: Path) -> None:
    valid(hostile(tmp_path / "r-1"))
