"""The verdict of a run follows from its phases, sessions and shards.

A run has not passed if its steps say something else, whatever its journal records as its end.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from tests.fakes.history import Past, Tried
from toolbox.ground.model.errors import CheckFailed, InfrastructureError, Interrupted
from toolbox.ground.model.events import RunFinished
from toolbox.ground.model.verdicts import Cause, ExitCode, Verdict
from toolbox.records.runs import run_reader, run_verdict
from toolbox.records.runs.layout import RunDirectory
from toolbox.records.runs.run_state import RunState
from toolbox.records.runs.steps import Outcome, Step

PASSED = Outcome(Verdict.PASSED, None, "x passed")
SKIPPED = Outcome(Verdict.SKIPPED, None, "there are no cells")
FAILED = Outcome(Verdict.FAILED, Cause.CHECK, "too slow")
LATE = Outcome(Verdict.CANCELLED, Cause.TIMEOUT, "the deadline")
CELLS = {"x=a": [Tried()], "x=b": [Tried(Verdict.FAILED, Cause.PRODUCT), Tried()], "x=c": [Tried(Verdict.XFAILED)]}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return Past(CELLS).write(tmp_path)


def lines_of(directory: Path) -> list[str]:
    return RunDirectory(directory).journal.read_text().splitlines(keepends=True)


def read(directory: Path, lines: Sequence[str]) -> RunState:
    RunDirectory(directory).journal.write_text("".join(lines))
    return run_reader.read(directory)


def end(run: RunState) -> RunFinished:
    assert run.finished is not None
    return run.finished


def is_whole(run: RunState) -> bool:
    """Return whether each cell of the plan has an end, and each attempt too."""
    attempts = [attempt for cell in run.cells for attempt in cell.attempts[-1:]]
    return len([cell for cell in run.cells if cell.verdict]) == len(CELLS) and all(each.verdict for each in attempts)


def test_no_lost_line_leaves_a_pass_with_a_cell_that_has_no_end(directory: Path) -> None:
    whole = lines_of(directory)
    assert end(read(directory, whole)).verdict is Verdict.XFAILED
    for number in range(1, len(whole) - 1):  # without the first or the last line, the run has not begun or not ended
        run = read(directory, whole[:number] + whole[number + 1 :])
        assert is_whole(run) or (end(run).verdict, end(run).exit_code) == (Verdict.ERROR, 3), whole[number]


def test_no_two_swapped_lines_leave_a_pass_with_a_cell_that_has_no_end(directory: Path) -> None:
    whole = lines_of(directory)
    for one, other in combinations(range(1, len(whole)), 2):
        lines = list(whole)
        lines[one], lines[other] = lines[other], lines[one]
        run = read(directory, lines)
        assert run.finished is None or is_whole(run) or run.finished.verdict is Verdict.ERROR, (one, other)


def test_the_message_names_the_cells_and_what_to_do(directory: Path) -> None:
    run = read(directory, [line for line in lines_of(directory) if "x=a" not in line and "x=b" not in line])
    assert end(run).message.splitlines() == [
        "the journal says that the run is `xfailed`, but does not contain the end of 2 cells: x=a, x=b",
        "lines of its journal are lost or in the wrong place; `project resume` repeats steps without an end",
    ]
    assert (end(run).cause, end(run).exit_code) == (Cause.INFRASTRUCTURE, 3)


def test_cells_are_counted_without_a_plan(directory: Path) -> None:
    RunDirectory(directory).plan.unlink()
    run = read(directory, [line for line in lines_of(directory) if "x=a" not in line])
    assert "does not contain the end of 1 cell\n" in end(run).message


@pytest.mark.parametrize("recorded", [Verdict.PASSED, Verdict.SKIPPED, Verdict.XFAILED])
def test_a_step_that_counts_and_failed_cannot_be_in_a_run_that_passed(tmp_path: Path, recorded: Verdict) -> None:
    broken = replace(Past({**CELLS, "x=b": [Tried(Verdict.FAILED, Cause.CHECK)]}), message="it broke")
    directory = broken.write(tmp_path)
    *lines, last = lines_of(directory)
    run = read(directory, [*lines, json.dumps({**json.loads(last), "verdict": recorded}) + "\n"])
    assert end(run).verdict is Verdict.ERROR
    assert "did not pass: test, x=b" in end(run).message


def test_what_does_not_count_may_fail(tmp_path: Path) -> None:
    cells = {**CELLS, "x=b": [Tried(Verdict.FAILED, Cause.CHECK)]}
    directory = Past(cells, quarantined=["x=b"]).write(tmp_path)
    assert end(run_reader.read(directory)).verdict is Verdict.XFAILED


def test_a_cell_in_quarantine_may_keep_an_attempt_that_is_still_running(tmp_path: Path) -> None:
    cells = {**CELLS, "x=b": [Tried(Verdict.ERROR, Cause.INFRASTRUCTURE)]}
    directory = Past(cells, quarantined=["x=b"]).write(tmp_path)
    run = read(directory, [line for line in lines_of(directory) if not ("x=b" in line and "AttemptEnded" in line)])
    assert run.cells[1].attempts[-1].is_open
    assert end(run).verdict is Verdict.XFAILED


def test_a_repeated_step_may_run_its_matrix_in_another_step_inside_it(directory: Path) -> None:
    first, *rest = lines_of(directory)
    phase, planned = ({**json.loads(line), "time": "2026-03-01T01:00:00+00:00"} for line in rest[:2])
    task = {**phase, "step": "000__test/000__task", "name": "task", "kind": "task", "key": "/test/task"}
    earlier = [phase, task, {**planned, "step": task["step"]}]
    run = read(directory, [first, *(json.dumps(event) + "\n" for event in earlier), first, *rest])
    assert end(run).verdict is Verdict.XFAILED


def test_a_recorded_failure_stays_as_it_is(tmp_path: Path) -> None:
    directory = Past({**CELLS, "x=b": [Tried(Verdict.FAILED, Cause.CHECK)]}).write(tmp_path)
    run = read(directory, [line for line in lines_of(directory) if "x=a" not in line])
    assert end(run).verdict is Verdict.FAILED


def of_session(top: Step, outcomes: Sequence[Outcome], *errors: BaseException, is_shard: bool = False) -> RunFinished:
    """Return the end of a session whose first phases have these outcomes; the last one is that of `test`."""
    for outcome in outcomes:
        top.add(outcome)
    return run_verdict.of_session(top, errors, tested=outcomes[-1] if outcomes else None, is_shard=is_shard)


def fields(end: RunFinished) -> tuple[Verdict, Cause | None, int, str]:
    return end.verdict, end.cause, end.exit_code, end.message


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([PASSED], (Verdict.PASSED, None, 0, "")),
        ([PASSED, SKIPPED], (Verdict.SKIPPED, None, 4, "there are no cells")),
        ([PASSED, FAILED], (Verdict.FAILED, Cause.CHECK, 1, "too slow")),
    ],
)
def test_the_worst_phase_decides(
    top: Step, outcomes: Sequence[Outcome], expected: tuple[Verdict, Cause | None, int, str]
) -> None:
    assert fields(of_session(top, outcomes)) == expected


def test_a_shard_without_cells_is_no_failure_of_its_job(top: Step) -> None:
    assert fields(of_session(top, [PASSED, SKIPPED], is_shard=True)) == (Verdict.SKIPPED, None, 0, SKIPPED.message)


def test_the_first_error_decides_and_later_ones_are_added(top: Step) -> None:
    errors = (CheckFailed("too slow"), InfrastructureError("the disk is full"))
    assert fields(of_session(top, [], *errors)) == (
        Verdict.FAILED, Cause.CHECK, 1, "too slow\nand then: the disk is full",
    )  # fmt: skip


def test_a_failed_phase_decides_before_the_error_that_followed(top: Step) -> None:
    end = of_session(top, [FAILED], InfrastructureError("the disk is full"))
    assert fields(end) == (Verdict.FAILED, Cause.CHECK, 1, "too slow\nthe disk is full")


@pytest.mark.parametrize(("signal", "code"), [(2, 130), (15, 143), (14, 124)])
def test_a_signal_decides_whatever_failed_before(top: Step, signal: int, code: int) -> None:
    end = of_session(top, [FAILED], CheckFailed("too slow"), Interrupted(signal))
    assert (end.verdict, end.exit_code) == (Verdict.CANCELLED, code)
    assert end.message.endswith("\nand then: too slow")


@pytest.mark.parametrize(
    ("earlier", "last", "expected"),
    [
        ([], PASSED, (Verdict.PASSED, None, 0, "x passed")),
        ([PASSED], FAILED, (Verdict.FAILED, Cause.CHECK, 1, "too slow")),
        ([FAILED], PASSED, (Verdict.FAILED, Cause.CHECK, 1, "too slow\nand then: x passed")),
        ([PASSED, LATE], FAILED, (Verdict.CANCELLED, Cause.TIMEOUT, 124, "the deadline\nand then: too slow")),
        ([SKIPPED], PASSED, (Verdict.SKIPPED, None, 4, "there are no cells")),
        ([SKIPPED], FAILED, (Verdict.FAILED, Cause.CHECK, 1, "too slow")),
    ],
)
def test_the_first_phase_of_several_sessions_that_did_not_pass_decides(
    earlier: Sequence[Outcome], last: Outcome, expected: tuple[Verdict, Cause | None, int, str]
) -> None:
    assert fields(run_verdict.of_phases(run_verdict.finished(last, 1.0), earlier)) == expected


def test_the_worst_shard_decides_and_the_others_are_named() -> None:
    ends = [run_verdict.finished(outcome, 1.0) for outcome in (PASSED, FAILED, LATE)]
    ends.append(replace(ends[-1], exit_code=ExitCode.DEADLINE))
    names = ("one", "two", "three", "four")
    assert fields(run_verdict.of_shards(dict(zip(names, ends, strict=True)), 2.0)) == (
        Verdict.CANCELLED, Cause.TIMEOUT, 124, "four: the deadline\ntwo: too slow\nthree: the deadline",
    )  # fmt: skip
