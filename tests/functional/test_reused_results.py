"""With `matrix.reuse_results`, a cell takes the result of an equal cell of an earlier run, and the reports say so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.functional.grid import ORCHESTRATION, Grid
from toolbox.testing import Workspace

COMMIT = "1" * 40
WORKLOAD = "echo {@cell.x} >>{@root}/executed; [ ! -e {@root}/fail ]"


class Reusing(Grid):
    """The project `grid`, with the reuse of results."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace, ORCHESTRATION)
        self.set()

    def set(self, *, revision: str | None = COMMIT, days: float | None = 1, **matrix: Any) -> None:
        """Write the configuration."""
        blocks = {"results": {"revision": revision}}
        self.configure("a", blocks=blocks, reuse_results=days, **{"workload": {"command": WORKLOAD}, **matrix})

    @property
    def executions(self) -> int:
        """How often the cell was executed."""
        return len(self._lines("executed"))

    @property
    def newest(self) -> Path:
        """The directory of the newest run."""
        return max((self.root / "artifacts/grid").iterdir())


@pytest.fixture
def grid(workspace: Workspace) -> Reusing:
    return Reusing(workspace)


def cell_of(directory: Path) -> dict[str, Any]:
    summary = json.loads((directory / "summary.json").read_text())
    (cell,) = [step for step in summary["steps"] if step["kind"] == "cell"]
    assert isinstance(cell, dict)
    return cell


def test_a_result_is_reused_and_all_records_say_from_which_run(grid: Reusing) -> None:
    assert grid.run().exit_code == 0
    first = grid.newest
    outcome = grid.run()
    assert (outcome.exit_code, grid.executions) == (0, 1)
    assert f"from run {first.name}" in outcome.stdout
    cell = cell_of(grid.newest)
    assert (cell["verdict"], cell["reused_from"], cell["attempts"]) == ("passed", first.name, [])
    assert f"from run {first.name}" in (grid.newest / "report.html").read_text()
    assert f"reused_from={first.name}" in (grid.newest / "junit.xml").read_text()
    shown = json.loads(grid.workspace.run("results", "show", "--format=json").stdout)
    assert shown[0]["reused_from"] == first.name


def test_the_plan_names_the_run_whose_result_is_reused(grid: Reusing) -> None:
    grid.run()
    outcome = grid.workspace.run("project", "plan", "grid")
    assert f"reused: passed in run {grid.newest.name}" in " ".join(outcome.stdout.split())
    assert "1 cell: 1 reused" in outcome.stdout


def test_a_reused_result_is_not_reused_again_but_the_executed_one_is(grid: Reusing) -> None:
    grid.run()
    first = grid.newest
    grid.run()
    grid.run()
    assert cell_of(grid.newest)["reused_from"] == first.name


def test_a_resumed_run_reuses_the_results_in_its_plan(grid: Reusing) -> None:
    grid.run()
    grid.run("--phases=prepare")
    outcome = grid.workspace.run("project", "resume", str(grid.newest))
    assert outcome.exit_code == 0, str(outcome)


@pytest.mark.parametrize(
    "change",
    [
        {"revision": "2" * 40},
        {"workload": {"command": f"{WORKLOAD} && true"}},
        {"workload": {"command": WORKLOAD, "env": {"X": "1"}}},
        {"workload": {"command": WORKLOAD, "cwd": "/"}},
        {"checks": [{"check": "log_lacks", "text": "boom"}]},
        {"days": 1e-9},
        {"days": None},
        {"revision": "main"},
        {"revision": None},
    ],
    ids=lambda change: str(next(iter(change.items())))[:30],
)
def test_a_cell_is_executed_if_anything_that_determines_its_result_has_changed(
    grid: Reusing, change: dict[str, Any]
) -> None:
    if change == {"revision": "2" * 40}:  # the commit is part of the workload, as in the settings of a suite
        change = {**change, "workload": {"command": f"{WORKLOAD} # 2"}}
    grid.run()
    grid.set(**change)
    assert grid.run().exit_code == 0
    assert grid.executions == 2


def test_the_result_of_another_commit_is_not_reused(grid: Reusing) -> None:
    grid.run()
    grid.set(revision="2" * 40)
    assert grid.run().exit_code == 0
    assert grid.executions == 2


def test_an_imported_result_is_not_reused(grid: Reusing) -> None:
    grid.run()
    assert grid.workspace.run("results", "import", str(grid.newest)).exit_code == 0
    assert grid.run().exit_code == 0
    assert grid.executions == 2


def test_a_failed_result_is_not_reused(grid: Reusing) -> None:
    grid.mark("fail")
    assert grid.run().exit_code == 1
    grid.unmark("fail")
    assert grid.run().exit_code == 0
    assert grid.executions == 2


def test_a_revision_that_is_not_a_commit_is_noted_in_the_plan(grid: Reusing) -> None:
    grid.set(revision="main")
    outcome = grid.workspace.run("project", "plan", "grid")
    assert "`matrix.reuse_results` has no effect" in outcome.stdout
