"""A project derives values from its configuration: a plan and a run see the same, and all faults are reported."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

from tests.functional.grid import ORCHESTRATION, Grid
from toolbox.testing import Workspace

DERIVE = '''

    def derive(configuration):
        """Return the axis `n`: the numbers up to `count`."""
        from toolbox.ground.model.errors import ConfigurationError

        if configuration.get("count") > 3:
            raise ConfigurationError(f"{configuration.location('count')}: `count` is too large")
        return {"matrix.axes.n": list(range(configuration.get("count")))}
'''
WORKLOAD = "echo {@cell.x}-{@cell.n} >>{@root}/cells; [ ! -e {@root}/fail ]"


def grid_of(workspace: Workspace, count: int, **matrix: Any) -> Grid:
    """Return a grid whose axis `n` is derived."""
    grid = Grid(workspace, ORCHESTRATION + DERIVE)
    axes = {"x": ["a"], "n": None}
    grid.configure(axes=axes, workload={"command": WORKLOAD}, jobs=1, blocks={"count": count}, **matrix)
    return grid


def test_a_plan_and_a_run_have_the_derived_cells(workspace: Workspace) -> None:
    grid = grid_of(workspace, 2)
    plan = workspace.run("project", "plan", "grid")
    assert plan.exit_code == 0, str(plan)
    assert "2 cells: 2 to run" in plan.stdout
    assert grid.run().exit_code == 0
    assert grid.lines == ["a-0", "a-1"]
    changes = (grid.directory / "presets_applied").read_text()
    assert "orchestration.py" in changes


def test_a_resumed_run_derives_the_same_values_again(workspace: Workspace) -> None:
    grid = grid_of(workspace, 2)
    grid.mark("fail")
    assert grid.run().exit_code == 1
    grid.unmark("fail")
    assert grid.resume("--failed").exit_code == 0
    assert grid.lines == ["a-0", "a-1"] * 2


def test_faults_of_contracts_and_of_derive_are_reported_together(workspace: Workspace) -> None:
    grid = grid_of(workspace, 4, jobz=1)
    for command in (["project", "run", "grid"], ["project", "plan", "grid"], ["config", "validate", "grid"]):
        outcome = workspace.run(*command)
        assert outcome.exit_code == 2, str(outcome)
        assert "`matrix.jobz` is an unknown field: did you mean jobs?" in outcome.stderr
        assert "`count` is too large" in outcome.stderr
    assert not grid.lines


def test_a_condition_on_a_derived_axis_is_no_fault_if_the_axis_cannot_be_derived(workspace: Workspace) -> None:
    grid_of(workspace, 4, skip=[{"when": {"n": 1}, "reason": "not now"}])
    outcome = workspace.run("project", "plan", "grid")
    assert outcome.exit_code == 2
    assert "`count` is too large" in outcome.stderr
    assert "no axis" not in outcome.stderr


def test_a_project_without_a_matrix_derives_values_too(workspace: Workspace) -> None:
    files = {"projects/plain/orchestration.py": '"""Counts."""' + dedent(DERIVE), "config/plain.yaml": "count: 4\n"}
    outcome = workspace.write(files).run("config", "validate", "plain")
    assert outcome.exit_code == 2
    assert "a fault in the configuration" in outcome.stderr
    assert "`count` is too large" in outcome.stderr


def test_a_condition_may_name_a_derived_axis(workspace: Workspace) -> None:
    grid = grid_of(workspace, 2, skip=[{"when": {"n": 1}, "reason": "not now"}])
    outcome = grid.run()
    assert outcome.exit_code == 0, str(outcome)
    assert grid.lines == ["a-0"]
