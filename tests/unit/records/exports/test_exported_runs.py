"""Exported runs are found at each level, and only expired runs are deleted."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.unit.records.exports.conftest import RUN, list_of, record_of
from toolbox.records.exports import exported_runs, storage
from toolbox.records.exports.run_upload import upload
from toolbox.records.exports.storage import Storage

NEWER = "20261124-050000-abcd"


@pytest.fixture
def filled(any_storage: Storage, run: Path) -> Storage:
    """Return a storage with an old run, a new run, and files that are not of exports."""
    files = list_of(run)
    upload(any_storage, run, record_of(files), files)
    newer = record_of(files, run=NEWER, exported="2026-11-24T06:00:00Z")
    upload(any_storage, run, newer, files)
    any_storage.write("small/notes/thesis.tex", [b"text"])
    any_storage.write("readme", [b"text"])
    return any_storage


def test_runs_are_found_newest_first(filled: Storage) -> None:
    assert list(exported_runs.find(filled).records) == [f"small/{NEWER}", f"small/{RUN}"]


@pytest.mark.parametrize(("place", "count"), [("", 2), ("/small", 2), (f"/small/{RUN}", 1), ("/small/notes", 0)])
def test_runs_are_found_below_an_output_a_project_and_a_run(filled: Storage, place: str, count: int) -> None:
    below = storage.opened(f"{filled.address}{place}")
    assert len(exported_runs.find_below(below).records) == count


def test_only_runs_that_were_exported_too_long_ago_are_deleted(filled: Storage) -> None:
    runs = exported_runs.find(filled)
    moment = datetime(2026, 11, 24, tzinfo=UTC)
    assert exported_runs.delete_older(filled, runs, moment) == [f"small/{RUN}"]
    assert list(exported_runs.find(filled).records) == [f"small/{NEWER}"]
    assert filled.files("").keys() >= {"readme", "small/notes/thesis.tex"}
    assert filled.folders("small") == [NEWER, "notes"]
