"""Shards of a matrix are merged into one run, with one verdict."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tests.functional.grid import Grid
from tests.functional.grid import grid as grid  # noqa: PLC0414  # re-exports the fixture
from toolbox.records.runs import layout
from toolbox.testing import Outcome

CELLS = "abcdef"


@pytest.fixture
def six(grid: Grid) -> Grid:
    """Return a project with six cells, whose results are recorded in a store of the workspace."""
    return grid.configure(CELLS, blocks={"results": {"database": str(grid.root / "results.sqlite")}})


def run_shard(grid: Grid, number: int, *flags: str, shards: int = 3) -> tuple[Path, Outcome]:
    """Run a shard, and return its directory."""
    before = set(layout.runs(grid.workspace.artifacts))
    outcome = grid.run(f"--shard={number}/{shards}", *flags)
    (directory,) = set(layout.runs(grid.workspace.artifacts)) - before
    return directory, outcome


def kill_shard(grid: Grid, number: int) -> Path:
    """Kill a shard while its first cell runs, and return its directory."""
    first = CELLS[number - 1]
    grid.mark(f"hold-{first}")
    before = set(layout.runs(grid.workspace.artifacts))
    with grid.start(f"--shard={number}/3", "--jobs=1") as running:
        grid.wait_for(f"begin {first}")
        running.send(signal.SIGKILL)
        running.wait()
    grid.unmark(f"hold-{first}")
    (directory,) = set(layout.runs(grid.workspace.artifacts)) - before
    return directory


def merge(grid: Grid, *directories: Path, flags: tuple[str, ...] = ()) -> Outcome:
    arguments = [*map(str, directories), f"--artifact_dir={grid.root / 'merged'}", "--format=json", *flags]
    return grid.workspace.run("results", "merge", *arguments)


def cells(summary: dict[str, Any]) -> dict[str, str]:
    """Return the verdicts of the cells, by the value of `x`."""
    steps = [step for step in summary["steps"] if step["kind"] == "cell"]
    verdicts = {step["name"].removeprefix("x="): step["verdict"] for step in steps}
    assert len(verdicts) == len(steps), "a cell is there twice"
    return verdicts


def test_three_shards_become_one_run_that_passes(six: Grid) -> None:
    shards = [run_shard(six, number)[0] for number in (1, 2, 3)]
    outcome = merge(six, *shards)
    assert outcome.exit_code == 0, str(outcome)
    summary = outcome.json
    assert cells(summary) == dict.fromkeys(CELLS, "passed")
    assert (summary["verdict"], summary["planned_cells"], summary["damage"]) == ("passed", 6, [])
    merged = Path(summary["directory"])
    assert [step.name for step in layout.steps(merged)] == [
        f"{number:03d}__{name}" for number, name in enumerate(["prepare", "test", "post_cleanup"] * 3)
    ]
    for step in summary["steps"]:
        assert (merged / step["step"]).is_dir(), step["step"]
    assert not list(merged.parent.glob(".*"))


def test_every_command_reads_a_merged_run(six: Grid) -> None:
    six.mark("fail-e")
    merged = Path(merge(six, *(run_shard(six, number)[0] for number in (1, 2, 3))).json["directory"])
    status = six.workspace.run("project", "status", str(merged))
    assert "of 6 cells: 5 passed, 1 failed" in status.stdout
    assert six.workspace.run("project", "logs", str(merged), "--cell=x=e").exit_code == 0
    assert "<code>x=e</code>" in six.workspace.run("results", "report", str(merged), "--kind=comment").stdout
    assert "x=e" in (merged / "report.html").read_text()
    suites = ET.parse(merged / "junit.xml").getroot()
    assert {suite.get("name"): suite.get("tests") for suite in suites}["grid.test"] == "6"
    resumed = six.workspace.run("project", "resume", str(merged))
    assert resumed.exit_code == 2
    assert "was merged from shards" in resumed.stderr


def test_a_killed_shard_is_an_error_that_names_it_until_it_is_run_again(six: Grid) -> None:
    first, third = (run_shard(six, number)[0] for number in (1, 3))
    killed = kill_shard(six, 2)
    outcome = merge(six, first, killed, third)
    assert outcome.exit_code == 3, str(outcome)
    summary = outcome.json
    assert (summary["verdict"], summary["cause"], summary["planned_cells"]) == ("error", "infrastructure", 6)
    assert "shard 2/3 has not ended" in summary["message"]
    assert "2 cells not run: x=b, x=e" in summary["message"]
    assert cells(summary) == {**dict.fromkeys("acdf", "passed"), "b": "cancelled"}
    assert summary["open_attempts"] == []
    assert "1 not started" in outcome.stderr

    again, _ = run_shard(six, 2)
    outcome = merge(six, first, killed, third, again)
    assert outcome.exit_code == 0, str(outcome)
    assert cells(outcome.json) == dict.fromkeys(CELLS, "passed")


def test_a_shard_that_is_missing_is_an_error_that_names_its_cells(six: Grid) -> None:
    outcome = merge(six, *(run_shard(six, number)[0] for number in (1, 2)))
    assert outcome.exit_code == 3
    assert "there is no run of shard 3/3" in outcome.json["message"]
    assert "2 cells not run: x=c, x=f" in outcome.json["message"]
    assert outcome.json["planned_cells"] == 6
    report = ET.parse(Path(outcome.json["directory"]) / "junit.xml").getroot()
    assert report.get("errors") == "1"


def test_a_failure_in_one_shard_fails_the_run(six: Grid) -> None:
    six.mark("fail-b", "fail-c")
    outcome = merge(six, *(run_shard(six, number)[0] for number in (1, 2, 3)))
    assert outcome.exit_code == 1
    assert (outcome.json["verdict"], outcome.json["cause"]) == ("failed", "product")
    assert "shard 2/3: of 2 cells: 1 failed, 1 passed" in outcome.json["message"]
    assert "shard 3/3: of 2 cells:" in outcome.json["message"]


def test_shards_without_cells_are_fine(six: Grid) -> None:
    runs = [run_shard(six, number, "--cells=x=[ab]") for number in (1, 2, 3)]
    assert [outcome.exit_code for _, outcome in runs] == [0, 0, 0]
    outcome = merge(six, *(directory for directory, _ in runs))
    assert outcome.exit_code == 0, str(outcome)
    assert cells(outcome.json) == {"a": "passed", "b": "passed"}


def test_nothing_ran_only_if_nothing_ran_in_all_shards(six: Grid) -> None:
    runs = [run_shard(six, number, "--phases=prepare") for number in (1, 2, 3)]
    six.configure(CELLS, skip=[{"when": {"x": value}, "reason": "broken"} for value in CELLS])
    skipped = [run_shard(six, number) for number in (1, 2, 3)]
    assert {outcome.exit_code for _, outcome in (*runs, *skipped)} == {0}
    outcome = merge(six, *(directory for directory, _ in skipped))
    assert (outcome.exit_code, outcome.json["verdict"]) == (4, "skipped")


def test_jobs_that_failed_without_a_failed_run_are_an_error(six: Grid) -> None:
    shards = [run_shard(six, number)[0] for number in (1, 2, 3)]
    outcome = merge(six, *shards, flags=("--result=failure",))
    assert outcome.exit_code == 3
    assert "the jobs of the shards ended with `failure`" in outcome.json["message"]


def test_runs_that_do_not_belong_together_are_refused(six: Grid) -> None:
    one, _ = run_shard(six, 1)
    other, _ = run_shard(six, 2, shards=2)
    six.run("--cells=x=a", f"--artifact_dir={six.root / 'plain'}")
    (plain,) = layout.runs(six.root / "plain")
    six.configure("abcdeg")
    changed, _ = run_shard(six, 2)
    for directories, message in (
        ((one, other), "the number of shards: 3 and 2"),
        ((one, changed), "differ in their plans"),
        ((one, one), "is given twice"),
        ((one, plain), "is not the run of a shard"),
        ((one, six.root / "projects"), "is not the directory of a run"),
        ((), "--run_dirs is missing"),
    ):
        outcome = merge(six, *directories)
        assert outcome.exit_code == 2, str(outcome)
        assert message in outcome.stderr
        assert len(outcome.stderr.splitlines()) <= 5
    assert not (six.root / "merged").exists()


def test_a_run_in_progress_is_not_merged(six: Grid) -> None:
    six.mark("hold-b")
    with six.start("--shard=2/3") as running:
        six.wait_for("begin b")
        outcome = merge(six, six.directory)
        assert outcome.exit_code == 2
        assert "is still being executed" in outcome.stderr
        six.unmark("hold-b")
        running.wait()


def test_a_merge_that_was_killed_is_completed_by_the_next_one(six: Grid) -> None:
    shards = [run_shard(six, number)[0] for number in (1, 2, 3)]
    merged = six.root / "merged" / "grid"
    leftover = merged / ".merging" / f"{shards[0].name}-merged"
    leftover.mkdir(parents=True)
    (leftover / "plan.json").write_text("{")
    assert layout.runs(six.root / "merged") == []
    assert merge(six, *shards).exit_code == 0
    (whole,) = layout.runs(six.root / "merged")
    assert not list(merged.glob(".*"))
    (whole / "journal.jsonl").unlink()  # as if the replaced directory were damaged
    assert merge(six, *shards).exit_code == 0
    assert layout.runs(six.root / "merged") == [whole]


def test_each_cell_counts_once_in_the_store(six: Grid) -> None:
    shards = [run_shard(six, number)[0] for number in (1, 2, 3)]
    database = ("--project=grid", "--format=json")
    assert len(six.workspace.run("results", "list", *database).json) == 3
    merged = Path(merge(six, *shards).json["directory"])
    for _ in range(2):
        outcome = six.workspace.run("results", "import", str(merged), *map(str, shards))
        assert outcome.exit_code == 0, str(outcome)
        assert outcome.stdout.count("has the merged run") == 3
        (run,) = six.workspace.run("results", "list", *database).json
        assert run["run"] == merged.name
    shown = six.workspace.run("results", "show", "latest", *database).json
    assert sorted(row["cell"] for row in shown) == [f"x={letter}" for letter in CELLS]


def test_a_later_merge_replaces_an_earlier_one_in_the_store(six: Grid) -> None:
    first, third = (run_shard(six, number)[0] for number in (1, 3))
    killed = kill_shard(six, 2)
    early = Path(merge(six, first, killed, third).json["directory"])
    kept = shutil.copytree(early, six.root / "copies" / "grid" / early.name)
    assert six.workspace.run("results", "import", str(early)).exit_code == 0
    again, _ = run_shard(six, 2)
    late = Path(merge(six, first, killed, third, again).json["directory"])
    for directory in (late, kept):
        six.workspace.run("results", "import", str(directory))
    (run,) = six.workspace.run("results", "list", "--project=grid", "--format=json").json
    assert (run["run"], run["verdict"]) == (late.name, "passed")


def test_files_of_hostile_shards_are_left_out(six: Grid) -> None:
    shards = [run_shard(six, number)[0] for number in (1, 2, 3)]
    secret = six.root / "outside"
    secret.write_text("secret")
    inside = shards[1] / "001__test"
    (inside / "link").symlink_to(secret)
    (inside / "folder").symlink_to(six.root)
    (inside / "a\nb").write_text("x")
    (shards[1] / "002__evil").symlink_to(six.root)
    (shards[1] / "report.html").write_text("<script>alert(1)</script>")
    outcome = merge(six, *shards)
    assert outcome.exit_code == 0, str(outcome)
    assert "3 files were left out" in outcome.stderr
    merged = Path(outcome.json["directory"])
    names = {path.name for path in merged.rglob("*")}
    assert not names & {"link", "folder", "a\nb", "outside"}
    assert "alert(1)" not in (merged / "report.html").read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step": "somewhere/000__x"}, "no plain path"),
        ({"key": "/test/000000000000"}, "not in plan.json"),
    ],
)
def test_a_hostile_journal_is_refused(six: Grid, change: dict[str, str], message: str) -> None:
    outcome = merge(six, shard_with_cell(six, change))
    assert outcome.exit_code == 2, str(outcome)
    assert message in outcome.stderr
    assert not (six.root / "merged").exists()


@pytest.mark.parametrize(
    "step",
    ["../../etc", "001__test/../x", "/001__test", "001__test/000__\u0007", "001__test/\ud800", "000__" + "x" * 300],
    ids=ascii,
)
def test_a_step_without_a_plain_path_is_damage(six: Grid, step: str) -> None:
    outcome = merge(six, shard_with_cell(six, {"step": step}))
    assert outcome.exit_code == 3, str(outcome)
    assert "is damaged: journal.jsonl:" in outcome.stdout


def shard_with_cell(grid: Grid, change: dict[str, str]) -> Path:
    """Run a shard, add a changed start of a cell to its journal, and return its directory."""
    shard, _ = run_shard(grid, 1)
    journal = shard / "journal.jsonl"
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    begun = next(line for line in lines if line["event"] == "StepStarted" and line["kind"] == "cell")
    lines.insert(-1, {**begun, **change})
    journal.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return shard


def test_cells_that_are_compared_are_in_one_shard(grid: Grid) -> None:
    metric = {"source": "log", "pattern": "seconds=(.*)"}
    check = {"check": "relation", "metric": "seconds", "to": {"batch": 1}, "upper": 3}
    grid.configure(
        axes={"x": ["a", "b", "c"], "batch": [1, 2]},
        workload={"command": "echo seconds={@cell.batch}"},
        metrics={"seconds": metric},
        checks=[check],
    )
    outcome = merge(grid, *(run_shard(grid, number, shards=4)[0] for number in (1, 2, 3, 4)))
    assert outcome.exit_code == 0, str(outcome)
    compared = [check for step in outcome.json["steps"] for check in step["checks"] if check["passed"] is not None]
    messages = [check["message"] for check in compared if "2 times that of" in check["message"]]
    assert len(messages) == 3, compared
