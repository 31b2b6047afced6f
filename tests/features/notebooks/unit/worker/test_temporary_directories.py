"""Temporary directories of killed workers are removed, and no others."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from toolbox.features.notebooks.worker.temporary_directories import PREFIX, temporary_directory


@pytest.fixture(autouse=True)
def _in_the_directory_of_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def make_old(path: Path) -> None:
    os.utime(path, (0, 0))


def test_a_directory_is_private_and_is_removed_at_the_end(tmp_path: Path) -> None:
    with temporary_directory() as path:
        assert path.parent == tmp_path
        assert path.stat().st_mode & 0o777 == 0o700
        (path / "file").touch()
    assert list(tmp_path.iterdir()) == []


def test_a_directory_of_a_killed_worker_is_removed_by_the_next_worker(tmp_path: Path) -> None:
    stale = tmp_path / f"{PREFIX}stale"
    (stale / "work").mkdir(parents=True)
    make_old(stale)
    with temporary_directory():
        assert not stale.exists()


def test_a_directory_that_a_worker_uses_stays(tmp_path: Path) -> None:
    with temporary_directory() as used:
        make_old(used)
        with temporary_directory() as other:
            assert {used, other} == set(tmp_path.iterdir())


def test_new_directories_links_and_directories_of_others_stay(tmp_path: Path) -> None:
    """A worker may be about to lock a new directory."""
    target = tmp_path / "data"
    (tmp_path / f"{PREFIX}new").mkdir()
    for name in ("data", "topgallant-other", "nb-x"):
        (tmp_path / name).mkdir()
        make_old(tmp_path / name)
    (tmp_path / f"{PREFIX}link").symlink_to(target)
    with temporary_directory():
        pass
    names = {"data", "topgallant-other", "nb-x", f"{PREFIX}new", f"{PREFIX}link"}
    assert {path.name for path in tmp_path.iterdir()} == names
