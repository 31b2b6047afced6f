"""The digest of a startup file is computed again only after the file has changed."""

from __future__ import annotations

import os
import site
import sys
import time
from pathlib import Path

import pytest

from toolbox.ground.kit import safe_files
from toolbox.targets.agent import startup_files


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home directory with one startup file, whose digest is not known."""
    (tmp_path / ".bashrc").write_text("one")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(startup_files, "_known", {})
    return tmp_path


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the startup file have changed some time ago."""
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 10)


@pytest.mark.usefixtures("later")
def test_an_unchanged_file_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    earlier = startup_files.digests()
    monkeypatch.delattr(safe_files, "read")
    assert startup_files.changed_since(earlier) == ""


@pytest.mark.usefixtures("later")
def test_a_replaced_file_has_changed(home: Path) -> None:
    earlier = startup_files.digests()
    (home / "new").write_text("two")
    (home / "new").rename(home / ".bashrc")
    assert startup_files.changed_since(earlier) == "~/.bashrc"


def test_a_file_that_has_just_changed_is_read_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second change at the same time would leave the same time of change."""
    earlier = startup_files.digests()
    status = (home / ".bashrc").stat()
    (home / ".bashrc").write_text("two")
    monkeypatch.setattr(os, "stat", lambda _: status)
    assert "~/.bashrc" in startup_files.changed_since(earlier)


@pytest.mark.parametrize(
    ("name", "is_read"),
    [
        ("packages/module.py", False),
        ("packages/a.pth", True),
        ("packages/sitecustomize.py", True),
        ("user/x.py", True),
        ("later/x.py", True),
    ],
)
def test_the_files_that_python_reads_at_its_start_are_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_read: bool
) -> None:
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.setattr(site, "getusersitepackages", lambda: str(tmp_path / "user"))
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(folder)])
    monkeypatch.setattr(sys, "path", ["", str(folder), str(tmp_path / "later")])
    interpreter = startup_files.Interpreter()
    assert not interpreter.has_changed()
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("")
    assert interpreter.has_changed() == is_read
    if name.endswith(".pth"):
        interpreter = startup_files.Interpreter()
        (tmp_path / name).write_text("/elsewhere")
        assert interpreter.has_changed()
