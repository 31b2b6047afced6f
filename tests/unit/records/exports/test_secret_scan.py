"""The search for secrets reads files of any kind and size, and names the line and never the secret."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import tarfile
import time
from pathlib import Path

import pytest

from toolbox.records.exports.secret_scan import IN_USE, Scanner

SECRET = "correct horse/battery+staple"
TOKEN = "ghp_" + 36 * "a"
BLOCK = 1 << 20


def search(folder: Path, content: bytes, *values: str) -> list[tuple[int, str]]:
    (folder / "file").write_bytes(content)
    return [(finding.line, finding.kind) for finding in Scanner(values).search(folder, "file").findings]


@pytest.mark.parametrize(
    "content",
    [
        SECRET.encode(),
        base64.b64encode(b"user:" + SECRET.encode()),
        SECRET.replace("/", "%2F").replace(" ", "%20").replace("+", "%2B").encode(),
        b"\x7fELF\0\xff\xfe" + SECRET.encode() + b"\0\0",
    ],
    ids=["plain", "base64", "url", "binary"],
)
def test_a_secret_in_use_is_found_with_its_line(tmp_path: Path, content: bytes) -> None:
    assert search(tmp_path, b"one\ntwo\n" + content + b"\nfour", SECRET) == [(3, IN_USE)]


@pytest.mark.parametrize("before", [1, 10, len(TOKEN) - 1])
@pytest.mark.parametrize(("secret", "kind"), [(SECRET, IN_USE), (TOKEN, "a token of GitHub")])
def test_a_secret_across_the_border_of_two_blocks_is_found_once(
    tmp_path: Path, before: int, secret: str, kind: str
) -> None:
    filler = (b" " * 99 + b"\n") * (3 * BLOCK // 100)
    content = filler[: 2 * BLOCK - before] + secret.encode() + b" " + filler
    line = content.count(b"\n", 0, 2 * BLOCK - before) + 1
    assert search(tmp_path, content, SECRET) == [(line, kind)]


def test_a_value_longer_than_the_overlap_is_found_across_a_border(tmp_path: Path) -> None:
    value = "".join(hashlib.sha256(bytes([index])).hexdigest() for index in range(250))
    content = b" " * (BLOCK - 8_000) + value.encode() + b" " * BLOCK
    assert search(tmp_path, content, value) == [(1, IN_USE)]


def test_a_token_in_a_tar_archive_is_found_and_a_compressed_one_is_not(tmp_path: Path) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        member = tarfile.TarInfo("name")
        member.size = len(TOKEN)
        tar.addfile(member, io.BytesIO(TOKEN.encode()))
    assert search(tmp_path, archive.getvalue()) == [(1, "a token of GitHub")]
    assert search(tmp_path, gzip.compress(archive.getvalue())) == []


@pytest.mark.parametrize("begin", range(8_301, 8_320))
def test_the_end_of_a_long_word_at_a_border_is_no_token(tmp_path: Path, begin: int) -> None:
    word = 12 * b"x" + b"AI" + b"za" + 35 * b"a"
    assert search(tmp_path, b" " * (BLOCK - 2 * begin) + word + b" " * BLOCK) == []
    assert search(tmp_path, b" " * (BLOCK - 2 * begin) + word[1:] + b" " * BLOCK) == [(1, "a key of Google")]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("before", ["", "x" * (BLOCK // 2 - 20)])
@pytest.mark.parametrize("shift", [b"", b"z"])
@pytest.mark.parametrize(("secret", "kind"), [(SECRET, IN_USE), (TOKEN, "a token of GitHub")])
def test_a_secret_in_utf_16_is_found_with_its_line(
    tmp_path: Path, encoding: str, before: str, shift: bytes, secret: str, kind: str
) -> None:
    text = f"one\ntwo\n{before} password: {secret}\nfour"
    assert search(tmp_path, shift + text.encode(encoding), SECRET) == [(3, kind)]


def test_zeros_are_not_text(tmp_path: Path) -> None:
    assert search(tmp_path, bytes(BLOCK + 9) + b"x" * 9 + bytes(BLOCK), SECRET) == []


def test_very_short_values_are_not_searched(tmp_path: Path) -> None:
    assert search(tmp_path, b"abc", "abc") == []


@pytest.mark.parametrize("separator", [b" ", b"\n"])
@pytest.mark.parametrize("secret", [b"aaaaaa", TOKEN.encode(), b"x://a:passw@b"])
def test_a_file_full_of_secrets_is_searched_in_linear_time(tmp_path: Path, secret: bytes, separator: bytes) -> None:
    content = (secret + separator) * (4 * BLOCK // len(secret))
    began = time.monotonic()
    found = search(tmp_path, content, "aaaaaa")
    assert 1 <= len(found) <= 1_000
    assert time.monotonic() - began < 10


def test_the_digest_is_that_of_the_file(tmp_path: Path) -> None:
    content = b"x" * (3 * BLOCK + 7)
    (tmp_path / "file").write_bytes(content)
    searched = Scanner([]).search(tmp_path, "file")
    assert (searched.size, searched.sha256) == (len(content), hashlib.sha256(content).hexdigest())


def test_a_link_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises(OSError, match="symbolic links"):
        Scanner([]).search(tmp_path, "link")


def test_a_link_in_place_of_a_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_text("x")
    (tmp_path / "run/a").mkdir(parents=True)
    (tmp_path / "run/a/link").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        Scanner([]).search(tmp_path / "run", "a/link/file")
    (tmp_path / "run/a/file").write_text("y")
    assert Scanner([]).search(tmp_path / "run", "a/file").size == 1
