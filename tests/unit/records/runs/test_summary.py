"""The summary of a run is derived from its journal, whether the run is running, finished or dead."""

import json
from pathlib import Path

import pytest

from tests.fakes.history import Past, Tried, identity
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.events import (
    AttemptEnded,
    AttemptSubmitted,
    AttemptWaiting,
    CheckJudged,
    FlakyCellsFailed,
    JournalEvent,
    RunFinished,
    RunStarted,
    StepFinished,
    StepKind,
    StepStarted,
)
from toolbox.ground.model.resources import Resource
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.records.runs import ledger, run_reader, summary
from toolbox.records.runs.journal import Journal
from toolbox.records.runs.layout import RunDirectory
from toolbox.records.runs.run_state import State

STARTED = RunStarted("r-1", "training", "/runs/r-1", ("small",))
FINISHED = RunFinished(Verdict.FAILED, Cause.CHECK, 1, "too slow", 9.5)


def write(directory: Path, *events: JournalEvent) -> None:
    with Journal(directory) as opened:
        for event in events:
            opened.append(event)


def began(step: str) -> StepStarted:
    return StepStarted(step, step.rpartition("__")[2], StepKind.GROUP)


def ended(step: str, verdict: Verdict = Verdict.PASSED, *, counts: bool = True) -> StepFinished:
    cause = None if verdict.is_pass else Cause.PRODUCT
    return StepFinished(step, step.rpartition("__")[2], StepKind.GROUP, verdict, cause, "why", 1.0, counts)


def test_a_run_whose_writer_lives_is_running(tmp_path: Path, journal: Journal) -> None:
    journal.append(STARTED)
    journal.append(began("000__a"))
    found = run_reader.read(tmp_path)
    assert (found.state, found.project, found.presets) == (State.RUNNING, "training", ("small",))
    assert found.steps["000__a"].verdict is None


def test_a_run_without_an_end_or_a_writer_is_dead(tmp_path: Path) -> None:
    write(tmp_path, STARTED, began("000__a"))
    assert run_reader.read(tmp_path).state is State.DEAD


def test_a_run_with_an_end_is_finished(tmp_path: Path) -> None:
    write(tmp_path, STARTED, FINISHED)
    found = run_reader.read(tmp_path)
    assert (found.state, found.finished) == (State.FINISHED, FINISHED)


def test_a_resumed_run_is_not_finished_and_keeps_its_steps(tmp_path: Path) -> None:
    write(tmp_path, STARTED, began("000__a"), ended("000__a"), FINISHED, STARTED)
    found = run_reader.read(tmp_path)
    assert (found.state, list(found.steps)) == (State.DEAD, ["000__a"])


def test_reading_does_not_change_the_journal(tmp_path: Path) -> None:
    write(tmp_path, STARTED)
    before = RunDirectory(tmp_path).journal.read_bytes()
    run_reader.read(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {RunDirectory.journal: before}


@pytest.mark.parametrize("events", [[], [began("000__a")], [FINISHED]], ids=["empty", "a step", "an end"])
def test_a_journal_without_run_started_is_refused(tmp_path: Path, events: list[JournalEvent]) -> None:
    write(tmp_path, *events)
    with pytest.raises(UsageError, match=r"not the directory of a run"):
        run_reader.read(tmp_path)


def test_a_missing_directory_is_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="missing"):
        run_reader.read(tmp_path / "missing")


def test_only_innermost_failures_are_listed(tmp_path: Path) -> None:
    write(
        tmp_path, STARTED,
        *map(began, ["000__prepare", "001__test", "001__test/000__a", "001__test/001__b", "001__test/0010__c"]),
        ended("001__test/000__a", Verdict.FAILED), ended("001__test/001__b", Verdict.ERROR, counts=False),
        ended("001__test/0010__c", Verdict.XFAILED), ended("001__test", Verdict.FAILED),
        ended("000__prepare", Verdict.ERROR),
    )  # fmt: skip
    assert [step.step for step in run_reader.read(tmp_path).failures] == ["000__prepare", "001__test/000__a"]


def test_a_step_with_a_common_name_prefix_is_not_inside(tmp_path: Path) -> None:
    write(tmp_path, STARTED, ended("000__a", Verdict.FAILED), ended("000__ab/000__x", Verdict.FAILED))
    assert len(run_reader.read(tmp_path).failures) == 2


