"""Roles, projects and configurations are found first in the workspace, then in Topgallant."""

import os
import sys
from pathlib import Path

import pytest

from toolbox.ground.model.errors import UsageError
from toolbox.ground.system import places


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the repository of a team, which is the working directory."""
    (tmp_path / "projects").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    return path


def test_a_directory_without_projects_is_not_a_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert places.roots() == [places.builtin_root()]


def test_a_workspace_precedes_the_builtin_root(team: Path) -> None:
    assert places.roots() == [team, places.builtin_root()]
    ours = places.find("roles", "host_capture_state", "tasks", "main.yml")
    assert ours is not None
    theirs = write(team / "roles/host_capture_state/tasks/main.yml")
    assert places.find("roles", "host_capture_state", "tasks", "main.yml") == theirs != ours


def test_the_builtin_root_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(places.builtin_root())
    assert places.roots() == [places.builtin_root()]


@pytest.mark.usefixtures("team")
def test_a_missing_path_is_none() -> None:
    assert places.find("roles", "no_such_role") is None


def test_entries_have_one_path_per_name(team: Path) -> None:
    write(team / "roles/zz_top/tasks/main.yml")
    shadowing = write(team / "roles/host_capture_state/tasks/main.yml").parents[1]
    found = {path.name: path for path in places.entries("roles", "*")}
    assert found["host_capture_state"] == shadowing
    assert {"zz_top", "training_cleanup"} <= found.keys()
    assert list(found) == sorted(found)


def test_a_project_is_a_folder_with_an_orchestration(team: Path) -> None:
    write(team / "projects/mine/orchestration.py")
    write(team / "projects/unfinished/notes.txt")
    write(team / "projects/readme.md")
    found = places.projects()
    assert found["mine"] == team / "projects/mine"
    assert "training_e2e" in found
    assert not {"unfinished", "readme.md"} & found.keys()


@pytest.mark.parametrize("builtin", ["a", "z"])
def test_a_project_of_the_workspace_precedes_a_builtin_project_of_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, builtin: str
) -> None:
    write(tmp_path / builtin / "projects/mine/orchestration.py")
    expected = write(tmp_path / "m/projects/mine/orchestration.py").parent
    monkeypatch.setattr(places, "builtin_root", lambda: tmp_path / builtin)
    monkeypatch.chdir(tmp_path / "m")
    assert places.projects() == {"mine": expected}


def test_a_workspace_is_found_from_its_subdirectories(team: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(team / "projects/mine/orchestration.py")
    below = write(team / "projects/mine/deep/file").parent
    monkeypatch.chdir(below)
    assert places.workspace() == team
    assert places.artifacts() == team / "artifacts"


def test_the_nearest_workspace_counts(team: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(team / "projects/mine/orchestration.py")
    inner = write(team / "inner/roles/disk_measure/tasks/main.yml").parents[3]
    monkeypatch.chdir(inner)
    assert places.workspace() == inner


def test_a_parent_folder_with_other_projects_is_not_a_workspace(team: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    below = write(team / "projects/website/src/index.html").parent
    monkeypatch.chdir(below)
    assert places.workspace() is None
    assert places.artifacts() == below / "artifacts"


def test_a_directory_in_the_builtin_root_has_no_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(places.builtin_root() / "docs")
    assert places.workspace() is None


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files to another user")
def test_a_parent_folder_with_files_of_another_user_is_not_a_workspace(
    team: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = write(team / "mine/file").parent
    os.chown(write(team / "commands/host.py"), 12345, 12345)
    monkeypatch.chdir(below)
    assert places.workspace() is None


def test_an_environment_variable_may_name_the_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPGALLANT_WORKSPACE", str(tmp_path))
    assert places.roots() == [tmp_path, places.builtin_root()]
    monkeypatch.setenv("TOPGALLANT_WORKSPACE", str(places.builtin_root()))
    assert places.roots() == [places.builtin_root()]
    monkeypatch.setenv("TOPGALLANT_WORKSPACE", str(tmp_path / "gone"))
    with pytest.raises(UsageError, match="gone, which is not a directory"):
        places.roots()


def test_a_pinned_workspace_stays_when_the_directory_changes(team: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with places.pinned(team):
        monkeypatch.chdir("/")
        assert places.workspace() == team
        with places.pinned(None):
            assert places.roots() == [places.builtin_root()]
    assert places.workspace() is None


ROOT = places.PACKAGE.parent


@pytest.mark.parametrize(
    ("before", "after", "variable", "found"),
    [
        ([ROOT], [], "", ROOT),  # the script folder of `run_toolbox.py`
        ([ROOT], [ROOT], "", None),
        ([], [ROOT / "tests" / ".."], "", None),
        ([ROOT], [], f"/other:{ROOT}", None),
        ([ROOT], ["/other"], "/other", ROOT),
    ],
)
def test_new_processes_search_the_folder_of_an_installed_package(
    monkeypatch: pytest.MonkeyPatch, before: list[Path], after: list[Path], variable: str, found: Path | None
) -> None:
    standard = str(Path(os.__file__).parent)
    monkeypatch.setattr(sys, "path", [*map(str, before), standard, *map(str, after)])
    monkeypatch.setenv("PYTHONPATH", variable)
    assert places.import_folder() == found
