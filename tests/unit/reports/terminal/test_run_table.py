"""The table at the end of a run lists its failures."""

import io
import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.ledger import open_resource
from toolbox.ground.model.cases import CaseOutcome, CaseReport
from toolbox.ground.model.events import CheckJudged, RunFinished, StepKind
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.records.results import since_last_run
from toolbox.records.results.flaky_and_moved import LostMetric
from toolbox.records.results.since_last_run import SinceLastRun
from toolbox.records.runs.layout import RunDirectory
from toolbox.records.runs.run_state import RunState, State, StepState
from toolbox.reports.terminal import live_view, run_table


def shown(summary: RunState) -> str:
    """Return the table as it is written to a file."""
    stream = io.StringIO()
    with live_view.view(stream) as view:
        run_table.show(summary, view)
    return stream.getvalue()


def summary(*steps: StepState, end: RunFinished | None = None, state: State = State.FINISHED) -> RunState:
    return RunState(
        "r-1", "training", Path("/runs/r-1"), state, (), datetime.now(UTC), end, {step.step: step for step in steps}
    )


def step(name: str, verdict: Verdict | None = Verdict.PASSED, message: str = "", **fields: Any) -> StepState:
    cause = Cause.PRODUCT if verdict and not verdict.is_pass else None
    return StepState(name, name.rpartition("__")[2], StepKind.GROUP, verdict, cause, message, 1.25, **fields)


def test_the_table_names_failures_with_their_reason_and_directory() -> None:
    checks = [CheckJudged("001__test/000__cell", str(number), passed=number > 0, message="") for number in range(3)]
    text = shown(
        summary(
            step("000__prepare"),
            step("001__test", Verdict.FAILED, "around"),
            step("001__test/000__cell", Verdict.FAILED, "too slow\nby far", checks=checks),
            step("001__test/001__probe", Verdict.FAILED, "as expected", counts=False),
            end=RunFinished(Verdict.FAILED, Cause.CHECK, 1, "in the summary", 9.5),
        )
    )
    rows = [re.split(r"  +", line.strip()) for line in text.splitlines()[:5]]
    assert rows == [
        ["step", "verdict", "cause", "checks", "time"],
        ["000__prepare", "passed", "1.2 s"],
        ["001__test", "failed", "product", "1.2 s"],
        ["000__cell", "failed", "product", "2 of 3", "1.2 s"],
        ["001__probe", "failed (does not count)", "product", "1.2 s"],
    ]
    assert text.splitlines()[5:] == [
        "",
        "failed: 001__test/000__cell (product)",
        "  too slow",
        "  by far",
        "  look at /runs/r-1/001__test/000__cell",
        "",
        "failed (check)  training in 9.5 s",
        "the run is in /runs/r-1",
    ]


def test_a_failure_names_the_owner_of_its_cell(tmp_path: Path) -> None:
    cells = [{"id": "c", "owner": "ada\x1b[2J"}, {"id": "d", "owner": ["x"]}, "e"]
    failed = replace(step("cell", Verdict.FAILED, "why"), kind=StepKind.CELL, key="/test/c")
    for plan, line in (({"cells": cells}, ["  owner: ada"]), ({"cells": 5}, []), ([], [])):
        RunDirectory(tmp_path).plan.write_text(json.dumps(plan))
        output = shown(replace(summary(failed), directory=tmp_path))
        assert [each for each in output.splitlines() if "owner:" in each] == line


def test_the_table_of_a_passed_run_ends_with_its_verdict_and_its_directory() -> None:
    text = shown(summary(step("000__test"), end=RunFinished(Verdict.PASSED, None, 0, "", 9.5)))
    assert text.splitlines()[-2:] == ["passed  training in 9.5 s", "the run is in /runs/r-1"]


def test_the_message_of_an_end_without_a_failed_step_is_shown() -> None:
    end = RunFinished(Verdict.CANCELLED, Cause.INTERRUPTED, 143, "interrupted by SIGTERM\nand then: \x1b[2Jx", 9.5)
    text = shown(summary(step("000__test", Verdict.CANCELLED, "interrupted"), end=end))
    assert "  interrupted by SIGTERM\n  and then: x\n" in text
    nothing = RunFinished(Verdict.SKIPPED, None, 4, "nothing ran", 0.1)
    assert "skipped  training in 0.1 s\n  nothing ran\n" in shown(summary(end=nothing))


