"""An export is data from outside: a hostile one is refused, and writes nothing elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.records.exports.conftest import RUN, list_of, record_of
from toolbox.ground.model.errors import UsageError
from toolbox.records.exports import exported_runs, manifest, run_download, storage
from toolbox.records.exports.run_upload import upload
from toolbox.records.exports.storage import Storage

FOLDER = f"small/{RUN}"


@pytest.fixture
def exported(any_storage: Storage, run: Path) -> Storage:
    files = list_of(run)
    upload(any_storage, run, record_of(files), files)
    return any_storage


@pytest.fixture
def local(tmp_path: Path, run: Path) -> Storage:
    place = storage.opened(str(tmp_path / "out"))
    files = list_of(run)
    upload(place, run, record_of(files), files)
    return place


def fetch(place: Storage, output: Path) -> Path:
    record = manifest.read_record(place, FOLDER)
    assert record is not None
    return run_download.download(place, FOLDER, record, output)


def forge(place: Storage, files: dict[str, Any]) -> None:
    """Replace the list of files, with a record that matches the new list."""
    content = json.dumps({"files": files}).encode()
    place.write(f"{FOLDER}/{manifest.FILES}", [content])


def test_an_exported_run_is_read_back_as_it_was(exported: Storage, run: Path, tmp_path: Path) -> None:
    directory = fetch(exported, tmp_path / "back")
    assert list_of(directory) == list_of(run)
    assert directory == tmp_path / "back" / FOLDER


def test_a_file_with_another_content_is_refused(local: Storage, tmp_path: Path) -> None:
    local.write(f"{FOLDER}/summary.json", [b"[]"])
    with pytest.raises(UsageError, match=r"summary.json is damaged"):
        fetch(local, tmp_path / "back")
    assert not (tmp_path / "back" / FOLDER).exists()


def test_a_file_that_is_larger_than_listed_is_not_read_to_its_end(local: Storage, tmp_path: Path) -> None:
    local.write(f"{FOLDER}/summary.json", [bytes(10 << 20)])
    with pytest.raises(UsageError, match="has more than 2 bytes"):
        fetch(local, tmp_path / "back")


def test_a_list_that_does_not_belong_to_the_record_is_refused(local: Storage, tmp_path: Path) -> None:
    forge(local, {"a": {"size": 1, "sha256": 64 * "0"}})
    with pytest.raises(UsageError, match="is damaged, or is being exported again"):
        fetch(local, tmp_path / "back")


@pytest.mark.parametrize(
    "name",
    ["../x", "/etc/x", "a/../../x", "a//b", "./a", "a\0b", "a\nb", "", ".", "x" * 1000, "x" * 256, "a\\b", "\ud800"],
)
def test_a_path_that_leads_elsewhere_is_refused(local: Storage, name: str, tmp_path: Path) -> None:
    forge(local, {name: {"size": 1, "sha256": 64 * "0"}})
    with pytest.raises(UsageError, match=r"export_files\.json is damaged"):
        fetch(local, tmp_path / "back")
    assert not (tmp_path / "back" / FOLDER).exists()


def test_a_file_in_a_file_is_refused(local: Storage, tmp_path: Path) -> None:
    forge(local, {name: {"size": 1, "sha256": 64 * "0"} for name in ("a", "a/b")})
    with pytest.raises(UsageError, match="a file and a folder of the same name"):
        fetch(local, tmp_path / "back")


def test_a_missing_file_is_named(exported: Storage, tmp_path: Path) -> None:
    exported.delete(f"{FOLDER}/summary.json")
    with pytest.raises(UsageError, match=r"summary\.json is missing"):
        fetch(exported, tmp_path / "back")
    assert not (tmp_path / "back" / FOLDER).exists()


def test_a_huge_size_is_refused_before_anything_is_read(local: Storage, run: Path, tmp_path: Path) -> None:
    files = list_of(run)
    huge = {"huge": {"size": run_download.MAX_BYTES + 1, "sha256": 64 * "0"}}
    forged = manifest.FileList.model_validate({"files": {**files.model_dump()["files"], **huge}})
    local.write(f"{FOLDER}/{manifest.FILES}", [manifest.content_of(forged)])
    local.write(f"{FOLDER}/{manifest.RECORD}", [manifest.content_of(record_of(forged))])
    with pytest.raises(UsageError, match="more than 20 GiB"):
        fetch(local, tmp_path / "back")


def test_an_existing_directory_is_kept_if_it_has_the_same_files(local: Storage, tmp_path: Path) -> None:
    directory = fetch(local, tmp_path / "back")
    assert fetch(local, tmp_path / "back") == directory
    (directory / "summary.json").write_text("changed")
    with pytest.raises(UsageError, match="exists already"):
        fetch(local, tmp_path / "back")


def test_a_link_in_an_export_is_not_read(local: Storage, tmp_path: Path) -> None:
    file = tmp_path / "out" / FOLDER / "summary.json"
    file.unlink()
    file.symlink_to("/etc/passwd")
    with pytest.raises(UsageError, match=r"summary\.json is missing, or is not a regular file"):
        fetch(local, tmp_path / "back")


@pytest.mark.parametrize(
    "change",
    [
        {"project": "../up"},
        {"run": "<b>x</b>"},
        {"count": -1},
        {"presets": ["x"] * 1000},
        {"format": 2},
        {"started": "0001-01-01T00:00:00+23:59"},
        {"exported": "9999-12-31T23:59:59-23:59"},
    ],
)
def test_a_damaged_record_is_a_fault_of_its_run_only(local: Storage, run: Path, change: dict[str, Any]) -> None:
    record = json.loads(manifest.content_of(record_of(list_of(run))))
    local.write("small/other/export.json", [json.dumps(record | change).encode()])
    runs = exported_runs.find(local)
    assert list(runs.records) == [FOLDER]
    reason = "has a format that only a later version" if "format" in change else "is damaged"
    assert [(f"other/export.json {reason}" in fault) for fault in runs.faults] == [True]


def test_a_record_of_another_run_is_a_fault(local: Storage, run: Path) -> None:
    local.write("small/other/export.json", [manifest.content_of(record_of(list_of(run)))])
    (fault,) = exported_runs.find(local).faults
    assert "describes the run" in fault


def test_a_huge_record_is_a_fault(local: Storage) -> None:
    local.write("small/other/export.json", [bytes(1 << 20)])
    (fault,) = exported_runs.find(local).faults
    assert "more than 262144 bytes" in fault
