"""An upload writes only what is missing or has changed, and a run is recorded only when it is complete."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.servers import small_disks
from tests.unit.records.exports.conftest import RUN, list_of, record_of
from toolbox.ground.model.errors import InfrastructureError, UsageError
from toolbox.records.exports import manifest, run_upload, storage
from toolbox.records.exports.run_upload import Uploaded, upload
from toolbox.records.exports.storage import LocalStorage, Storage

FOLDER = f"small/{RUN}"


class FailingStorage(LocalStorage):
    """A directory that refuses all files after the third."""

    def write(self, name: str, pieces: Iterable[bytes]) -> None:
        if name.endswith("3.txt"):
            raise InfrastructureError("the storage refuses")
        LocalStorage.write(self, name, pieces)


def put(place: Storage, run: Path) -> Uploaded:
    files = list_of(run)
    return upload(place, run, record_of(files), files)


def test_a_run_is_written_once_and_then_only_its_changes(any_storage: Storage, run: Path) -> None:
    assert put(any_storage, run) == Uploaded(written=6)
    assert put(any_storage, run) == Uploaded(present=6)
    (run / "000__test/1.txt").write_text("text X")  # of the same size
    (run / "000__test/2.txt").unlink()
    (run / "new").write_text("new")
    assert put(any_storage, run) == Uploaded(written=2, present=4, deleted=2)
    files = list_of(run)
    stored = any_storage.files(FOLDER)
    assert stored.keys() == files.files.keys() | {manifest.RECORD, manifest.FILES}
    assert any_storage.read(f"{FOLDER}/000__test/1.txt", 100) == b"text X"
    assert manifest.read_record(any_storage, FOLDER) == record_of(files)


def test_an_upload_that_failed_has_no_record_and_is_completed(tmp_path: Path, run: Path) -> None:
    with pytest.raises(InfrastructureError, match="refuses"):
        put(FailingStorage(tmp_path / "out"), run)
    whole = storage.opened(str(tmp_path / "out"))
    assert manifest.read_record(whole, FOLDER) is None
    there = len(whole.files(FOLDER)) - 1  # without the list
    assert put(whole, run) == Uploaded(written=6 - there, present=there)


def test_a_file_of_an_upload_before_the_killed_one_is_not_mistaken_for_the_new_one(tmp_path: Path, run: Path) -> None:
    put(storage.opened(str(tmp_path / "out")), run)
    (run / "000__test/3.txt").write_text("text Y")
    with pytest.raises(InfrastructureError):
        put(FailingStorage(tmp_path / "out"), run)
    whole = storage.opened(str(tmp_path / "out"))
    put(whole, run)
    assert whole.read(f"{FOLDER}/000__test/3.txt", 100) == b"text Y"


def test_temporary_files_of_a_killed_upload_are_removed(tmp_path: Path, run: Path) -> None:
    place = storage.opened(str(tmp_path / "out"))
    place.write(f"{FOLDER}/.{manifest.FILES}.abc123", [b"torn"])
    assert put(place, run) == Uploaded(written=6, deleted=1)
    place.write(f"{FOLDER}/000__test/.1.txt.abc123", [b"torn"])
    assert put(place, run) == Uploaded(present=6, deleted=1)


def test_a_run_whose_deletion_was_killed_can_be_exported_again(any_storage: Storage, run: Path) -> None:
    put(any_storage, run)
    any_storage.delete(f"{FOLDER}/{manifest.FILES}")
    assert put(any_storage, run) == Uploaded(written=6, deleted=6)


def test_a_folder_that_no_export_wrote_is_not_changed(tmp_path: Path, run: Path) -> None:
    place = storage.opened(str(tmp_path / "out"))
    place.write(f"{FOLDER}/thesis.tex", [b"text"])
    with pytest.raises(UsageError, match="exists already, and is no export"):
        put(place, run)
    assert place.files("") == {f"{FOLDER}/thesis.tex": 4}


def test_a_file_that_changed_after_the_search_is_not_exported(any_storage: Storage, run: Path) -> None:
    files = list_of(run)
    (run / "000__test/1.txt").write_text("a secret that the search has not seen")
    with pytest.raises(InfrastructureError, match=r"1\.txt has changed since it was searched"):
        upload(any_storage, run, record_of(files), files)
    assert any_storage.read(f"{FOLDER}/000__test/1.txt", 100) is None
    assert manifest.read_record(any_storage, FOLDER) is None


def test_ten_thousand_small_files_are_written(tmp_path: Path, run: Path) -> None:
    for index in range(10_000):
        (run / f"{index}").write_text(str(index))
    place = storage.opened(str(tmp_path / "out"))
    assert put(place, run) == Uploaded(written=10_006)
    assert put(place, run) == Uploaded(present=10_006)


def test_a_full_disk_loses_nothing(tmp_path: Path, run: Path) -> None:
    (run / "large").write_bytes(bytes(200 << 10))
    with small_disks.mounted(tmp_path / "disk", 100 << 10) as disk:
        place = storage.opened(str(disk / "out"))
        with pytest.raises(InfrastructureError, match="No space left on device"):
            put(place, run)
        (run / "large").unlink()
        assert put(place, run).written + put(place, run).present >= 6
        assert manifest.read_record(place, FOLDER) is not None


def test_no_call_begins_after_an_error() -> None:
    calls = []

    def call(number: int) -> None:
        calls.append(number)
        raise InfrastructureError("refused")

    with pytest.raises(InfrastructureError, match="refused"):
        run_upload.each(call, range(10_000))
    assert len(calls) < 10_000
