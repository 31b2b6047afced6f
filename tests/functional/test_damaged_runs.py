"""Damaged files of a run directory: every damage is reported, and no result is silently lost."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.functional.grid import Grid
from tests.functional.grid import grid as grid  # noqa: PLC0414  # re-exports the fixture
from toolbox.testing import Workspace

CELL_B_ENDED = ('"StepFinished"', '"x=b"')


def line_of(journal: Path, *parts: str) -> int:
    """Return the number of the only line of a journal that contains all these texts."""
    lines = journal.read_text().splitlines()
    (number,) = [number for number, line in enumerate(lines, start=1) if all(part in line for part in parts)]
    return number


def damage(journal: Path, number: int) -> None:
    """Overwrite a part of a line of a journal, so that the line is not JSON."""
    lines = journal.read_bytes().splitlines(keepends=True)
    lines[number - 1] = lines[number - 1].replace(b'"verdict": ', b'"ver#!?t"; ')
    journal.write_bytes(b"".join(lines))


@pytest.fixture
def damaged(grid: Grid) -> tuple[Grid, str]:
    """Return a run in which the end of a failed cell is unreadable, and the message that names the damaged line."""
    assert grid.mark("fail-b").run().exit_code == 1
    journal = grid.directory / "journal.jsonl"
    number = line_of(journal, *CELL_B_ENDED)
    damage(journal, number)
    return grid, f"journal.jsonl:{number}: the line is not JSON"


def test_damage_is_reported_by_status_import_and_all_reports(damaged: tuple[Grid, str]) -> None:
    grid, place = damaged
    directory = str(grid.directory)
    status = grid.workspace.run("project", "status", directory)
    assert (status.exit_code, place in status.stdout) == (0, True), str(status)
    assert "the journal of this run is damaged" in status.stdout
    assert grid.workspace.run("project", "status", directory, "--format=json").json["damage"] == [place]
    assert place in grid.workspace.run("results", "import", directory).stderr
    assert grid.workspace.run("results", "report", directory).exit_code == 0
    for name in ("summary.json", "junit.xml", "report.html"):
        assert place in (grid.directory / name).read_text(), name
    for kind in ("github", "comment"):
        assert place in grid.workspace.run("results", "report", directory, f"--kind={kind}").stdout


def test_a_damaged_run_is_resumed_only_with_damaged_ignore(damaged: tuple[Grid, str]) -> None:
    grid, place = damaged
    journal = grid.directory / "journal.jsonl"
    before, cell_lines = journal.read_bytes(), grid.lines
    refused = grid.resume()
    assert (refused.exit_code, refused.stdout) == (2, ""), str(refused)
    assert place in refused.stderr
    assert "--damaged=ignore" in refused.stderr
    assert (journal.read_bytes(), grid.lines) == (before, cell_lines)
    assert grid.resume("--damaged=ignore").exit_code == 1
    assert grid.verdicts == {"a": "passed", "b": "failed", "c": "passed"}
    assert Counter(grid.lines) == Counter(cell_lines), "the end of the attempt is in the journal, so it is not repeated"


@pytest.mark.parametrize("lost", [CELL_B_ENDED, ("__x=b",)], ids=["its-end", "all-its-lines"])
def test_a_run_that_says_passed_without_a_cell_is_an_error_everywhere(grid: Grid, lost: tuple[str, ...]) -> None:
    grid.run()
    journal = grid.directory / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(line for line in lines if not all(part in line for part in lost)))
    directory, fault = str(grid.directory), "does not contain the end of 1 cell: x=b"
    status = grid.workspace.run("project", "status", directory)
    assert ("error (infrastructure)" in status.stdout, fault in status.stdout) == (True, True), str(status)
    assert grid.workspace.run("project", "status", directory, "--format=json").json["verdict"] == "error"
    assert grid.workspace.run("results", "report", directory).exit_code == 0
    for name in ("summary.json", "report.html"):
        assert fault in (grid.directory / name).read_text(), name
    assert 'errors="1"' in (grid.directory / "junit.xml").read_text()
    assert fault in grid.workspace.run("results", "report", directory, "--kind=github").stdout
    store = f"--database={grid.root / 'results.sqlite'}"
    assert fault in (imported := grid.workspace.run("results", "import", directory, store)).stderr, str(imported)
    (listed,) = grid.workspace.run("results", "list", store, "--format=json").json
    assert listed["verdict"] == "error"
    assert grid.resume().exit_code == 0
    assert grid.verdicts == {"a": "passed", "b": "passed", "c": "passed"}


TAMPERING = """
    from toolbox.orchestration import env, matrix


    def test():
        matrix.run()


    def post_cleanup():
        journal = env.ARTIFACT_DIR.parent / "journal.jsonl"
        journal.write_text("".join(line for line in journal.open() if "__x=b" not in line))
"""


def test_a_run_that_loses_the_end_of_a_cell_is_an_error_at_once(workspace: Workspace) -> None:
    outcome = Grid(workspace, TAMPERING).run()
    assert (outcome.exit_code, "end of 1 cell: x=b" in outcome.stdout) == (3, True), str(outcome)
    assert workspace.summary()["exit_code"] == 3


def test_events_that_occur_twice_count_once(grid: Grid) -> None:
    grid.mark("fail-b").run()
    status = grid.workspace.run("project", "status", str(grid.directory), "--format=json").json
    journal = grid.directory / "journal.jsonl"
    journal.write_bytes(b"".join(2 * line for line in journal.read_bytes().splitlines(keepends=True)))
    assert grid.workspace.run("project", "status", str(grid.directory), "--format=json").json == status
    again = grid.workspace.run("results", "import", str(grid.directory))
    assert (again.exit_code, "3 cells" in again.stdout) == (0, True), str(again)
    assert grid.resume().exit_code == 1


def interrupted(grid: Grid) -> Path:
    """Return the directory of a run that was killed while its second cell ran."""
    grid.configure("ab", jobs=1).mark("hold-b")
    with grid.start() as running:
        grid.wait_for("begin b")
        running.send(signal.SIGKILL)
        running.wait()
    grid.unmark("hold-b")
    return grid.directory


@pytest.mark.parametrize("name", ["run.json", "config.yaml", "plan.json"])
def test_a_missing_file_that_a_resumed_run_needs_is_named(grid: Grid, name: str) -> None:
    directory = interrupted(grid)
    whole = (directory / name).read_bytes()
    for content in (b"", b"\0" * len(whole), b"{", b"[]", b"- x", None):
        (directory / name).unlink()
        if content is not None:
            (directory / name).write_bytes(content)
        outcome = grid.resume()
        assert (outcome.exit_code, outcome.stdout) == (2, ""), f"{content!r}: {outcome}"
        assert str(directory / name) in outcome.stderr
        (directory / name).write_bytes(whole)
    assert grid.resume().exit_code == 0
    assert Counter(grid.lines) == Counter(["begin a", "end a", "begin b", "end b"])


def test_derived_files_are_written_again(grid: Grid) -> None:
    directory = interrupted(grid)
    for file in [*directory.rglob("step.json"), *directory.rglob("settings.yaml"), directory / "presets_applied"]:
        file.write_bytes(b"")
    outcome = grid.resume()
    assert outcome.exit_code == 0, str(outcome)
    for file in directory.rglob("step.json"):
        if "prepare" not in str(file) and "x=a" not in str(file):  # these ended before the kill
            assert json.loads(file.read_text())["verdict"] == "passed", file
    assert grid.verdicts == {"a": "passed", "b": "passed"}
