"""`--max_cost` refuses a plan that is expected to cost more, and a run starts no cells that would exceed the limit."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from tests.functional.grid import Grid
from tests.functional.grid import grid as grid  # noqa: PLC0414  # re-exports the fixture

PER_HOUR = 1_000_000.0


def priced(grid: Grid, **matrix: Any) -> Grid:
    """Let each cell cost 278 USD per second, or 2,778 USD until its time limit."""
    blocks = {"results": {"database": "team.sqlite"}, "targets": {"local": {"cost_per_hour": PER_HOUR}}}
    return grid.configure(jobs=1, timeouts={"run": 10}, blocks=blocks, **matrix)


def set_earlier_seconds(grid: Grid, seconds: float) -> None:
    """Change the store, as if each cell had taken this long in the earlier runs."""
    with closing(sqlite3.connect(grid.root / "team.sqlite")) as store, store:
        store.execute("UPDATE attempts SET charged_seconds = ?", (seconds,))


@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_plan_that_may_cost_more_than_the_limit_is_refused(grid: Grid, command: str) -> None:
    priced(grid)
    outcome = grid.workspace.run("project", command, "grid", "--max_cost=5000")
    assert outcome.exit_code == 2, str(outcome)
    assert outcome.stderr.splitlines() == [
        "error: the cost limit is 5,000.00 USD, and the plan is expected to cost 8,333.33 USD",
        "  3 cells without earlier runs count with their time limits (`matrix.timeouts.run`)",
        "  select fewer cells with --cells, or raise --max_cost; `project plan` shows the cost of each cell",
    ]
    assert grid.workspace.runs() == []


def test_an_unknown_price_is_refused_with_the_reason(grid: Grid) -> None:
    outcome = grid.run("--max_cost=5000")
    assert outcome.exit_code == 2, str(outcome)
    assert outcome.stderr.splitlines() == [
        "error: the cost limit is 5,000.00 USD (--max_cost), but some costs are unknown:",
        "  the cost on the target `local` is unknown: the target has no `cost_per_hour`",
        "  a target that costs nothing has `cost_per_hour: 0`",
    ]
    assert grid.workspace.runs() == []


def test_the_limit_may_be_in_the_configuration(grid: Grid) -> None:
    assert priced(grid, max_cost=1).run().exit_code == 2
    grid.configure(max_cost=0, blocks={"targets": {"local": {"cost_per_hour": 0}}})
    assert grid.run().exit_code == 0


@pytest.mark.parametrize("value", ["-1", "nan", "inf", "1e9", "cheap"])
def test_a_limit_that_is_not_an_amount_is_refused(grid: Grid, value: str) -> None:
    outcome = grid.run(f"--max_cost={value}")
    assert (outcome.exit_code, "--max_cost" in outcome.stderr) == (2, True), str(outcome)


def test_cells_that_would_exceed_the_limit_are_skipped_and_a_resumed_run_with_a_higher_limit_runs_them(
    grid: Grid,
) -> None:
    assert priced(grid).run().exit_code == 0
    set_earlier_seconds(grid, 0.001)  # three cells are expected to cost 0.83 USD, and each really costs more
    outcome = grid.run("--max_cost=1", "--format=json")
    assert (outcome.exit_code, outcome.json["cause"]) == (3, "capacity"), str(outcome)
    cells = [step for step in outcome.json["steps"] if step["kind"] == "cell"]
    assert [step["verdict"] for step in cells] == ["passed", "skipped", "skipped"]
    assert cells[1]["message"].startswith("the cost limit of 1.00 USD is reached: ")
    newest = str(max(grid.workspace.runs()))
    again = grid.workspace.run("project", "resume", newest, "--format=json")
    assert (again.exit_code, again.json["cause"]) == (3, "capacity"), str(again)
    more = grid.workspace.run("project", "resume", newest, "--max_cost=1000000", "--format=json")
    assert (more.exit_code, more.json["verdict"]) == (0, "passed"), str(more)
    assert [grid.lines.count(f"begin {x}") for x in "abc"] == [2, 2, 2]  # in the first run, and once in this run


def test_the_plan_shows_the_times_of_earlier_runs_and_their_cost(grid: Grid) -> None:
    priced(grid).run("--cells=x=[ab]")
    set_earlier_seconds(grid, 5.0)
    outcome = grid.workspace.run("project", "plan", "grid")
    assert outcome.exit_code == 0, str(outcome)
    lines = outcome.stdout.splitlines()
    assert re.search(r" 5\.0 s \(1 run\) +1,388\.89 USD ", lines[1]), str(outcome)
    assert re.search(r" at most 10\.0 s +at most 2,777\.78 USD ", lines[3]), str(outcome)
    assert lines[-2] == (
        "expected: 10.0 s and at most 10.0 s for 1 cell without earlier runs on targets, at most 5,555.56 USD"
    )
    found = grid.workspace.run("project", "plan", "grid", "--format=json").json["expected"]
    assert (round(found["cost"]), found["currency"], found["unknown"]) == (5556, "USD", 0)
