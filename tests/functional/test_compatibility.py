"""This version reads what released versions have written, as docs/compatibility.md promises.

`tests/data/VERSION` is a workspace with files of that version, which never change: a run that was killed in its last
cell, two exported runs of shards, the configuration with generated bounds, and the text of an SQLite store.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from toolbox.records.runs.layout import RunDirectory
from toolbox.testing import Outcome, Workspace

DATA = Path(__file__).parents[1] / "data"
VERSIONS = sorted(folder.name for folder in DATA.iterdir())
ORCHESTRATION = '''
    """Runs a matrix."""
    from toolbox.api import matrix


    def test():
        matrix.run()
'''
CELLS = {"x=a": "passed", "x=b": "xfailed", "x=c": "passed"}


@pytest.fixture(params=VERSIONS)
def old(request: pytest.FixtureRequest, workspace: Workspace) -> Workspace:
    """Return a workspace that an earlier version has used."""
    shutil.copytree(DATA / request.param, workspace.directory, dirs_exist_ok=True)
    return workspace.write({"projects/grid/orchestration.py": ORCHESTRATION, "command_args/grid.yaml.j2": ""})


@pytest.fixture
def database(old: Workspace) -> str:
    """Return the file of a store of an earlier version."""
    file = old.directory / "results.sqlite"
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript((old.directory / "results.sql").read_text())
    return f"--database={file}"


def succeeded(outcome: Outcome) -> Outcome:
    assert outcome.exit_code == 0, str(outcome)
    assert "damaged" not in outcome.stderr
    return outcome


def cells(outcome: Outcome) -> dict[str, str]:
    """Return the verdicts of the cells in the summary of a run."""
    steps = json.loads(succeeded(outcome).stdout)["steps"]
    return {step["name"]: step["verdict"] for step in steps if step["kind"] == "cell"}


def test_a_run_is_shown_and_reported(old: Workspace) -> None:
    directory = str(old.run_directory())
    assert cells(old.run("project", "status", directory, "--format=json")) == {**CELLS, "x=c": None}
    succeeded(old.run("results", "report", f"--run_dir={directory}"))
    report = RunDirectory(old.run_directory()).html.read_text()
    assert all(f">{text}<" in report for text in ("x=a", "x=b", "x=c"))
    assert "[1.4775, 1.5225]" in report  # a bound of the plan


def test_a_run_is_resumed(old: Workspace) -> None:
    directory = old.run_directory()
    succeeded(old.run("project", "resume", str(directory)))
    assert cells(old.run("project", "status", str(directory), "--format=json")) == CELLS
    assert RunDirectory(directory).journal.read_text().count('"AttemptSubmitted"') == len(CELLS)


def test_exported_runs_are_imported_into_a_store(old: Workspace, database: str) -> None:
    before = succeeded(old.run("results", "list", database, "--format=json")).json
    assert [(run["verdict"], run["cells"]) for run in before] == [("xfailed", {"passed": 1, "xfailed": 1})] * 5
    succeeded(old.run("results", "import", str(old.directory / "exported"), database))
    after = succeeded(old.run("results", "list", database, "--format=json")).json
    assert [run["cells"] for run in after[:2]] == [{"xfailed": 1}, {"passed": 2}]
    assert after[2:] == before


def test_the_runs_of_shards_are_merged(old: Workspace) -> None:
    merged = old.run("results", "merge", str(old.directory / "exported"), "--format=json")
    assert cells(merged) == CELLS


def test_generated_bounds_are_updated(old: Workspace, database: str) -> None:
    file = old.directory / "config/bounds/grid.yaml"
    text = file.read_text()
    assert "0 of 1 bounds changed" in succeeded(old.run("results", "update_bounds", "grid", database)).stdout
    assert file.read_text() == text


def changed_lines(change: Callable[[dict[str, Any]], None], file: Path) -> None:
    """Change each object of a file with one JSON object per line, or the only one of another file."""
    texts = file.read_text().splitlines() if file.suffix == ".jsonl" else [file.read_text()]
    objects = [json.loads(text) for text in texts]
    for each in objects:
        change(each)
    file.write_text("".join(f"{json.dumps(each)}\n" for each in objects))


def test_new_fields_of_events_are_ignored(old: Workspace) -> None:
    directory = old.run_directory()
    changed_lines(lambda event: event.update(new_field=1), RunDirectory(directory).journal)
    assert cells(old.run("project", "status", str(directory), "--format=json")) == {**CELLS, "x=c": None}


@pytest.mark.parametrize("command", [("project", "status"), ("project", "resume"), ("results", "report", "--run_dir")])
def test_a_run_of_an_unknown_format_is_refused(old: Workspace, command: tuple[str, ...]) -> None:
    directory = old.run_directory()
    changed_lines(lambda request: request.update(format=2), RunDirectory(directory).request)
    outcome = old.run(*command, str(directory))
    assert outcome.exit_code == 2, str(outcome)
    assert "has format 2, and this version of Topgallant reads format 1" in outcome.stderr


def test_a_run_with_an_unknown_event_is_damaged(old: Workspace) -> None:
    directory = old.run_directory()
    with RunDirectory(directory).journal.open("a") as file:
        file.write('{"time": "2030-01-01T00:00:00+00:00", "event": "NewEvent"}\n')
    assert "the event 'NewEvent' is not known to this version" in old.run("project", "status", str(directory)).stdout
    assert old.run("project", "resume", str(directory)).exit_code == 2


def test_an_export_of_an_unknown_format_is_refused(old: Workspace) -> None:
    for file in old.directory.glob("exported/grid/*/export.json"):
        changed_lines(lambda record: record.update(format=2), file)
    outcome = old.run("results", "import", str(old.directory / "exported"))
    assert outcome.exit_code == 2, str(outcome)
    assert "has a format that only a later version of Topgallant reads" in outcome.stderr
