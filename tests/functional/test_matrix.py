"""`project run` of a matrix with real processes: verdicts, exit codes, limits and early ends."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from tests.functional.grid import Grid, wait
from tests.functional.grid import grid as grid  # noqa: PLC0414  # re-exports the fixture

EXCUSED = {"when": {"x": "b"}, "reason": "#7", "owner": "me", "expires": "2999-01-01"}
EVERY_CELL: dict[str, Any] = {"when": {}, "reason": "#7"}


def test_a_run_passes_if_all_cells_pass(grid: Grid) -> None:
    outcome = grid.run()
    assert outcome.exit_code == 0, str(outcome)
    assert grid.verdicts == {"a": "passed", "b": "passed", "c": "passed"}
    assert sorted(grid.lines) == sorted(f"{word} {x}" for x in "abc" for word in ("begin", "end"))
    assert "of 3 cells: 3 passed" in outcome.stdout


def test_a_failed_cell_fails_the_run_and_names_its_directory(grid: Grid) -> None:
    outcome = grid.mark("fail-b").run()
    assert outcome.exit_code == 1, str(outcome)
    assert grid.verdicts == {"a": "passed", "b": "failed", "c": "passed"}
    summary = grid.workspace.summary()
    assert (summary["verdict"], summary["cause"]) == ("failed", "product")
    assert summary["message"].startswith("of 3 cells: 2 passed, 1 failed\nx=b: exit_status: exit status 1, expected 0")
    (cell,) = grid.directory.glob("*__test/*__x=b")
    assert f"look at {cell}" in outcome.stdout
    assert {"settings.yaml", "step.json", "FAILURE", "attempt-1"} <= {path.name for path in cell.iterdir()}
    assert (cell / "attempt-1/exit_code").read_text() == "1\n"
    assert grid.lines.count("begin b") == 1, "a failure of the product is not repeated by default"
    assert {"stdout.log", "stderr.log", "outcome.json"} <= {path.name for path in (cell / "attempt-1").iterdir()}


def test_the_cause_of_a_run_belongs_to_the_cell_in_its_message(grid: Grid) -> None:
    script = "echo begin {@cell.x} >>{@root}/cells; while [ -e {@root}/hold-{@cell.x} ]; do sleep 0.02; done; "
    script += "[ {@cell.x} = a ] && exit 1; echo wrong"
    grid.configure("ab", workload={"command": script}, checks=[{"check": "log_lacks", "text": "wrong"}])
    with grid.mark("hold-a").start() as running:
        grid.wait_for("begin a", "begin b")
        journal = grid.directory / "journal.jsonl"
        wait(lambda: journal.read_text().count('"StepFinished"') > 1, "the end of b")  # and that of `prepare`
        grid.unmark("hold-a")
        outcome = running.wait(60)
    assert outcome.exit_code == 1, str(outcome)
    summary = grid.workspace.summary()
    assert summary["cause"] == "product"
    assert "x=a: exit_status: exit status 1" in summary["message"]
    phase = next(step for step in summary["steps"] if step["kind"] == "phase" and step["name"] == "test")
    assert (phase["cause"], phase["message"]) == (summary["cause"], summary["message"])


@pytest.mark.parametrize(
    ("block", "fails", "code", "verdict"),
    [
        ({"skip": [EVERY_CELL]}, [], 4, "skipped"),
        ({"skip": [{**EVERY_CELL, "when": {"x": "b"}}]}, ["fail-b"], 0, "passed"),
        ({"xfail": [EXCUSED]}, ["fail-b"], 0, "xfailed"),
        ({"xfail": [EXCUSED]}, [], 1, "xpassed"),
        ({"xfail": [{**EXCUSED, "expires": "2020-01-01"}]}, ["fail-b"], 1, "failed"),
        ({"workload": {"command": ["no-such-program"]}}, [], 3, "error"),
        ({"timeouts": {"run": 0.3}}, ["hold-b"], 1, "failed"),
        ({"timeouts": {"silence": 0.3}}, ["hold-b"], 1, "failed"),
        ({"checks": [{"check": "files", "glob": "files/*.pb"}]}, [], 1, "failed"),
    ],
    ids=["skipped", "one skipped", "xfailed", "xpassed", "xfail over", "no program", "too long", "too silent", "check"],
)
def test_the_worst_cell_determines_the_exit_code(
    grid: Grid, block: dict[str, Any], fails: list[str], code: int, verdict: str
) -> None:
    outcome = grid.configure("ab", **block).mark(*fails).run()
    assert outcome.exit_code == code, str(outcome)
    assert grid.workspace.summary()["verdict"] == verdict
    assert grid.phases == ["prepare", "cleanup"]
    assert grid.alive() == []


def test_a_cell_that_hangs_is_ended_with_all_its_processes(grid: Grid) -> None:
    command = "setsid sleep 300 & sleep 300"
    grid.configure("a", workload={"command": command}, timeouts={"run": 0.3, "grace": 1})
    outcome = grid.run()
    assert outcome.exit_code == 1
    assert grid.workspace.summary()["cause"] == "timeout"
    assert "it ran longer than 0.3 s" in outcome.stdout
    assert grid.alive() == []


def test_test_cases_that_finished_before_the_time_limit_are_rows_of_the_cell(grid: Grid) -> None:
    command = """
        echo '<testsuite><testcase name="good"/><testcase name="bad"><failure/></testcase></testsuite>' >1.xml
        echo '<testsuite><testcase name="late"/>' >2.xml
        touch 3.xml
        echo begun; sleep 300
    """
    checks = [{"check": "junit", "glob": "files/*.xml"}]
    workload = {"command": command, "collect": ["*.xml"], "sample_seconds": None}
    outcome = grid.configure("a", workload=workload, checks=checks, timeouts={"silence": 2, "grace": 1}).run()
    assert outcome.exit_code == 1, str(outcome)
    (cell,) = [step for step in grid.workspace.summary()["steps"] if step["kind"] == "cell"]
    assert (cell["verdict"], cell["cause"], cell["checks"]) == ("failed", "timeout", [])
    assert (cell["cases"][0]["passed"], cell["cases"][0]["failed"]) == (2, 1)
    assert "these are the tests that finished before" in (grid.directory / "report.html").read_text()
    shown = grid.workspace.run("results", "show", "--tests", "--format=json").json
    assert [(row["test"], row["outcome"]) for row in shown] == [
        ("bad", "failed"),
        ("good", "passed"),
        ("late", "passed"),
    ]


def test_an_axis_with_a_path_sets_the_field_in_each_cell(grid: Grid) -> None:
    block = {"axes": {"model.size": [7, 70]}, "workload": {"command": ["sh", "-c", "echo @$0", "@model.text"]}}
    grid.configure("a", **block, blocks={"model": {"size": 1, "text": "size {@model.size}"}})
    outcome = grid.run()
    assert outcome.exit_code == 0, str(outcome)
    logs = sorted(file.read_text() for file in grid.directory.glob("*__test/*/attempt-1/stdout.log"))
    assert logs == ["@size 7\n", "@size 70\n"]
    assert '"size": 1' not in (grid.directory / "config.yaml").read_text()
    assert "size: 1\n" in (grid.directory / "config.yaml").read_text()


def test_only_selected_cells_run(grid: Grid) -> None:
    assert grid.run("--cells=x=[ac]").exit_code == 0
    assert grid.verdicts == {"a": "passed", "c": "passed"}
    grid.configure("abcde")
    outcome = grid.workspace.run("project", "run", "grid", "--shard=2/2", "--format=json")
    assert [step["name"] for step in outcome.json["steps"] if step["kind"] == "cell"] == ["x=b", "x=d"]


def most_at_once(lines: list[str]) -> int:
    """Return the largest number of cells that ran at once."""
    running, most = 0, 0
    for line in lines:
        running += 1 if line.startswith("begin") else -1
        most = max(most, running)
    return most


@pytest.mark.parametrize(
    ("flags", "block"), [(["--jobs=2"], {}), ([], {"jobs": 9, "pools": {"x": 2}, "resources": {"x": 1}})]
)
def test_jobs_and_pools_limit_how_many_cells_run_at_once(grid: Grid, flags: list[str], block: dict[str, Any]) -> None:
    names = [f"hold-{x}" for x in "abcd"]
    grid.configure("abcd", **block).mark(*names)
    with grid.start(*flags) as running:
        grid.wait_for("begin a", "begin b")
        grid.unmark(*names)
        assert running.wait().exit_code == 0
    assert most_at_once(grid.lines) == 2


def test_a_failure_is_retried_as_configured_and_every_attempt_is_kept(grid: Grid) -> None:
    command = "echo again >>{@root}/cells; [ $(wc -l <{@root}/cells) -ge 2 ]"
    retries = {"product": 1, "backoff": {"first": 0.01}}
    outcome = grid.configure("a", workload={"command": command}, retries=retries).run()
    assert outcome.exit_code == 0, str(outcome)
    assert grid.lines == ["again", "again"]
    assert "the cell passed at attempt 2" in outcome.stdout
    codes = [(grid.directory / f"001__test/000__x=a/attempt-{n}/exit_code").read_text() for n in (1, 2)]
    assert codes == ["1\n", "0\n"]


def test_cells_are_compared_with_each_other(grid: Grid) -> None:
    command = """echo '{"seconds": {@cell.seconds}}' >m.json"""
    metric = {"source": "json_file", "file": "files/m.json", "path": "seconds", "unit": "s"}
    check = {"check": "relation", "metric": "seconds", "to": {"seconds": 2}, "upper": 3}
    grid.configure(
        axes={"seconds": [5, 7, 2]}, workload={"command": command}, metrics={"seconds": metric}, checks=[check]
    )
    outcome = grid.run()
    assert outcome.exit_code == 1, str(outcome)
    assert grid.verdicts == {"seconds=5": "passed", "seconds=7": "failed", "seconds=2": "passed"}
    assert "seconds is 3.5 times that of `seconds=2` (7 s against 2 s); required: at most 3" in outcome.stdout


def test_the_shell_of_a_command_does_not_execute_the_value_of_an_axis(grid: Grid) -> None:
    hostile = ["$(touch pwned)", "`touch pwned`", "'; touch pwned; '", '"; touch pwned; "', "a b"]
    text = (
        "touch {@root}/pwned && rm {@root}/pwned; cd {@root}; printf '%s\\n' {@cell.x} \"{@cell.x}\" '{@cell.x}' >>out"
    )
    grid.configure(axes={"x": hostile}, jobs=1, workload={"command": text})
    outcome = grid.run()
    assert outcome.exit_code == 0, str(outcome)
    assert (grid.root / "out").read_text().splitlines() == [value for value in hostile for _ in range(3)]
    assert not list(grid.root.rglob("pwned"))


def test_a_reference_that_cannot_be_quoted_starts_nothing(grid: Grid) -> None:
    grid.configure(workload={"command": "cat <<EOF\n{@cell.x}\nEOF"})
    outcome = grid.run()
    assert outcome.exit_code == 2
    assert "config/grid.yaml:13: `matrix.workload.command`: the value of {@cell.x} cannot" in outcome.stderr
    assert grid.workspace.runs() == []


# Early ends of a run


def test_fail_fast_cancels_everything_at_the_first_failure(grid: Grid) -> None:
    grid.configure("abcd", jobs=2).mark("hold-b", "hold-a", "fail-a")
    with grid.start("--fail_fast") as running:
        grid.wait_for("begin a", "begin b")
        grid.unmark("hold-a")
        outcome = running.wait()
    assert outcome.exit_code == 1, str(outcome)
    assert grid.verdicts == {"a": "failed", "b": "cancelled"}
    assert "a cell did not pass: no more cells were started" in outcome.stdout
    assert "end b" not in grid.lines


def test_max_failures_starts_no_more_cells(grid: Grid) -> None:
    grid.configure("abcd", jobs=1).mark("fail-a", "fail-b")
    outcome = grid.run("--max_failures=2")
    assert outcome.exit_code == 1
    assert grid.verdicts == {"a": "failed", "b": "failed"}
    assert "2 cells did not pass: no more cells were started" in grid.workspace.summary()["message"]


def check_the_end(grid: Grid, code: int, cause: str) -> None:
    """Check that a run that was ended early has the right verdicts, its cleanup and no processes."""
    summary = grid.workspace.summary()
    assert (summary["exit_code"], summary["verdict"], summary["cause"]) == (code, "cancelled", cause)
    assert grid.verdicts == {"a": "passed", "b": "cancelled"}
    assert grid.phases == ["prepare", "cleanup"]
    assert grid.alive() == []


@pytest.mark.parametrize(("flags", "block"), [(["--deadline=3"], {}), ([], {"deadline": 3})], ids=["flag", "matrix"])
def test_a_deadline_ends_the_run_with_its_own_exit_code(grid: Grid, flags: list[str], block: dict[str, Any]) -> None:
    outcome = grid.configure("abc", jobs=1, **block).mark("hold-b").run(*flags)
    assert outcome.exit_code == 124, str(outcome)
    check_the_end(grid, 124, "timeout")
    assert "the deadline of the run has passed" in outcome.stdout
    assert "Traceback" not in outcome.stdout + outcome.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_running_cells(grid: Grid, number: signal.Signals) -> None:
    grid.configure("abc", jobs=1).mark("hold-b")
    with grid.start() as running:
        grid.wait_for("begin b")
        running.send(number)
        outcome = running.wait()
    assert outcome.exit_code == 128 + number, str(outcome)
    check_the_end(grid, 128 + number, "interrupted")
    assert "Traceback" not in outcome.stdout + outcome.stderr


def test_the_request_of_a_run_is_saved(grid: Grid) -> None:
    grid.run("--cells=x=a", "--jobs=1", "--fail_fast", "--max_failures=3", "--deadline=60")
    request = json.loads((grid.directory / "run.json").read_text())
    kept = {name: request[name] for name in ("cells", "shard", "jobs", "fail_fast", "max_failures", "deadline")}
    assert kept == {"cells": "x=a", "shard": None, "jobs": 1, "fail_fast": True, "max_failures": 3, "deadline": 60}


def test_the_table_names_the_cells_and_not_their_directories(grid: Grid) -> None:
    outcome = grid.configure(axes={"x": ["a/b", "c d"]}, workload={"command": "true"}).run()
    table = [line.split()[0] for line in outcome.stdout.partition("step ")[2].splitlines()[1:8] if line.split()]
    assert table[:5] == ["000__prepare", "001__test", "x=a_b", "x=c_d", "002__post_cleanup"]


def test_a_matrix_without_axes_runs_one_cell(grid: Grid) -> None:
    outcome = grid.configure(axes={}, workload={"command": "true"}).run("--cells=default")
    assert outcome.exit_code == 0, str(outcome)
    assert "of 1 cell: 1 passed" in outcome.stdout
    assert grid.verdicts == {"default": "passed"}
    assert (grid.directory / "001__test/000__default/attempt-1/exit_code").read_text() == "0\n"
    assert "default" in (grid.directory / "report.html").read_text()
    assert grid.resume().exit_code == 0
