"""A run says what newly fails and newly passes since the run before it, in the terminal, in its report, on demand."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import lxml.html
import pytest

from tests.functional.grid import Grid, wait
from tests.functional.grid import grid as grid  # noqa: PLC0414  # re-exports the fixture
from toolbox.testing import Outcome

# A cell of the grid whose test `one` fails if `fail-CELL` exists, and whose test `two` fails if `two-CELL` exists.
SUITE = """
    one=$([ ! -e {@root}/fail-{@cell.x} ] || echo '<failure message="one is wrong"/>')
    two=$([ ! -e {@root}/two-{@cell.x} ] || echo '<failure message="two is wrong"/>')
    echo "<testsuite><testcase name='one'>$one</testcase><testcase name='two'>$two</testcase></testsuite>" >junit.xml
"""
SUITES: dict[str, Any] = {
    "workload": {"command": SUITE, "sample_seconds": None, "collect": ["junit.xml"]},
    "checks": [{"check": "junit", "glob": "files/junit.xml"}],
}


@pytest.fixture
def recorded(grid: Grid) -> Grid:
    """Return the grid with a store in its workspace."""
    return grid.configure("abc", blocks={"results": {"database": "team.sqlite"}})


def line(outcome: Outcome) -> list[str]:
    return [line for line in outcome.stdout.splitlines() if line.startswith("since the run ")]


def newest(grid: Grid) -> Path:
    return max(grid.workspace.runs())


def section(directory: Path) -> str:
    """Return the text of the section on the last run in the report, on one line; empty if it has none."""
    page = lxml.html.fromstring((directory / "report.html").read_text())
    found = page.find(".//section[@aria-labelledby='since']")
    return " ".join("".join(map(str, found.itertext())).split()) if found is not None else ""


def test_a_run_says_what_newly_fails_and_newly_passes(recorded: Grid) -> None:
    recorded.mark("fail-a")
    first = recorded.run()
    assert (first.exit_code, line(first)) == (1, []), str(first)
    name = newest(recorded).name
    recorded.unmark("fail-a")
    recorded.mark("fail-b")
    second = recorded.run()
    (text,) = line(second)
    assert text.startswith(f"since the run {name} of 20")
    assert text.endswith(" UTC: 1 cell newly failing; 1 cell newly passing")
    report = section(newest(recorded))
    assert f"Since the run {name} of " in report
    assert "newly failing ✗failed: x=b passed → failed (product)" in report
    assert "newly passing ✓passed: x=a failed (product) → passed" in report
    unchanged = recorded.run()
    assert (line(unchanged), section(newest(recorded))) == ([], "")


def test_a_test_that_newly_fails_in_a_failing_cell_is_seen(recorded: Grid) -> None:
    recorded.configure("ab", blocks={"results": {"database": "team.sqlite"}}, **SUITES)
    assert recorded.mark("fail-a").run().exit_code == 1
    outcome = recorded.mark("two-a").run()
    assert [text.rpartition(": ")[2] for text in line(outcome)] == ["1 test newly failing"], str(outcome)
    assert "newly failing ✗failed: x=a two: passed → failed: two is wrong" in section(newest(recorded))


def test_the_report_of_an_old_run_is_compared_with_the_run_before_it(recorded: Grid) -> None:
    recorded.run()
    recorded.mark("fail-a").run()
    old = newest(recorded)
    shown = section(old)
    recorded.unmark("fail-a")
    recorded.run()
    (recorded.root / "team.sqlite").unlink()
    (old / "report.html").unlink()
    assert recorded.workspace.run("results", "report", str(old)).exit_code == 0
    assert section(old) == shown
    status = recorded.workspace.run("project", "status", str(old))
    assert line(status)[0].endswith(": 1 cell newly failing")


def test_a_selection_of_cells_does_not_make_the_other_cells_disappear(recorded: Grid) -> None:
    recorded.run()
    recorded.mark("fail-a")
    assert line(recorded.run("--cells=x=a"))[0].endswith("UTC: 1 cell newly failing")
    recorded.configure("ab", blocks={"results": {"database": "team.sqlite"}})
    recorded.unmark("fail-a")
    recorded.mark("fail-b")
    (text,) = line(recorded.run())
    assert text.endswith(" UTC and earlier runs: 1 cell newly failing; 1 cell newly passing")


def test_a_resumed_run_is_compared_with_the_same_run(recorded: Grid) -> None:
    recorded.run()
    first = newest(recorded).name
    recorded.mark("fail-a").run()
    directory = newest(recorded)
    recorded.unmark("fail-a")
    outcome = recorded.workspace.run("project", "resume", str(directory), "--failed")
    assert (outcome.exit_code, line(outcome)) == (0, []), str(outcome)
    assert section(directory).endswith("1 flaky cell. flaky: x=a: 1 of 2 attempts failed in this run")
    assert json.loads((directory / "since_last_run.json").read_text())["run"] == first


def test_the_store_answers_on_demand(recorded: Grid) -> None:
    recorded.configure("ab", blocks={"results": {"database": "team.sqlite"}}, **SUITES)
    recorded.run()
    recorded.mark("fail-a").run()

    def results(*argv: str) -> Outcome:
        outcome = recorded.workspace.run("results", *argv, "--database=team.sqlite")
        assert outcome.exit_code == 0, str(outcome)
        return outcome

    shown = results("show", "latest", "--format=json").json
    assert {row["cell"]: (row["change"], row["before"]) for row in shown} == {
        "x=a": ("newly failing", "passed"),
        "x=b": (None, None),
    }
    assert "1 cell newly failing; 1 test newly failing" in results("show", "latest").stdout
    tests = results("show", "latest", "--tests", "--format=json").json
    assert [(row["test"], row["change"]) for row in tests if row["change"]] == [("one", "newly failing")]
    compared = results("compare", "previous", "latest").stdout
    assert "newly failing: x=a: passed → failed (check)" in compared
    assert "newly failing: x=a one: passed → failed" in compared
    assert "newly passing: x=a: failed (check) → passed" in results("compare", "latest", "previous").stdout


@pytest.mark.parametrize("fault", ["missing", "broken", "without tables", "not recorded"])
def test_a_faulty_store_does_not_change_the_verdict(recorded: Grid, fault: str) -> None:
    recorded.run()
    store = recorded.root / "team.sqlite"
    match fault:
        case "missing":
            store.unlink()
        case "broken":
            store.write_bytes(b"no database" * 1000)
        case "without tables":
            with closing(sqlite3.connect(store)) as connection:
                connection.execute("DROP TABLE case_counts")
                connection.commit()
        case "not recorded":
            recorded.configure("abc", blocks={"results": {"record": False}})
    outcome = recorded.mark("fail-a").run()
    assert (outcome.exit_code, recorded_verdict(newest(recorded)), line(outcome)) == (1, "failed", []), str(outcome)
    assert ("Traceback" in outcome.stderr, section(newest(recorded))) == (False, "")


def test_a_resumed_run_that_is_not_recorded_has_no_comparison_of_its_first_session(recorded: Grid) -> None:
    recorded.run()
    recorded.mark("fail-a").run()
    assert section(newest(recorded))
    (recorded.root / "team.sqlite").write_bytes(b"no database" * 1000)
    recorded.unmark("fail-a")
    outcome = recorded.workspace.run("project", "resume", str(newest(recorded)), "--failed")
    assert (outcome.exit_code, line(outcome), section(newest(recorded))) == (0, [], ""), str(outcome)


def test_runs_that_end_together_are_all_compared(recorded: Grid) -> None:
    recorded.run()
    first = newest(recorded).name
    recorded.mark("hold-a", "fail-a")
    with recorded.start() as one, recorded.start() as two, recorded.start() as three:
        wait(lambda: recorded.lines.count("begin a") == 4, "the begin of three more cells")
        recorded.unmark("hold-a")
        outcomes = [running.wait() for running in (one, two, three)]
    assert [outcome.exit_code for outcome in outcomes] == [1, 1, 1], "\n".join(map(str, outcomes))
    runs = [directory for directory in recorded.workspace.runs() if directory.name != first]
    comparisons = [json.loads((directory / "since_last_run.json").read_text()) for directory in runs]
    # A run is compared with the newest earlier run that had been recorded when it ended.
    assert {comparison["run"] for comparison in comparisons} <= {first, *(directory.name for directory in runs)}
    assert first in {comparison["run"] for comparison in comparisons}
    assert not any("compared" in outcome.stderr or "store" in outcome.stderr for outcome in outcomes)


def recorded_verdict(directory: Path) -> str:
    return str(json.loads((directory / "summary.json").read_text())["verdict"])


@pytest.mark.parametrize(
    ("blocks", "reason"),
    [
        ({"database": "team.sqlite"}, "it has no earlier run of grid with no presets"),
        ({"record": False}, "it is not recorded (`results.record: false`)"),
        ({"database": "missing/team.sqlite/x"}, "the store cannot be used"),
    ],
)
def test_a_run_that_is_not_compared_says_why(grid: Grid, blocks: dict[str, Any], reason: str) -> None:
    (grid.root / "missing").write_text("a file, and not a directory")
    outcome = grid.configure("ab", blocks={"results": blocks}).run()
    assert f"not compared with the baseline: {reason}" in outcome.stdout.splitlines(), str(outcome)
