"""Every command that reads a run says what is wrong with a damaged or hostile directory, and never fails itself.

`TOPGALLANT_TEST_RUN_SEEDS=5000` tries more changes than a test run does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.functional.grid import Grid
from tests.functional.grid import grid as grid  # noqa: PLC0414  # re-exports the fixture
from toolbox.testing import Outcome

SEEDS = int(os.environ.get("TOPGALLANT_TEST_RUN_SEEDS", "24"))
WORKLOAD = """
    echo loss 1.5; echo warning >&2
    printf '<testsuite><testcase name="a"/><testcase name="b"><failure message="no"/></testcase></testsuite>' >j.xml
    [ {@cell.x} != b ]
"""
RESOURCE = {
    "time": "2026-11-21T01:02:03+00:00", "event": "planned", "kind": "tpu_node", "name": "n", "deletion": {"zone": "z"},
    "ttl": 60.0, "command": "true", "keep": False, "owner": {"run": "", "project": "grid", "user": "ada", "host": "h"},
}  # fmt: skip


@pytest.fixture
def ran(grid: Grid) -> Grid:
    """Return a project with the finished run of a shard, with metrics, checks, test cases and a remote resource."""
    grid.configure(
        "ab",
        workload={"command": WORKLOAD, "sample_seconds": None},
        metrics={"loss": {"source": "log", "pattern": "loss ([0-9.]+)"}},
        checks=[{"check": "junit", "glob": "files/*.xml"}, {"check": "log_contains", "text": "loss"}],
        blocks={"results": {"database": str(grid.root / "results.sqlite")}},
    )
    assert grid.run("--shard=1/1").exit_code == 1
    (grid.directory / "ledger.jsonl").write_text(json.dumps(RESOURCE) + "\n")
    return grid


@pytest.mark.parametrize("part", range(2))
def test_no_changed_run_directory_causes_an_internal_error(ran: Grid, tmp_path: Path, part: int) -> None:
    seeds = [str(part * SEEDS // 2), str((part + 1) * SEEDS // 2)]
    home = {"HOME": str(tmp_path / "home"), "XDG_STATE_HOME": str(tmp_path / "state")}
    done = subprocess.run(
        [sys.executable, "-m", "tests.hostile_run_directories", str(ran.directory), str(tmp_path / "fuzz"), *seeds],
        cwd=ran.root,
        env={**os.environ, **home, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=60 + 5 * SEEDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["faults"] == [], "\n\n".join(found["faults"])
    assert found["codes"].keys() >= {"0", "2"}, "some runs can be read, and some cannot"


def edited(grid: Grid, file: str, **changes: object) -> None:
    path = grid.directory / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def renamed(grid: Grid, step: str) -> None:
    """Give the first cell another directory in the journal."""
    journal = grid.directory / "journal.jsonl"
    journal.write_text(journal.read_text().replace('"001__test/000__x=a"', json.dumps(step)))


def error_of(outcome: Outcome, code: int) -> str:
    assert (outcome.exit_code, "internal" in outcome.stderr) == (code, False), str(outcome)
    return outcome.stderr


@pytest.mark.parametrize("step", ["001__test/" + 300 * "x", "001__test/a\0b", "001__test/\ud800"], ids=ascii)
@pytest.mark.parametrize("command", [["project", "logs"], ["results", "report", "--kind=github"]], ids=" ".join)
def test_a_step_with_an_impossible_name_is_damage(ran: Grid, step: str, command: list[str]) -> None:
    renamed(ran, step)
    error_of(
        ran.workspace.run(*command, f"--run_dir={ran.directory}" if "report" in command else str(ran.directory)), 0
    )
    status = ran.workspace.run("project", "status", str(ran.directory))
    assert "the journal of this run is damaged" in status.stdout


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"presets": 0},
            "run.json is damaged, and the run cannot be resumed without it: presets: must be a valid list",
        ),
        ({"presets": [1]}, "presets.0: must be a valid string"),
        ({"overrides_text": "[]\n- x"}, "run.json is damaged"),
        ({"overrides_text": "- x"}, "overrides_text: must be a mapping of paths"),
        ({"phases": {"test": 1}}, "phases: must be a valid list"),
        ({"resolved": []}, "resolved: must be a mapping"),
        ({"shard": [2, {}]}, "shard.1: must be a valid integer"),
        ({"deadline": -1}, "deadline: must be greater than 0"),
        ({"project": "a\0b"}, "project: must match pattern"),
    ],
    ids=ascii,
)
def test_a_wrong_field_of_the_request_is_named(ran: Grid, changes: dict[str, object], message: str) -> None:
    edited(ran, "run.json", **changes)
    assert message in error_of(ran.workspace.run("project", "resume", str(ran.directory)), 2)


@pytest.mark.parametrize("name", ["run.json", "plan.json", "journal.jsonl", "config.yaml", "summary.json"])
def test_a_record_that_is_a_link_or_a_pipe_is_not_read(ran: Grid, name: str) -> None:
    directory = ran.directory
    file = directory / name
    replacements: list[Callable[[], None]] = [
        partial(file.symlink_to, "/dev/zero"),
        partial(file.symlink_to, file),
        partial(os.mkfifo, file),
    ]
    for replace in replacements:
        file.unlink()
        replace()
        assert ran.workspace.run("project", "status", str(directory), timeout=60).exit_code in {0, 2}
        assert "internal" not in ran.workspace.run("project", "resume", str(directory), timeout=60).stderr
