"""`project logs`, for a run that has ended and for a run that is in progress."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolbox.ground.system import processes
from toolbox.testing import Workspace

COMMAND = """
    echo begin {@cell.x}; echo wrong {@cell.x} >&2
    while [ -e {@root}/hold-{@cell.x} ]; do sleep 0.02; done
    echo end {@cell.x}; printf 'no newline'
    [ ! -e {@root}/fail-{@cell.x} ]
"""


@pytest.fixture
def cells(workspace: Workspace) -> Iterator[Workspace]:
    """Yield a project whose cells print text, and wait while a file `hold-NAME` exists."""
    matrix = {"axes": {"x": ["a", "b"]}, "jobs": 2, "workload": {"command": COMMAND, "sample_seconds": None}}
    yield workspace.write(
        {
            "projects/grid/orchestration.py": "from toolbox.orchestration import matrix\ndef test(): matrix.run()\n",
            "config/grid.yaml": json.dumps({"root": str(workspace.directory), "matrix": matrix}),
            "projects/plain/orchestration.py": "def test(): ...\n",
            "config/plain.yaml": "a: 1\n",
        }
    )
    processes.end_marked(workspace.directory)  # a workload outlives a killed run


def test_logs_prints_all_cells_of_the_newest_run(cells: Workspace) -> None:
    assert cells.run("project", "run", "grid").exit_code == 0
    outcome = cells.run("project", "logs")
    assert outcome.exit_code == 0
    lines = [f"x={name} | {text}" for name in "ab" for text in (f"begin {name}", f"end {name}", "no newline")]
    assert sorted(outcome.stdout.splitlines()) == sorted(lines)
    assert sorted(outcome.stderr.splitlines()) == ["x=a | wrong a", "x=b | wrong b"]


@pytest.mark.parametrize("cell", ["x=a", "*=a", "x=[!b]"])
def test_the_log_of_one_cell_is_unchanged(cells: Workspace, cell: str) -> None:
    assert cells.run("project", "run", "grid").exit_code == 0
    run = cells.run_directory()
    for named in (str(run), run.name, run.name[:-2]):
        outcome = cells.run("project", "logs", named, cell)
        assert (outcome.stdout, outcome.stderr) == ("begin a\nend a\nno newline", "wrong a\n"), str(outcome)


def test_the_latest_attempt_is_shown(cells: Workspace) -> None:
    (cells.directory / "fail-a").touch()
    overrides = (
        "--overrides={matrix.workload.command: '[ -e {@root}/again ] && echo second; touch {@root}/again; false'}"
    )
    retries = {"retries": {"product": 1, "backoff": {"first": 0.01}}, "axes": {"x": ["a"]}}
    config = json.loads((cells.directory / "config/grid.yaml").read_text())
    cells.write({"config/grid.yaml": json.dumps({**config, "matrix": {**config["matrix"], **retries}})})
    assert cells.run("project", "run", "grid", overrides).exit_code == 1
    assert cells.run("project", "logs").stdout == "second\n"


def test_follow_continues_until_the_run_ends(cells: Workspace) -> None:
    (cells.directory / "hold-b").touch()
    with cells.start("project", "run", "grid") as running:
        running.wait_for("x=a passed")
        with cells.start("project", "logs", "--follow") as follower:
            follower.wait_for("x=b | begin b")
            (cells.directory / "hold-b").unlink()
            outcome = follower.wait()
        assert running.wait().exit_code == 0
    assert outcome.exit_code == 0
    assert {"x=a | end a", "x=b | end b", "x=b | no newline"} <= set(outcome.stdout.splitlines())
    assert outcome.stdout.count("begin b") == 1


def test_follow_of_a_cell_ends_with_the_cell(cells: Workspace) -> None:
    for name in "ab":
        (cells.directory / f"hold-{name}").touch()
    with cells.start("project", "run", "grid") as running:
        running.wait_for("> x=b")
        with cells.start("project", "logs", "--cell=x=a", "--follow") as follower:
            follower.wait_for("begin a")
            (cells.directory / "hold-a").unlink()
            outcome = follower.wait()
        assert outcome.stdout == "begin a\nend a\nno newline"
        assert "passed" not in cells.run("project", "logs", "--cell=x=b").stdout
        (cells.directory / "hold-b").unlink()
        assert running.wait().exit_code == 0


def test_follow_reports_a_dead_run(cells: Workspace) -> None:
    (cells.directory / "hold-b").touch()
    with cells.start("project", "run", "grid") as running:
        running.wait_for("x=a passed")
        with cells.start("project", "logs", "--follow") as follower:
            follower.wait_for("begin b")
            running.send(signal.SIGKILL)
            outcome = follower.wait()
    assert outcome.exit_code == 0
    assert "the process of the run is gone" in outcome.stderr


def test_a_run_is_found_by_the_beginning_of_its_name(cells: Workspace) -> None:
    assert cells.run("project", "run", "grid").exit_code == 0
    (run,) = (cells.directory / "artifacts/grid").iterdir()
    assert str(run) in cells.run("project", "status", run.name[:-2]).stdout
    assert "there is nothing to do" in cells.run("project", "resume", run.name[:-2]).stdout


@pytest.mark.parametrize("command", ["status", "resume", "logs"])
def test_a_missing_run_is_named_with_the_searched_directory(cells: Workspace, command: str) -> None:
    outcome = cells.run("project", command, "nowhere")
    assert outcome.exit_code == 2
    assert (
        f"`nowhere` is not a directory, and {cells.directory / 'artifacts'} has no run of that name" in outcome.stderr
    )


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["nowhere"], "`nowhere` is not a directory"),
        (["2", "x=a"], "`2` matches 2 runs: 2"),
        ([".", "x=a"], "is not the directory of a run"),
        (["--cell=x=c"], "no cell `x=c` of the run"),
        (["--cell=x=c", "--follow"], "did you mean x="),
    ],
)
def test_missing_runs_and_cells_are_wrong_usage(cells: Workspace, argv: list[str], message: str) -> None:
    for _ in range(2):
        assert cells.run("project", "run", "grid").exit_code == 0
    outcome = cells.run("project", "logs", *argv)
    assert (outcome.exit_code, outcome.stdout) == (2, ""), str(outcome)
    assert message in outcome.stderr


def test_a_run_without_cells_names_the_directory_of_its_logs(cells: Workspace) -> None:
    assert cells.run("project", "run", "plain").exit_code == 0
    outcome = cells.run("project", "logs")
    assert outcome.exit_code == 2
    assert f"the logs of other steps are in {Path(cells.run_directory())}" in outcome.stderr