@pytest.mark.parametrize(
    ("state", "message"),
    [(State.RUNNING, "is going on"), (State.DEAD, "is dead: its process ended before the run did")],
)
def test_a_run_without_an_end_is_running_or_dead(state: State, message: str) -> None:
    text = shown(summary(step("000__test", None), state=state))
    assert f"the run r-1 {message}" in text
    assert re.search(rf"000__test +{'going on' if state is State.RUNNING else 'not ended'}", text)


def test_steps_that_were_cancelled_because_of_a_failure_are_counted_not_listed() -> None:
    cells = [step("0__t/0__a", Verdict.FAILED, "too slow"), *(step(f"0__t/{n}__b", Verdict.CANCELLED) for n in (1, 2))]
    text = shown(summary(step("0__t", Verdict.FAILED), *cells))
    assert "failed: 0__t/0__a (product)" in text
    assert "\n2 other steps were cancelled\n" in text
    assert "cancelled: " not in text


def test_steps_that_were_cancelled_alone_are_listed_not_counted() -> None:
    text = shown(summary(step("0__t", Verdict.CANCELLED), step("0__t/0__a", Verdict.CANCELLED)))
    assert "cancelled: 0__t/0__a" in text
    assert "other steps were cancelled" not in text


def test_a_step_that_was_cancelled_and_does_not_count_does_not_break_the_table() -> None:
    end = RunFinished(Verdict.PASSED, None, 0, "", 9.5)
    text = shown(summary(step("0__t"), step("0__t/0__a", Verdict.CANCELLED, counts=False), end=end))
    assert "passed  training in 9.5 s" in text


def test_the_table_counts_test_cases() -> None:
    counts = {CaseOutcome.PASSED: 7, CaseOutcome.FAILED: 2, CaseOutcome.SKIPPED: 5}
    cell = step("000__test", Verdict.PASSED, cases=[CaseReport("*.xml", counts)])
    heading, row, *_ = shown(summary(cell)).splitlines()
    assert re.split(r"  +", heading.strip()) == ["step", "verdict", "cause", "checks", "tests", "time"]
    assert re.split(r"  +", row.strip()) == ["000__test", "passed", cell.tests, "1.2 s"]
    assert cell.tests == "7 passed, 2 failed, 5 skipped"


def test_a_line_says_that_test_cases_passed_with_a_remark() -> None:
    cases = [CaseReport("*.xml", {CaseOutcome.PASSED: 3}, remarks=2)]
    cells = [replace(step(name, cases=cases), kind=StepKind.CELL) for name in ("a", "b")]
    lines = [line for line in shown(summary(*cells)).splitlines() if "remark" in line]
    assert [line.partition(": `")[0] for line in lines] == ["a: 3 passed; 2 cases passed with a remark (and 1 more)"]
    assert "results show r-1 --tests` shows the remarks" in lines[0]
    assert "remark" not in shown(summary(replace(step("a"), kind=StepKind.CELL)))


def test_the_table_lists_the_remaining_remote_resources() -> None:
    failed, kept = open_resource("a", failure="no answer\nmore"), open_resource("b", keep=True, is_created=True)
    more = [open_resource(f"m{number}") for number in range(9)]
    text = shown(replace(summary(), resources=[failed, kept, *more]))
    assert "remote resource: node a (could not be deleted: no answer); to delete it: delete a\n" in text
    assert "remote resource: node b (kept); to delete it: delete b\n" in text
    assert "and 6 more remote resources: `./run_toolbox.py resources list` shows them" in text


def test_the_resources_of_a_running_run_are_listed_only_if_a_deletion_failed() -> None:
    entries = [open_resource("a", is_created=True), open_resource("b", failure="no answer")]
    text = shown(replace(summary(state=State.RUNNING), resources=entries))
    assert "node a" not in text
    assert "node b" in text


def test_a_hostile_remote_resource_cannot_control_the_terminal() -> None:
    text = shown(replace(summary(), resources=[open_resource("a\x1b[2J", failure="\x1b]0;x\x07")]))
    assert "\x1b[2J" not in text
    assert "\x1b]" not in text


def test_a_metric_that_is_unknown_now_is_named(tmp_path: Path) -> None:
    lost = LostMetric("id", "x=a", "time", "s", 1.5, "no such file")
    empty = SinceLastRun.of((), (), "r0", datetime.now(UTC), has_more_runs=False, compared=1, new=0, gone=None)
    since_last_run.write(tmp_path, empty.with_findings([], [], [lost]))
    text = shown(replace(summary(step("000__a")), directory=tmp_path))
    assert "against the baseline: 1 metric of the baseline unknown" in text
    assert "x=a: time: 1.5 s → unknown: no such file" in text