def test_steps_are_sorted_by_their_numbers(tmp_path: Path) -> None:
    names = ["000__a", "000__a/000__x", "000__a/009__y", "000__a/010__z", "001__b", "1000__c"]
    write(tmp_path, STARTED, *map(began, reversed(names)))
    assert list(run_reader.read(tmp_path).steps) == names


def test_summary_json_has_the_fields_for_programs(tmp_path: Path) -> None:
    judged = CheckJudged("000__a", "metric", passed=False, message="too slow ☃")
    write(tmp_path, STARTED, began("000__a"), judged, ended("000__a", Verdict.FAILED), FINISHED)
    summary.write(tmp_path)
    found = json.loads(RunDirectory(tmp_path).summary.read_text())
    assert "T" in found.pop("started")
    assert found == {
        "run": "r-1", "project": "training", "presets": ["small"], "state": "finished", "verdict": "failed",
        "cause": "check", "exit_code": 1, "message": "too slow", "seconds": 9.5, "directory": str(tmp_path),
        "planned_cells": None, "attribution": [], "damage": [], "open_attempts": [], "clusters": {},
        "steps": [{
            "step": "000__a", "name": "a", "kind": "group", "verdict": "failed", "cause": "product",
            "message": "why", "seconds": 1.0, "counts": True,
            "checks": [{
                "check": "metric", "passed": False, "message": "too slow ☃", "file": "", "line": None,
                "metric": "", "side": None, "improves": False, "out_of_range": False,
            }],
            "metrics": [], "cases": [], "attempts": [],
        }],
    }  # fmt: skip


def test_summary_json_has_the_cause_that_a_check_names(tmp_path: Path) -> None:
    judged = CheckJudged("000__a", "notebooks", passed=False, message="late", cause=Cause.TIMEOUT)
    write(tmp_path, STARTED, began("000__a"), judged, ended("000__a", Verdict.FAILED), FINISHED)
    summary.write(tmp_path)
    (step,) = json.loads(RunDirectory(tmp_path).summary.read_text())["steps"]
    assert [check["cause"] for check in step["checks"]] == ["timeout"]


def test_a_check_of_an_unknown_step_is_ignored(tmp_path: Path) -> None:
    write(tmp_path, STARTED, CheckJudged("009__x", "metric", passed=False, message=""))
    assert run_reader.read(tmp_path).steps == {}


def test_the_depth_of_a_step_is_that_of_its_directory(tmp_path: Path) -> None:
    write(tmp_path, STARTED, began("000__a"), began("000__a/000__b"))
    assert [step.depth for step in run_reader.read(tmp_path).steps.values()] == [0, 1]


def test_cancelled_steps_are_not_failures_beside_other_failures(tmp_path: Path) -> None:
    cells = [
        ended("0__t/0__a", Verdict.CANCELLED),
        ended("0__t/1__b", Verdict.FAILED),
        ended("0__t/2__c", Verdict.CANCELLED),
    ]
    write(tmp_path, STARTED, *cells, ended("0__t", Verdict.FAILED))
    derived = run_reader.read(tmp_path)
    assert [step.step for step in derived.failures] == ["0__t/1__b"]
    assert derived.cancelled == 2


def test_cancelled_steps_are_failures_without_other_failures(tmp_path: Path) -> None:
    write(tmp_path, STARTED, ended("0__t/0__a", Verdict.CANCELLED), ended("0__t", Verdict.CANCELLED))
    derived = run_reader.read(tmp_path)
    assert [step.step for step in derived.failures] == ["0__t/0__a"]
    assert derived.cancelled == 1


def test_cells_and_attribution_use_the_labels_of_the_plan(tmp_path: Path) -> None:
    cells = {f"model={model},batch={batch}": [Tried()] for model in ("small", "large") for batch in (1, 2, 4)}
    cells |= {cell: [Tried(Verdict.FAILED, Cause.PRODUCT)] for cell in cells if "large" in cell}
    found = run_reader.read(Past(cells).write(tmp_path))
    assert found.cells[0].labels == {"model": "small", "batch": "1"}
    assert list(map(str, found.attribution)) == ["model=large: 3 of 3 failed; elsewhere 0 of 3"]
    assert summary.as_json(found)["attribution"] == ["model=large: 3 of 3 failed; elsewhere 0 of 3"]


