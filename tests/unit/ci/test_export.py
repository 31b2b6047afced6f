"""An export contains only files that may be published."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from toolbox.ci import export
from toolbox.model.errors import UsageError
from toolbox.runs import run_reader
from toolbox.runs.run_state import RunState, State

RUN = "20261123-050000-abcd"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunState:
    """Return a finished run with a file that contains a secret, and with links."""
    directory = tmp_path / "artifacts" / "small" / RUN
    cell = directory / "000__test" / "files"
    cell.mkdir(parents=True)
    (directory / "summary.json").write_text("{}")
    (cell / "log").write_text("text")
    (cell / "core").write_bytes(b"\0secret")
    (cell / "credentials").symlink_to("/etc/passwd")
    (cell / "etc").symlink_to("/etc")
    state = RunState(RUN, "small", directory, State.FINISHED, secrets_left=frozenset({"000__test/files/core"}))
    monkeypatch.setattr(run_reader, "read", lambda _: state)
    return state


def names(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if not file.is_dir()}


def test_files_with_secrets_and_links_are_left_out(run: RunState, tmp_path: Path) -> None:
    exported = export.export(run.directory, tmp_path / "out")
    assert exported.directory == tmp_path / "out" / "small" / RUN
    assert names(exported.directory) == {"summary.json", "000__test/files/log"}
    withheld = {f"000__test/files/{name}" for name in ("core", "credentials", "etc")}
    assert set(exported.withheld) == withheld


def test_only_the_records_of_a_killed_run_are_exported(
    run: RunState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_reader, "read", lambda _: replace(run, state=State.DEAD))
    exported = export.export(run.directory, tmp_path / "out")
    assert names(exported.directory) == {"summary.json"}
    assert not exported.is_complete


def test_a_link_in_place_of_the_output_is_not_followed(run: RunState, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="is a symbolic link"):
        export.export(run.directory, tmp_path / "out")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_an_earlier_copy_is_not_changed(run: RunState, tmp_path: Path) -> None:
    export.export(run.directory, tmp_path / "out")
    with pytest.raises(UsageError, match="exists already"):
        export.export(run.directory, tmp_path / "out")
