"""What is taken out of an archive that a workload may have had a hand in."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from toolbox.hosts import archives


def packed(*members: tarfile.TarInfo, content: bytes = b"1") -> io.BytesIO:
    """Return an archive; each file in it has this content."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for each in members:
            each.size = len(content) if each.isreg() else 0
            archive.addfile(each, io.BytesIO(content) if each.isreg() else None)
    return io.BytesIO(stream.getvalue())


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.linkname, found.mode = kind, link, mode
    return found


def names(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if not path.is_dir())


def test_what_is_whole_and_ours_lands_there(tmp_path: Path) -> None:
    archives.extract(
        packed(member("files/a"), member("files/sub/b"), member("files/to", tarfile.SYMTYPE, "a")), tmp_path
    )
    assert names(tmp_path) == ["files/a", "files/sub/b", "files/to"]
    assert (tmp_path / "files/to").read_bytes() == b"1"


@pytest.mark.parametrize(
    "bad",
    [
        member("../outside"),
        member("files/../../outside"),
        member("files/to", tarfile.SYMTYPE, "../../outside"),
        member("files/to", tarfile.SYMTYPE, "/etc/passwd"),
        member("files/hard", tarfile.LNKTYPE, "files/a"),
        member("files/device", tarfile.CHRTYPE),
        member("files/fifo", tarfile.FIFOTYPE),
    ],
)
def test_what_would_land_elsewhere_is_left_out_by_its_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, bad: tarfile.TarInfo
) -> None:
    there = tmp_path / "there"
    archives.extract(packed(member("files/a"), bad, member("files/z")), there)
    assert names(tmp_path) == ["there/files/a", "there/files/z"]
    assert f"{bad.name} is left out: " in caplog.text


def test_a_path_from_the_root_is_one_below_the_directory(tmp_path: Path) -> None:
    archives.extract(packed(member(f"{tmp_path}/outside")), tmp_path / "there")
    assert names(tmp_path) == [f"there{tmp_path}/outside"]


def test_nothing_is_written_through_a_link_that_was_left_out(tmp_path: Path) -> None:
    out = member("files/out", tarfile.SYMTYPE, str(tmp_path / "elsewhere"))
    (tmp_path / "elsewhere").mkdir()
    archives.extract(packed(out, member("files/out/a")), tmp_path / "there")
    assert names(tmp_path) == ["there/files/out/a"]


def test_a_program_is_one_still_and_nobody_else_may_write(tmp_path: Path) -> None:
    archives.extract(packed(member("a", mode=0o6777)), tmp_path)
    assert (tmp_path / "a").stat().st_mode & 0o7777 == 0o755


def test_what_is_there_already_is_replaced(tmp_path: Path) -> None:
    for content in (b"first", b"second"):
        archives.extract(packed(member("a"), content=content), tmp_path)
    assert (tmp_path / "a").read_bytes() == b"second"


@pytest.mark.parametrize("size", [0, 100, 700])
def test_an_archive_that_is_not_whole_is_said_to_be(tmp_path: Path, size: int) -> None:
    whole = packed(member("a"), content=os.urandom(4096)).getvalue()
    with pytest.raises(tarfile.TarError):
        archives.extract(io.BytesIO(whole[:size]), tmp_path)
