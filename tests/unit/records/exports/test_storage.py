"""Storages of each kind behave alike: a directory, `file://`, and the protocols of S3 and Google Cloud Storage."""

from __future__ import annotations

import gc
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import s3, small_disks
from toolbox.ground.model.errors import ConfigurationError, InfrastructureError, UsageError
from toolbox.records.exports import storage
from toolbox.records.exports.storage import Storage, TooLarge


def test_files_are_written_listed_read_and_deleted(any_storage: Storage) -> None:
    assert any_storage.files("a") == {}
    assert any_storage.folders("") == []
    any_storage.write("a/b/x=1, y.txt", [b"one", b"two"])
    any_storage.write("a/c/empty", [])
    assert any_storage.files("a") == {"b/x=1, y.txt": 6, "c/empty": 0}
    assert (any_storage.folders(""), any_storage.folders("a")) == (["a"], ["b", "c"])
    assert any_storage.read("a/b/x=1, y.txt", 6) == b"onetwo"
    any_storage.write("a/b/x=1, y.txt", [b"new"])
    assert b"".join(any_storage.pieces("a/b/x=1, y.txt", 3)) == b"new"
    any_storage.delete("a/b/x=1, y.txt")
    any_storage.delete("a/b/x=1, y.txt")
    any_storage.delete_empty_folders("a")
    assert any_storage.folders("a") == ["c"]
    assert any_storage.read("a/b/x=1, y.txt", 6) is None


def test_a_file_whose_content_cannot_be_made_is_not_changed(any_storage: Storage) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"a part"
        raise UsageError("the file has changed")

    any_storage.write("a", [b"old"])
    for name in ("a", "b"):
        with pytest.raises(UsageError, match="has changed"):
            any_storage.write(name, pieces())
    gc.collect()
    assert any_storage.files("") == {"a": 3}
    assert any_storage.read("a", 10) == b"old"


def test_a_file_above_the_limit_is_not_read(any_storage: Storage) -> None:
    any_storage.write("a", [b"1234"])
    with pytest.raises(TooLarge, match="more than 3 bytes"):
        any_storage.read("a", 3)


def test_local_files_are_private(tmp_path: Path) -> None:
    storage.opened(str(tmp_path / "out")).write("a/b", [b"x"])
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "out").rglob("*")}
    assert modes == {"a": 0o700, "b": 0o600}


def test_no_access_rule_is_set_on_an_object_store(s3_server: s3.Server) -> None:
    storage.opened("s3://exports/acl").write("a", [b"x"])
    assert (s3_server.puts, s3_server.acls) == (["acl/a"], [])


def test_an_upload_that_is_refused_for_a_moment_is_tried_again(s3_server: s3.Server) -> None:
    s3_server.refuse = 1
    storage.opened("s3://exports/slow").write("a", [b"x"])
    assert s3_server.puts == ["slow/a"]


def test_a_large_file_is_uploaded_in_parts_and_appears_at_their_end(
    s3_server: s3.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "_PART_BYTES", 5 << 20)
    place = storage.opened("s3://exports/parts")

    def pieces(*, is_whole: bool) -> Iterator[bytes]:
        yield from [bytes(1 << 20)] * 12
        assert place.files("") == {}
        if not is_whole:
            raise UsageError("the file has changed")

    with pytest.raises(UsageError):
        place.write("a", pieces(is_whole=False))
    assert place.files("") == {}
    place.write("a", pieces(is_whole=True))
    assert place.files("") == {"a": 12 << 20}
    assert s3_server.puts.count("parts/a") > 2


def test_a_missing_bucket_is_named(s3_server: s3.Server) -> None:
    del s3_server
    with pytest.raises(InfrastructureError, match=r"s3://nowhere/out/a cannot be written.*bucket does not exist"):
        storage.opened("s3://nowhere/out").write("a", [b"x"])


def test_a_store_that_does_not_answer_is_an_error(monkeypatch: pytest.MonkeyPatch, s3_server: s3.Server) -> None:
    del s3_server
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    began = time.monotonic()
    with pytest.raises(InfrastructureError, match=r"s3://exports/out/a cannot be written: .*127\.0\.0\.1:9"):
        storage.opened("s3://exports/out").write("a", [b"x"])
    assert time.monotonic() - began < 60


def test_a_full_disk_is_named_and_leaves_no_part_of_a_file(tmp_path: Path) -> None:
    with small_disks.mounted(tmp_path / "disk", 64 << 10) as disk:
        with pytest.raises(InfrastructureError, match=r"disk/a cannot be written: No space left on device"):
            storage.opened(str(disk)).write("a", [bytes(1 << 20)])
        assert list(disk.iterdir()) == []


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("s3://", "names no bucket"),
        ("s3://key:secret@bucket/x", "without a user and a password"),
        ("s3:///key:secret@bucket", "without a user and a password"),
        ("file://user:pw@host/x", "has three slashes"),
        ("s3://[x/y", "is not a URL"),
        ("memory://x/y", "are lost"),
        ("simplecache::s3://bucket/x", "one URL"),
        ("nonsense://bucket/x", "is not a URL for exports"),
        ("file://host/x", "three slashes"),
        ("nowhere:/x", r"nowhere:\.\.\. is neither a URL nor a path"),
        ("s3:/key:secret@bucket", r"as \./s3:\.\.\."),
        ("host:folder", "neither a URL nor a path"),
        ("s4://bucket/x", "Protocol not known: s4"),
    ],
)
def test_a_wrong_url_is_explained(address: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        storage.opened(address)
    assert "secret" not in str(caught.value)


def test_a_missing_library_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(ConfigurationError, match=r"the URL s3://bucket/x needs s3fs, .*\[storage\]"):
        storage.opened("s3://bucket/x")


@pytest.mark.parametrize("missing", ["fsspec", "s3fs"])
def test_an_unknown_scheme_asks_for_no_library_of_another_scheme(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(UsageError, match=r"did you mean s3|Protocol not known: s4") as caught:
        storage.opened("s4://bucket/x")
    assert "s3fs" not in str(caught.value)


def test_a_path_may_have_a_colon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for address in ("./a:b", f"{tmp_path}/a:b", "x/a:b", "12:30"):
        assert storage.opened(address).address == str(Path(address))


def test_a_missing_driver_of_another_scheme_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"needs a driver that is not installed: .*adlfs"):
        storage.opened("abfs://bucket/x")


def test_links_are_neither_followed_nor_listed_as_folders(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/file").write_text("text")
    out = storage.opened(str(tmp_path / "out"))
    out.write("a/b", [b"x"])
    (tmp_path / "out/link").symlink_to(tmp_path / "elsewhere")
    assert out.folders("") == ["a"]
    assert out.files("") == {"a/b": 1, "link": -1}
    with pytest.raises(UsageError, match="symbolic link"):
        out.write("link/x", [b"x"])
    with pytest.raises(UsageError, match="symbolic link"):
        out.delete("link/file")
    assert (tmp_path / "elsewhere/file").read_text() == "text"
