"""`junit.xml`, read back as the CI servers read it."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from pathlib import Path

import pytest

from toolbox.model.events import RunFinished, StepKind
from toolbox.model.verdicts import Cause, Verdict
from toolbox.reports import junit
from toolbox.runs.summary import RunSummary, State, StepSummary

STARTED = datetime(2026, 11, 21, 1, 2, 3, tzinfo=UTC)


def cell(name: str, verdict: Verdict | None, message: str = "", cause: Cause | None = None) -> StepSummary:
    """Return a cell of the phase `test`."""
    step = f"000__test/000__{name}"
    return StepSummary(step, name, StepKind.CELL, verdict, cause, message, 1.5, started=STARTED)


def summary(*steps: StepSummary) -> RunSummary:
    """Return a run with a phase around these steps."""
    phase = StepSummary("000__test", "test", StepKind.PHASE, Verdict.FAILED)
    end = RunFinished(Verdict.FAILED, None, 1, "", 3.0)
    found = {step.step: step for step in (phase, *steps)}
    return RunSummary("r-1", "training", Path("/runs/r-1"), State.FINISHED, finished=end, steps=found)


def read(*steps: StepSummary) -> ET.Element:
    """Return the report of such a run."""
    return ET.fromstring(junit.render(summary(*steps)))


def test_a_phase_is_a_suite_and_a_cell_is_a_case() -> None:
    suite = read(cell("a", Verdict.PASSED))[0]
    assert (suite.get("name"), suite.get("tests"), suite.get("timestamp")) == (
        "training.test",
        "1",
        "2026-11-21T01:02:03",
    )
    case = suite[0]
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
    found = read(cell("a", verdict, "too slow\nby far", Cause.CHECK))[0][0][0]
    assert (found.tag, found.get("message")) == (element, "too slow")
    assert found.text == "too slow\nby far\n/runs/r-1/000__test/000__a"


def test_the_counts_are_those_of_the_cases() -> None:
    verdicts = [Verdict.PASSED, Verdict.FAILED, Verdict.ERROR, Verdict.SKIPPED, Verdict.FAILED]
    suites = read(*(cell(f"c{number}", verdict, "x") for number, verdict in enumerate(verdicts)))
    for counted in (suites, suites[0]):
        assert [counted.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["5", "2", "1", "1"]
        assert counted.get("time") == "7.500"


def test_what_xml_cannot_hold_is_replaced_and_markup_is_text() -> None:
    text = 'a\x00b\x1b[31m <script>"&\ud800\ufffe'
    found = read(cell(text, Verdict.FAILED, text))[0][0]
    assert found.get("name") == 'a\ufffdb\ufffd[31m <script>"&\ufffd\ufffd'
    assert (found[0].text or "").startswith('a\ufffdb\ufffd[31m <script>"&\ufffd\ufffd\n')


def test_a_phase_and_what_does_not_count_are_no_cases() -> None:
    ignored = cell("a", Verdict.FAILED)
    ignored.counts = False
    assert len(read(ignored)) == 0


def test_it_is_written_beside_the_summary(tmp_path: Path) -> None:
    run = summary(cell("a", Verdict.PASSED))
    run.directory = tmp_path
    assert junit.write(run) == tmp_path / "junit.xml"
    assert ET.parse(tmp_path / "junit.xml").getroot().tag == "testsuites"
