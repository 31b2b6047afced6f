"""Space is reserved on a disk; `test_hostile_workloads.py` tests files that a workload has replaced."""

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import small_disks
from toolbox.ground.kit import safe_files


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield the directory of a disk of 64 KB."""
    with small_disks.mounted(tmp_path / "disk", 1 << 16) as disk:
        yield disk


def test_reserved_space_can_be_written_when_the_disk_is_full(small_disk: Path) -> None:
    file, filler = small_disk / "reserved", small_disk / "filler"
    safe_files.reserve(str(file), 4096)
    subprocess.run(["dd", "if=/dev/zero", f"of={filler}", "bs=4k"], capture_output=True, check=False)
    safe_files.overwrite(str(file), b"the end")
    assert file.read_bytes() == b"the end"


def test_a_full_disk_reserves_nothing(small_disk: Path) -> None:
    with pytest.raises(OSError, match="No space left on device"):
        safe_files.reserve(str(small_disk / "reserved"), 1 << 20)


def test_without_posix_fallocate_the_space_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_descriptor: int, _offset: int, _count: int) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    safe_files.reserve(str(tmp_path / "reserved"), 4096)
    assert (tmp_path / "reserved").stat().st_size == 4096


def test_nothing_is_reserved_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "reserved").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        safe_files.reserve(str(tmp_path / "reserved"), 4096)
    assert not (tmp_path / "elsewhere").exists()
