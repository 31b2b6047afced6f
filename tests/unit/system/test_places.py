"""Where roles, projects and configurations are found: in a team's repository first, then beside the toolbox."""

from pathlib import Path

import pytest

from toolbox.system import places


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The repository of a team, which is the working directory."""
    (tmp_path / "projects").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    return path


def test_a_directory_without_projects_is_nobodys_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert places.roots() == [places.builtin_root()]


def test_a_repository_goes_before_ours(team: Path) -> None:
    assert places.roots() == [team, places.builtin_root()]
    ours = places.find("roles", "host_capture_state", "tasks", "main.yml")
    assert ours is not None
    theirs = write(team / "roles/host_capture_state/tasks/main.yml")
    assert places.find("roles", "host_capture_state", "tasks", "main.yml") == theirs != ours


def test_our_own_checkout_is_looked_into_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(places.builtin_root())
    assert places.roots() == [places.builtin_root()]


@pytest.mark.usefixtures("team")
def test_what_is_nowhere_is_none() -> None:
    assert places.find("roles", "no_such_role") is None


def test_entries_are_those_of_all_roots_one_a_name(team: Path) -> None:
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
