"""A project determines values once, when a run begins; a resumed run uses the same values."""

from __future__ import annotations

import json
from pathlib import Path

from tests.functional.grid import ORCHESTRATION, Grid
from toolbox.testing import Workspace

RESOLVE = '''

    def resolve(configuration):
        """Return the next number of the counter."""
        with open("counter", "a") as file:
            file.write("x")
        return {"commit": f"{configuration.get('branch')}-{len(open('counter').read())}"}
'''
WORKLOAD = "echo {@commit} >>{@root}/commits; [ ! -e {@root}/fail ]"


def grid_of(workspace: Workspace) -> Grid:
    """Return a grid whose cells write the resolved value."""
    grid = Grid(workspace, ORCHESTRATION + RESOLVE)
    blocks = {"branch": "main", "commit": None, "results": {"record": False, "revision": "@commit"}}
    grid.configure("ab", blocks=blocks, workload={"command": WORKLOAD})
    return grid


def test_all_cells_and_a_resumed_run_have_the_same_value(workspace: Workspace) -> None:
    grid = grid_of(workspace)
    (grid.root / "fail").touch()
    assert workspace.run("project", "run", "grid").exit_code == 1
    (grid.root / "fail").unlink()
    assert workspace.run("project", "resume", str(grid.directory), "--failed").exit_code == 0
    assert (grid.root / "commits").read_text().split() == ["main-1"] * 4


def test_the_value_is_recorded_as_the_revision_under_test(workspace: Workspace) -> None:
    grid = grid_of(workspace)
    assert workspace.run("project", "run", "grid").exit_code == 0
    request = json.loads((grid.directory / "run.json").read_text())
    assert (request["revision"], request["resolved"]) == ("main-1", {"commit": "main-1"})
    (change,) = [change for change in request["changes"] if change["path"] == "commit"]
    assert (change["value"], change["by"]) == ("main-1", "the start of the run")


def test_a_plan_does_not_determine_values(workspace: Workspace) -> None:
    grid = grid_of(workspace)
    assert workspace.run("project", "plan", "grid").exit_code == 0
    assert not (grid.root / "counter").exists()


def test_an_error_while_values_are_determined_starts_nothing(workspace: Workspace) -> None:
    grid = Grid(
        workspace,
        ORCHESTRATION
        + '''

    def resolve(configuration):
        """Refuse."""
        from toolbox.ground.model.errors import ConfigurationError

        raise ConfigurationError("the repository has no such branch")
''',
    )
    outcome = workspace.run("project", "run", "grid")
    assert (outcome.exit_code, "the repository has no such branch" in outcome.stderr) == (2, True)
    assert not Path(grid.root / "artifacts").exists()
