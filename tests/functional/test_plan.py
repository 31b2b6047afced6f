"""`project plan` shows the cells that a run would execute, and runs nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.functional.grid import Grid
from tests.functional.grid import grid as grid  # noqa: PLC0414  # re-exports the fixture
from toolbox.testing import Outcome, Workspace


def plan(grid: Grid, *flags: str) -> Outcome:
    return grid.workspace.run("project", "plan", "grid", *flags)


def planned(grid: Grid, *flags: str) -> list[dict[str, Any]]:
    """Return the cells of `project plan --format=json`."""
    cells: list[dict[str, Any]] = plan(grid, *flags, "--format=json").json["cells"]
    return cells


def test_plan_prints_a_table_and_runs_nothing(grid: Grid) -> None:
    grid.configure("ab", skip=[{"when": {"x": "b"}, "reason": "too slow"}])
    outcome = plan(grid)
    assert (outcome.exit_code, outcome.stderr) == (0, ""), str(outcome)
    heading, first, second, *_, closing = outcome.stdout.splitlines()
    assert heading.split() == ["id", "x", "target", "takes", "time", "limits", "time", "cost", "expected"]
    assert first.split()[1:-1] == ["a", "local", "-", "3600", "s", "at", "most", "1", "h", "0", "min", "unknown"]
    assert "note: the cost on the target `local` is unknown: the target has no `cost_per_hour`" in outcome.stdout
    assert second.rstrip().endswith("skipped")
    assert "left out: x=b: too slow" in outcome.stdout.splitlines()
    assert closing == "2 cells: 1 to run, 1 skipped"
    assert (grid.lines, grid.workspace.artifacts.exists()) == ([], False)


def test_plan_as_json_equals_plan_json(grid: Grid) -> None:
    found = plan(grid, "--format=json").json
    assert [cell["name"] for cell in found["cells"]] == ["x=a", "x=b", "x=c"]
    assert found["total"] == 3
    grid.run()
    frozen = (grid.directory / "plan.json").read_text()
    found = plan(grid, "--format=json").json
    assert {name: value for name, value in found.items() if name != "expected"} == json.loads(frozen)


def test_plan_as_json_does_not_control_the_terminal(grid: Grid) -> None:
    grid.configure("a\x9b\u202e")
    assert not {"\x9b", "\u202e"} & set(plan(grid, "--format=json").stdout)


def test_plan_applies_presets_and_overrides(grid: Grid) -> None:
    grid.configure("ab", timeouts={"run": 9}, blocks={"ci_presets": {"short": {"matrix.axes.x": ["a"]}}})
    assert len(planned(grid, "--presets=short")) == 1
    assert [cell["timeouts"]["run"] for cell in planned(grid, "--overrides={matrix.timeouts.run: 5}")] == [5, 5]


def test_shards_are_disjoint_and_together_all_cells(grid: Grid) -> None:
    grid.configure("abcdefgh")
    shards = [[cell["id"] for cell in planned(grid, f"--shard={part}/3")] for part in (1, 2, 3)]
    together = [identity for shard in shards for identity in shard]
    assert sorted(together) == sorted(cell["id"] for cell in planned(grid))
    assert len(together) == len(set(together)) == 8


def test_cells_are_chosen_by_a_pattern(grid: Grid) -> None:
    assert [cell["name"] for cell in planned(grid, "--cells=x=[bc]")] == ["x=b", "x=c"]
    assert plan(grid, "--cells=x=a").stdout.splitlines()[-1] == "1 cell, of 3 in the matrix: 1 to run"


@pytest.mark.parametrize("command", ["plan", "run"])
@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--cells=x=aa", "error: --cells=x=aa: no cell has such a name; did you mean x=a"),
        ("--shard=4/3", "error: --shard=4/3 is not a shard. Examples: 1/3, 2/3 and 3/3"),
        ("--shard=0/3", "error: --shard=0/3"),
        ("--shard=1", "error: --shard=1"),
    ],
)
def test_a_wrong_selection_of_cells_starts_nothing(grid: Grid, command: str, flag: str, message: str) -> None:
    outcome = grid.workspace.run("project", command, "grid", flag)
    assert (outcome.exit_code, outcome.stdout) == (2, ""), str(outcome)
    assert outcome.stderr.startswith(message)
    assert grid.workspace.runs() == []


@pytest.mark.parametrize("command", ["plan", "run"])
@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"axes": {"x": []}}, "`matrix.axes.x` is []"),
        ({"workload": {"command": ["{@cell.y}"]}}, "`matrix.workload.command[0]`: dangling reference '{@cell.y}'"),
        ({"target": "lokal"}, "`matrix.target`: no target `lokal`: did you mean local?"),
        ({"checks": [{"check": "exit_statsu"}]}, "unknown check `exit_statsu`: did you mean exit_status?"),
        ({"pools": {"gpu": 1}, "resources": {"gpu": 2}}, "the cell needs 2 gpu, but the pool has only 1"),
    ],
)
def test_a_faulty_matrix_is_reported_with_its_line(
    grid: Grid, command: str, block: dict[str, Any], message: str
) -> None:
    grid.configure("ab", **block)
    outcome = grid.workspace.run("project", command, "grid")
    assert (outcome.exit_code, outcome.stdout) == (2, ""), str(outcome)
    assert "config/grid.yaml:" in outcome.stderr
    assert message in outcome.stderr
    assert len(outcome.stderr.splitlines()) <= 5
    assert grid.workspace.runs() == []


@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_plan_with_more_cells_than_the_limit_is_refused(grid: Grid, command: str) -> None:
    grid.configure("abcd", max_cells=2, skip=[{"when": {"x": "d"}, "reason": "too slow"}])
    outcome = grid.workspace.run("project", command, "grid")
    assert outcome.exit_code == 2, str(outcome)
    first, *hints = outcome.stderr.splitlines()
    assert first.startswith("error: ")
    line = first.removeprefix("error: ").split(": ")[0].rpartition(":")[2]
    assert "max_cells" in (grid.root / "config/grid.yaml").read_text().splitlines()[int(line) - 1]
    assert first.endswith(": a run would execute 3 cells, and `matrix.max_cells` allows only 2")
    assert hints == [
        "  to run them all, raise the limit: --overrides='{matrix.max_cells: 3}'",
        "  to run a part, select cells with --cells or --shard; `project plan` lists the cells",
    ]
    assert ("4 cells: 3 to run, 1 skipped" in outcome.stdout) == (command == "plan")
    assert (grid.workspace.runs(), grid.phases) == ([], [])


@pytest.mark.parametrize("flag", ["--cells=x=[ab]", "--shard=1/2", "--overrides={matrix.max_cells: 3}"])
def test_a_plan_within_the_limit_runs(grid: Grid, flag: str) -> None:
    grid.configure("abc", max_cells=2)
    assert plan(grid, flag).exit_code == 0
    outcome = grid.run(flag)
    assert outcome.exit_code == 0, str(outcome)


def test_reused_results_do_not_count_for_the_limit(grid: Grid) -> None:
    blocks = {"results": {"database": "team.sqlite", "revision": "0123456789" * 4}}
    grid.configure("ab", reuse_results=1, blocks=blocks)
    assert grid.run().exit_code == 0
    grid.configure("abc", reuse_results=1, blocks=blocks, max_cells=1)
    outcome = grid.run()
    assert (outcome.exit_code, grid.lines.count("begin a")) == (0, 1), str(outcome)


def test_without_the_phase_test_the_limit_does_not_matter(grid: Grid) -> None:
    outcome = grid.configure("abc", max_cells=2).run("--phases=prepare")
    assert (outcome.exit_code, grid.phases) == (0, ["prepare"]), str(outcome)


def test_without_a_matrix_there_is_nothing_to_plan(small: Workspace) -> None:
    outcome = small.run("project", "plan", "small")
    assert outcome.exit_code == 2
    assert outcome.stderr == "error: config/small.yaml has no matrix: there is nothing to plan\n"
