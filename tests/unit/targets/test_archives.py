"""Members of an archive that a workload or its host may have forged are extracted safely or left out."""

from __future__ import annotations

import gzip
import io
import os
import random
import tarfile
from contextlib import suppress
from pathlib import Path

import pytest

from toolbox.ground.model.errors import LimitExceeded
from toolbox.ground.model.verdicts import Cause
from toolbox.ground.model.workloads import CollectLimits
from toolbox.targets import archives

LIMITS = CollectLimits()
NAME_MAX = 255


def packed(*members: tarfile.TarInfo, content: bytes = b"1", kind: int = tarfile.GNU_FORMAT) -> io.BytesIO:
    """Return an archive with these members, in which each file has this content."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=kind) as archive:
        for each in members:
            each.size = len(content) if each.isreg() else 0
            archive.addfile(each, io.BytesIO(content) if each.isreg() else None)
    return io.BytesIO(stream.getvalue())


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.linkname, found.mode = kind, link, mode
    return found


def link(name: str, target: str) -> tarfile.TarInfo:
    return member(name, tarfile.SYMTYPE, target)


def names(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if not path.is_dir())


@pytest.fixture
def there(tmp_path: Path) -> Path:
    return tmp_path / "there"


def extracted(there: Path, *members: tarfile.TarInfo) -> list[str]:
    """Extract an archive, and return the names of all files in `there` and in its parent directory."""
    archives.extract(packed(*members), there, LIMITS)
    return names(there.parent)


def test_a_link_without_a_target_does_not_affect_other_files(there: Path) -> None:
    assert extracted(there, link("files/empty", ""), member("files/a")) == ["there/files/a"]


def test_files_and_links_between_them_are_extracted(there: Path) -> None:
    found = extracted(there, member("./files/a"), member("files/sub/b"), link("files/sub/to", "../a"))
    assert found == ["there/files/a", "there/files/sub/b", "there/files/sub/to"]
    assert (there / "files/sub/to").read_bytes() == b"1"


@pytest.mark.parametrize("name", ["outcome.json", "exit_code", "samples.csv", "gpu_samples.csv", "stderr.log"])
def test_the_files_of_the_supervisor_are_extracted(there: Path, name: str) -> None:
    assert extracted(there, member(name)) == [f"there/{name}"]


@pytest.mark.parametrize(
    "bad",
    [
        member("../outside"),
        member("files/../../outside"),
        member("/files/absolute"),
        member("settings.yaml"),
        member("src/train.py"),
        member("files"),
        link("files", "."),
        member("outcome.json/a"),
        link("stdout.log", "files/a"),
        link("files/to", "../../outside"),
        link("files/to", "/etc/passwd"),
        link("files/to", "sub/../../../outside"),
        member("files/hard", tarfile.LNKTYPE, "files/a"),
        member("files/hard", tarfile.LNKTYPE, "/etc/passwd"),
        member("files/device", tarfile.CHRTYPE),
        member("files/disk", tarfile.BLKTYPE),
        member("files/fifo", tarfile.FIFOTYPE),
        member(f"files/{'n' * (NAME_MAX + 1)}"),
        member("files/" + "/".join("d" * NAME_MAX for _ in range(16))),
        member("files/" + "d/" * 200 + "deep"),
        member("files/a/below_a_file"),
    ],
    ids=lambda bad: f"{bad.name[:30]}-{bad.type.decode()}",
)
def test_a_member_that_is_not_a_file_of_an_attempt_is_left_out(
    there: Path, caplog: pytest.LogCaptureFixture, bad: tarfile.TarInfo
) -> None:
    assert extracted(there, member("files/a"), bad, member("files/z")) == ["there/files/a", "there/files/z"]
    assert "is left out: " in caplog.text


def test_a_name_is_shown_without_its_control_characters(there: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert extracted(there, member("../\x1b[2Joutside")) == []
    assert r"'../\x1b[2Joutside' is left out" in caplog.text


def test_the_number_of_warnings_is_limited(there: Path, caplog: pytest.LogCaptureFixture) -> None:
    extracted(there, *(member(f"../{number}") for number in range(50)))
    assert len(caplog.records) == 11
    assert caplog.records[-1].message == "40 more files are left out"


@pytest.mark.parametrize("target", ["elsewhere", ".", "sub", "../files/sub"])
def test_no_file_is_written_through_a_link_of_the_archive(there: Path, target: str) -> None:
    found = extracted(there, member("files/sub/b"), link("files/to", target), member("files/to/a"))
    assert found == ["there/files/sub/b", "there/files/to/a"]
    assert not (there / "files/to").is_symlink()


def test_no_file_is_written_through_a_link_of_an_earlier_archive(there: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (there / "files").mkdir(parents=True)
    (there / "files/to").symlink_to(tmp_path / "elsewhere")
    assert extracted(there, member("files/to/a"), member("files/b")) == ["there/files/b"]
    assert names(tmp_path / "elsewhere") == []


def test_a_file_that_replaces_a_link_does_not_change_the_target_of_the_link(there: Path) -> None:
    extracted(there, member("files/a"), link("files/to", "a"))
    archives.extract(packed(member("files/to"), content=b"2"), there, LIMITS)
    assert ((there / "files/a").read_bytes(), (there / "files/to").read_bytes()) == (b"1", b"2")


def test_a_chain_of_long_links_does_not_lead_outside(there: Path, tmp_path: Path) -> None:
    """After its links are resolved, the path to the last link is longer than PATH_MAX (CVE-2025-4517)."""
    long, path, members = "d" * 247, "files", []
    for letter in "abcdefghijklmnop":
        members += [member(f"{path}/{long}", tarfile.DIRTYPE), link(f"{path}/{letter}", long)]
        path = f"{path}/{letter}"
    top = f"{path}/{'l' * 254}"
    members += [link(top, "../" * 16), link("files/escape", f"{top}/../../../outside"), member("files/escape/owned")]
    members += [member("files/flag", tarfile.LNKTYPE, "files/escape/owned")]
    outside = tmp_path / "outside"
    outside.mkdir()
    extracted(there, *members)
    assert names(outside) == []
    for found in there.rglob("*"):
        with suppress(OSError):
            assert found.resolve(strict=True).is_relative_to(there)


@pytest.mark.parametrize("seed", range(20))
def test_no_mixture_of_links_and_files_leads_outside(there: Path, tmp_path: Path, seed: int) -> None:
    random_choice = random.Random(seed).choice
    parts = ("a", "b", "..", ".", "files")
    (tmp_path / "victim").write_text("untouched")

    def path() -> str:
        return "/".join(random_choice(parts) for _ in range(random_choice((1, 2, 3, 4))))

    kinds = (tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE)
    targets = [*(f"{'../' * depth}victim" for depth in range(5)), str(tmp_path / "victim")]
    made = [member(f"files/{path()}", random_choice(kinds), random_choice((path(), *targets))) for _ in range(200)]
    archives.extract(packed(*made), there, LIMITS)
    assert [name for name in names(tmp_path) if not name.startswith("there/files/")] == ["victim"]
    assert (tmp_path / "victim").read_text() == "untouched"
    for found in (path for path in there.rglob("*") if path.is_symlink()):
        with suppress(OSError, RuntimeError):  # the links form a loop
            assert found.resolve().is_relative_to(there)


def test_the_last_of_several_members_with_one_name_is_kept(there: Path) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for content in (b"first", b"second"):
            one = member("files/a")
            one.size = len(content)
            archive.addfile(one, io.BytesIO(content))
        archive.addfile(link("files/b", "a"))
        archive.addfile(member("files/b", tarfile.REGTYPE))
    archives.extract(io.BytesIO(stream.getvalue()), there, LIMITS)
    assert (there / "files/a").read_bytes() == b"second"
    assert not (there / "files/b").is_symlink()


@pytest.mark.parametrize(("mode", "expected"), [(0o6777, 0o700), (0o4755, 0o700), (0o666, 0o600), (0o000, 0o600)])
def test_an_extracted_file_is_private_and_a_program_stays_executable(there: Path, mode: int, expected: int) -> None:
    extracted(there, member("files/a", mode=mode), member("files/sub", tarfile.DIRTYPE, mode=0o7777))
    assert (there / "files/a").stat().st_mode & 0o7777 == expected
    assert (there / "files/sub").stat().st_mode & 0o7777 == 0o700


def test_a_second_archive_replaces_the_files_of_the_first(there: Path) -> None:
    for content in (b"first", b"second"):
        archives.extract(packed(member("files/a"), content=content), there, LIMITS)
    assert (there / "files/a").read_bytes() == b"second"


def test_a_compressed_archive_is_refused(there: Path) -> None:
    compressed = gzip.compress(packed(member("files/a")).getvalue())
    with pytest.raises(tarfile.TarError):
        archives.extract(io.BytesIO(compressed), there, LIMITS)
    assert names(there) == []


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (CollectLimits(bytes=2500), "the attempt left more than 2500 bytes: let `collect` name fewer files, or raise"),
        (CollectLimits(files=2), "the attempt left more than 2 files: "),
    ],
)
def test_members_before_the_limit_are_extracted(there: Path, limits: CollectLimits, message: str) -> None:
    members = [member(f"files/{name}") for name in "abcd"]
    with pytest.raises(LimitExceeded, match=message) as caught:
        archives.extract(packed(*members, content=bytes(1000)), there, limits)
    assert caught.value.cause is Cause.CONFIGURATION
    assert names(there) == ["files/a", "files/b"]


def test_a_sparse_file_is_not_extracted(there: Path) -> None:
    sparse = member("files/a", tarfile.GNUTYPE_SPARSE)
    header = bytearray(sparse.tobuf(tarfile.GNU_FORMAT))
    header[386:410] = b"00000000000\x0000000000000\x00"  # the only data block is empty and at the beginning
    header[483:495] = b"77777777777\x00"  # the real size: 8 GiB
    header[148:156] = b"        "
    header[148:156] = b"%06o\x00 " % sum(header)
    with pytest.raises(tarfile.TarError, match="a header of the type"):
        archives.extract(io.BytesIO(bytes(header) + bytes(1024)), there, LIMITS)
    assert names(there) == []


def pax_header(content: bytes, kind: bytes = tarfile.XHDTYPE) -> bytes:
    header = member("header", kind)
    header.size = len(content)
    return header.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE])
def test_an_extended_header_that_tarfile_would_parse_for_hours_is_refused(there: Path, kind: bytes) -> None:
    content = pax_header(b"1" * (1 << 20), kind) + packed(member("files/a")).read()
    with pytest.raises(tarfile.TarError, match="a header of the type"):
        archives.extract(io.BytesIO(content), there, LIMITS)


def test_the_map_of_a_sparse_file_is_not_read(there: Path) -> None:
    sparse = b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n"
    content = pax_header(sparse) + packed(member("files/a"), content=b"1000000\n" + b"0\n" * 2_000_000).read()
    with pytest.raises(tarfile.TarError, match="a header of the type"):
        archives.extract(io.BytesIO(content), there, LIMITS)


def test_a_name_of_gigabytes_is_not_read(there: Path) -> None:
    header = member("././@LongLink", tarfile.GNUTYPE_LONGNAME)
    header.size = 1 << 33
    with pytest.raises(tarfile.TarError, match="a header has 8589934592 bytes"):
        archives.extract(io.BytesIO(header.tobuf(tarfile.GNU_FORMAT)), there, LIMITS)


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE])
def test_deeply_nested_headers_are_an_error(there: Path, kind: bytes) -> None:
    header = member("x", kind)
    header.size = 1
    one = header.tobuf(tarfile.GNU_FORMAT) + b"a".ljust(512, b"\0")
    with pytest.raises(tarfile.TarError):
        archives.extract(io.BytesIO(one * 5000), there, LIMITS)


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.DIRTYPE])
def test_a_negative_size_is_an_error(there: Path, kind: bytes) -> None:
    header = member("files/a", kind)
    header.size = -512
    with pytest.raises(tarfile.TarError):
        archives.extract(io.BytesIO(header.tobuf(tarfile.GNU_FORMAT) + bytes(4096)), there, LIMITS)


@pytest.mark.parametrize("size", [0, 100, 700])
def test_an_incomplete_archive_is_an_error(there: Path, size: int) -> None:
    whole = packed(member("files/a"), content=os.urandom(4096)).getvalue()
    with pytest.raises(tarfile.TarError):
        archives.extract(io.BytesIO(whole[:size]), there, LIMITS)
    assert names(there) == []


@pytest.mark.parametrize("size", [0, 100, 1024])
def test_an_archive_that_ends_without_its_end_marker_is_an_error(there: Path, size: int) -> None:
    """`tarfile` notices this only at the beginning of a stream, where there may be output of the login shell."""
    stream = io.BytesIO(b"Welcome!\n" + packed(member("files/a"), content=b"a").getvalue()[:size])
    stream.readline()
    with pytest.raises(tarfile.TarError, match="the archive is incomplete"):
        archives.extract(stream, there, LIMITS)


def test_a_damaged_header_after_the_first_member_is_an_error(there: Path) -> None:
    content = bytearray(packed(member("files/a"), member("files/b"), content=b"a").getvalue())
    content[1024 + 148] ^= 1  # in the checksum of the second header
    with pytest.raises(tarfile.TarError, match="the archive is incomplete"):
        archives.extract(io.BytesIO(content), there, LIMITS)


@pytest.mark.parametrize("seed", range(50))
def test_a_damaged_archive_is_extracted_or_refused(there: Path, tmp_path: Path, seed: int) -> None:
    members = [member("files/a"), link("files/to", "a"), member(f"files/{'l' * 150}")]
    content = bytearray(
        packed(*members, kind=random.Random(seed).choice((tarfile.GNU_FORMAT, tarfile.PAX_FORMAT))).getvalue()
    )
    for number in range(20):
        place = random.Random(seed * 31 + number).randrange(3072)
        content[place] = (content[place] + 37 * seed + 1) % 256
    with suppress(tarfile.TarError, LimitExceeded):
        archives.extract(io.BytesIO(bytes(content)), there, LIMITS)
    assert all(name.startswith("there/") for name in names(tmp_path))


def test_the_output_of_a_program_is_copied(tmp_path: Path) -> None:
    with (tmp_path / "copy").open("wb") as target, archives.pipe_to(target, 100) as pipe:
        pipe.write(b"a" * 100)
    assert (tmp_path / "copy").read_bytes() == b"a" * 100


def test_the_endless_output_of_a_program_is_cut_off(tmp_path: Path) -> None:
    def print_on() -> None:
        with (
            (tmp_path / "copy").open("wb") as target,
            archives.pipe_to(target, 1 << 20) as pipe,
            suppress(BrokenPipeError),
        ):
            while True:
                pipe.write(bytes(1 << 16))

    with pytest.raises(LimitExceeded, match="more than 1048576 bytes"):
        print_on()
    assert (tmp_path / "copy").stat().st_size == 1 << 20
