"""Earlier runs affect a running one: by bounds, by the confirmation of deviating values, and by quarantine."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.functional.grid import Grid, wait
from tests.functional.grid import grid as grid  # noqa: PLC0414  # re-exports the fixture

# Each attempt measures the next value of the file `values`.
MEASURE = """
    echo begin {@cell.x} >>{@root}/cells
    echo "time $(sed -n "$(grep -c begin {@root}/cells)p" {@root}/values)"
"""
AUTO: dict[str, Any] = {
    "workload": {"command": MEASURE, "sample_seconds": None},
    "metrics": {"time": {"source": "log", "pattern": r"time (\S+)", "aggregate": "last", "unit": "s"}},
    "checks": [{"check": "metric", "metric": "time", "bounds": "auto"}],
}


def measuring(grid: Grid, *values: float, samples: int = 30, direction: str | None = "lower", **matrix: Any) -> Grid:
    """Make the only cell measure these values, one per attempt, with bounds from 0.9 to 1.1."""
    (grid.root / "values").write_text("".join(f"{value}\n" for value in values))
    metrics = {"time": {**AUTO["metrics"]["time"], "direction": direction}}
    grid.configure("a", **{**AUTO, "metrics": metrics, **matrix})
    cell = json.loads(grid.workspace.run("project", "plan", "grid", "--format=json").stdout)["cells"][0]["id"]
    bound = {"lower": 0.9, "upper": 1.1, "mean": 1.0, "unit": "s", "samples": samples, "method": "prediction"}
    bounds = {"cells": {"x=a": {"cell": cell, "metrics": {"time": bound}}}}
    grid.workspace.write({"config/bounds/grid.yaml": json.dumps(bounds, indent=1)})
    return grid


def test_a_value_within_the_bounds_of_earlier_runs_passes(grid: Grid) -> None:
    assert measuring(grid, 1.05).run().exit_code == 0
    assert len(grid.lines) == 1


def test_a_value_out_of_bounds_twice_is_a_regression(grid: Grid) -> None:
    outcome = measuring(grid, 1.3, 1.2).run()
    assert outcome.exit_code == 1, str(outcome)
    summary = grid.workspace.summary()
    assert (summary["verdict"], summary["cause"]) == ("failed", "regression")
    assert "time is 1.2 s, 20 % above the usual 1, and above [0.9, 1.1] s, from 30 values" in outcome.stdout
    assert "another attempt has confirmed the deviation" in outcome.stdout


def test_a_value_out_of_bounds_once_is_noise(grid: Grid) -> None:
    outcome = measuring(grid, 1.3, 1.0).run()
    assert outcome.exit_code == 0, str(outcome)
    assert "time: noisy, out of range in one attempt and not in the other" in outcome.stdout
    assert [attempt["verdict"] for attempt in attempts(grid)] == ["failed", "passed"]


def test_values_out_of_bounds_on_both_sides_are_noise(grid: Grid) -> None:
    assert measuring(grid, 1.3, 0.5).run().exit_code == 0
    assert [attempt["cause"] for attempt in attempts(grid)] == ["regression", "check"]


def test_a_value_on_the_better_side_fails_but_is_not_a_regression(grid: Grid) -> None:
    outcome = measuring(grid, 0.5, 0.5).run()
    assert outcome.exit_code == 1, str(outcome)
    assert grid.workspace.summary()["cause"] == "check"
    assert "this is the better side" in outcome.stdout


def test_without_a_direction_both_sides_are_a_regression(grid: Grid) -> None:
    measuring(grid, 0.5, 0.5, direction=None).run()
    assert grid.workspace.summary()["cause"] == "regression"


def test_bounds_from_few_runs_are_reported_but_do_not_fail_the_run(grid: Grid) -> None:
    outcome = measuring(grid, 1.3, samples=9).run()
    assert outcome.exit_code == 0, str(outcome)
    assert "bounds from fewer than 10 values do not fail the check" in outcome.stdout
    assert len(attempts(grid)) == 1


def test_without_bounds_a_value_is_only_recorded(grid: Grid) -> None:
    measuring(grid, 1.3)
    (grid.root / "config/bounds/grid.yaml").unlink()
    outcome = grid.run()
    assert outcome.exit_code == 0, str(outcome)
    (cell,) = [step for step in grid.workspace.summary()["steps"] if step["kind"] == "cell"]
    (check,) = [check for check in cell["checks"] if check["check"] == "metric"]
    assert check["passed"] is None
    assert check["message"].startswith("time is 1.3 s; there are no bounds yet: `results update_bounds` writes bounds")


def test_manual_bounds_win_over_those_of_earlier_runs(grid: Grid) -> None:
    measuring(grid, 1.05)
    generated = grid.root / "config/bounds/grid.yaml"
    manual = json.loads(generated.read_text())
    manual["cells"]["x=a"]["metrics"]["time"] = {"upper": 1.02}
    (grid.root / "config/bounds/grid.manual.yaml").write_text(json.dumps(manual))
    outcome = grid.run()
    assert outcome.exit_code == 1, str(outcome)
    assert "time is 1.05 s, above [-, 1.02]" in outcome.stdout


def test_bounds_of_a_cell_with_other_settings_are_not_applied(grid: Grid) -> None:
    measuring(grid, 1.3)
    file = grid.root / "config/bounds/grid.yaml"
    file.write_text(file.read_text().replace('"cell": "', '"cell": "0'))
    assert grid.run().exit_code == 0


def test_a_failure_of_another_check_is_not_noise(grid: Grid) -> None:
    checks = [*AUTO["checks"], {"check": "log_contains", "text": "Finished"}]
    assert measuring(grid, 1.3, 1.0, checks=checks).run().exit_code == 1
    assert len(attempts(grid)) == 1


def test_a_killed_run_remembers_the_first_attempt(grid: Grid) -> None:
    measuring(grid, 1.3, 1.3)
    grid.run()
    journal = grid.directory / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    second = next(number for number, line in enumerate(lines) if '"attempt": 2' in line)
    journal.write_text("".join(lines[:second]))
    outcome = grid.resume()
    assert outcome.exit_code == 1, str(outcome)
    assert grid.workspace.summary()["cause"] == "regression"


def test_a_resumed_run_confirms_an_unconfirmed_value(grid: Grid) -> None:
    # `b` fails at once, and no more attempts start: no second attempt of `a` can confirm its value.
    measuring(grid, 1.3, 1.3)
    command = '[ {@cell.x} = b ] && exit 1; while [ ! -e {@root}/go ]; do sleep 0.02; done; echo "time 1.3"'
    plan = grid.root / "config/bounds/grid.yaml"
    bounds = plan.read_text()
    grid.configure("ab", **{**AUTO, "workload": {"command": command, "sample_seconds": None}}, jobs=2)
    plan.write_text(bounds)
    running = grid.start("--max_failures=1")
    wait(lambda: "failed" in grid_text(grid), "the end of b")
    grid.mark("go")
    assert running.wait(60).exit_code == 1
    assert grid.verdicts == {"a": "cancelled", "b": "failed"}
    grid.resume()
    assert grid.verdicts["a"] == "failed"
    assert len([line for line in grid_text(grid).splitlines() if '"AttemptSubmitted"' in line]) == 3


def grid_text(grid: Grid) -> str:
    """Return the text of the journal so far."""
    runs = grid.workspace.runs()
    return (runs[0] / "journal.jsonl").read_text() if runs else ""


def test_new_bounds_do_not_prevent_a_resume(grid: Grid) -> None:
    measuring(grid, 1.0)
    grid.run()
    journal = grid.directory / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(lines[: next(i for i, line in enumerate(lines) if '"AttemptSubmitted"' in line)]))
    bounds = grid.root / "config/bounds/grid.yaml"
    bounds.write_text(bounds.read_text().replace("1.1", "1.05"))
    (grid.root / "cells").unlink()
    (grid.root / "values").write_text("1.08\n")
    outcome = grid.resume()
    assert outcome.exit_code == 0, str(outcome)


def test_a_cell_in_quarantine_runs_but_does_not_count(grid: Grid) -> None:
    kept = {"when": {"x": "b"}, "reason": "#9", "owner": "me", "expires": "2999-01-01"}
    outcome = grid.configure(quarantine=[kept]).mark("fail-b").run()
    assert outcome.exit_code == 0, str(outcome)
    assert grid.verdicts == {"a": "passed", "b": "failed", "c": "passed"}
    assert "in quarantine until 2999-01-01 (me), so the verdict does not count: #9" in outcome.stdout
    assert grid.resume("--failed").exit_code == 0


def test_a_cell_with_an_expired_quarantine_counts_again(grid: Grid) -> None:
    kept = {"when": {"x": "b"}, "reason": "#9", "owner": "me", "expires": "2020-01-01"}
    outcome = grid.configure(quarantine=[kept]).mark("fail-b").run()
    assert outcome.exit_code == 1
    assert "in quarantine until 2020-01-01 (me: #9): this entry has expired" in outcome.stdout


@pytest.mark.parametrize("name", ["grid.yaml", "grid.manual.yaml"])
@pytest.mark.parametrize("text", ["cells: [1]\n", "cells: {a: {cell: x, metrics: {time: {lower: fast}}}}\n"])
def test_a_faulty_bounds_file_is_refused_before_the_run(grid: Grid, text: str, name: str) -> None:
    measuring(grid, 1.0)
    (grid.root / "config/bounds" / name).write_text(text)
    outcome = grid.run()
    assert outcome.exit_code == 2
    assert f"config/bounds/{name}:1: " in outcome.stderr
    assert not grid.lines


def attempts(grid: Grid) -> list[dict[str, Any]]:
    """Return the attempts of the only cell."""
    (cell,) = [step for step in grid.workspace.summary()["steps"] if step["kind"] == "cell"]
    found: list[dict[str, Any]] = cell["attempts"]
    return found