def test_each_kind_of_failure_is_explained(tmp_path: Path) -> None:
    cells = {
        f"model={m},batch={b},seed={s}": [Tried()] for m in ("small", "large") for b in (8, 16, 32) for s in (1, 2)
    }
    for number, cell in enumerate(name for name in cells if "large" in name and "batch=32" in name):
        cells[cell] = [Tried(Verdict.FAILED, Cause.PRODUCT, f"out of memory at 0x7f{number}, {number + 3} GiB in use")]
    cells["model=small,batch=8,seed=1"] = [Tried(Verdict.FAILED, Cause.CHECK, "metric: no loss")]
    found = run_reader.read(Past(cells).write(tmp_path))
    assert list(map(str, found.attribution)) == [
        "model=large and batch=32: 2 of 2 failed; elsewhere 0 of 9 (product: out of memory at <address>, # GiB in use)"
    ]


def test_cells_in_quarantine_are_not_attributed(tmp_path: Path) -> None:
    cells = {f"x={x},y={y}": [Tried(Verdict.FAILED if x == "a" else Verdict.PASSED)] for x in "ab" for y in "abc"}
    past = Past(cells, quarantined=[cell for cell in cells if "x=a" in cell])
    assert run_reader.read(past.write(tmp_path)).attribution == []


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cells": [{"id": 1}]}', '{"cells": 3}'])
def test_a_broken_plan_leaves_the_rest_of_the_summary(tmp_path: Path, text: str) -> None:
    directory = Past({"x=a": [Tried()]}).write(tmp_path)
    (directory / "plan.json").write_text(text)
    (cell,) = run_reader.read(directory).cells
    assert (cell.verdict, cell.labels) == (Verdict.PASSED, {})


def test_an_attempt_that_has_not_started_has_a_reason_until_it_ends(tmp_path: Path) -> None:
    cell = StepStarted("0__t/0__a", "a", StepKind.CELL)
    submitted = AttemptSubmitted("0__t/0__a", 1, "r-a-1", "lab")
    write(tmp_path, STARTED, cell, submitted, AttemptWaiting("0__t/0__a", 1, "waiting for a node"))
    (step,) = run_reader.read(tmp_path).cells
    assert step.attempts[0].waiting == "waiting for a node"
    ended_now = AttemptEnded("0__t/0__a", 1, "lab", Verdict.CANCELLED, None, "", 1.0)
    write(tmp_path, STARTED, cell, submitted, AttemptWaiting("0__t/0__a", 1, "waiting"), ended_now)
    assert run_reader.read(tmp_path).cells[0].attempts[0].waiting == ""


def test_flaky_cells_are_not_attributed(tmp_path: Path) -> None:
    failed = [Tried(Verdict.FAILED, Cause.PRODUCT)]
    cells = {f"x={x},y={y}": failed if x == "a" else [Tried()] for x in "ab" for y in "abc"}
    directory = Past(cells).write(tmp_path)
    assert [str(finding) for finding in run_reader.read(directory).attribution] == [
        "x=a: 3 of 3 failed; elsewhere 0 of 3"
    ]
    flaky = FlakyCellsFailed("000__test", tuple(identity(cell) for cell in cells if "x=a" in cell))
    write(directory, flaky)
    assert run_reader.read(directory).attribution == []


def test_the_summary_lists_open_resources_and_damage_of_the_ledger(tmp_path: Path) -> None:
    write(tmp_path, STARTED)
    assert "resources" not in summary.as_json(run_reader.read(tmp_path))
    found = ledger.of_run(tmp_path, "training")
    found.plan(Resource("node", "n", {}, 60, "delete n"))
    with found.file.open("a") as stream:
        stream.write("nonsense\n")
    state = run_reader.read(tmp_path)
    (entry,) = summary.as_json(state)["resources"]
    assert (entry["name"], entry["created"], entry["failure"], entry["command"]) == ("n", False, "", "delete n")
    assert state.damage_warning.startswith("the ledger of this run is damaged")
    assert summary.as_json(state)["damage"][0].startswith("ledger.jsonl:2: Invalid JSON")
