"""Storages of each kind, and a small exported run."""

from __future__ import annotations

import hashlib
import uuid
from pathlib import Path

import pytest

from tests.servers.storages import _gcs_address, _s3_server, gcs_server, s3_server  # noqa: F401  # fixtures
from toolbox.ground.model.verdicts import Verdict
from toolbox.records.exports import manifest, storage
from toolbox.records.exports.manifest import ExportedFile, FileList, Record
from toolbox.records.exports.storage import Storage
from toolbox.records.runs.run_state import State

RUN = "20261123-050000-abcd"


@pytest.fixture(params=["path", "file", "s3", "gs"])
def any_storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """Return an empty storage of each kind."""
    if request.param in {"s3", "gs"}:
        request.getfixturevalue("s3_server" if request.param == "s3" else "gcs_server")
        return storage.opened(f"{request.param}://exports/{uuid.uuid4().hex}")
    path = str(tmp_path / "out")
    return storage.opened(path if request.param == "path" else f"file://{path}")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a directory with the files of a run."""
    directory = tmp_path / "artifacts/small" / RUN
    (directory / "000__test").mkdir(parents=True)
    for index in range(5):
        (directory / f"000__test/{index}.txt").write_text(f"text {index}")
    (directory / "summary.json").write_text("{}")
    return directory


def list_of(directory: Path) -> FileList:
    """Return the list of the files of a directory."""
    contents = {
        file.relative_to(directory).as_posix(): file.read_bytes()
        for file in sorted(directory.rglob("*"))
        if file.is_file()
    }
    return FileList(
        files={
            name: ExportedFile(size=len(content), sha256=hashlib.sha256(content).hexdigest())
            for name, content in contents.items()
        }
    )


def record_of(files: FileList, *, run: str = RUN, project: str = "small", **changes: object) -> Record:
    """Return the record of a run with these files."""
    fields = {
        "project": project,
        "run": run,
        "state": State.FINISHED,
        "verdict": Verdict.PASSED,
        "presets": ["smoke"],
        "revision": "0123456789abcdef",
        "started": "2026-11-23T05:00:00Z",
        "seconds": 12.5,
        "is_complete": True,
        "withheld": [],
        "withheld_count": 0,
        "renamed": [],
        "renamed_count": 0,
        "allowed": [],
        "allowed_count": 0,
        "reports": [],
        "count": len(files.files),
        "bytes": 1,
        "list_sha256": manifest.digest_of(files),
        "exported": "2026-11-23T06:00:00Z",
    }
    return Record.model_validate(fields | changes)
