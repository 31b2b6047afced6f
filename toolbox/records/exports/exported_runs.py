"""Lists the exported runs of a storage, and deletes the oldest ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from toolbox.ground.model.errors import UsageError
from toolbox.records.exports import manifest
from toolbox.records.exports.manifest import RECORD, Record
from toolbox.records.exports.run_upload import each
from toolbox.records.exports.storage import Storage


@dataclass(frozen=True, slots=True)
class ExportedRuns:
    """The complete runs of a storage.

    Args:
        records: the records of the runs, by folder, newest run first.
        faults: one message for each run whose record is damaged.
    """

    records: dict[str, Record]
    faults: Sequence[str] = ()


def find(storage: Storage) -> ExportedRuns:
    """Return the runs in the folders `PROJECT/RUN` of a storage."""
    projects = storage.folders("")
    runs = [f"{project}/{run}" for project in projects for run in storage.folders(project)]
    return _read(storage, runs)


def find_below(storage: Storage) -> ExportedRuns:
    """Return the runs of a storage that is an output of exports, the folder of a project, or the folder of a run."""
    for folders in ([""], storage.folders("")):
        runs = _read(storage, folders)
        if runs.records or runs.faults:
            return runs
    return find(storage)


def delete_older(storage: Storage, runs: ExportedRuns, moment: datetime) -> list[str]:
    """Delete the runs that were exported before a moment, and return their folders.

    The record is deleted last, so that a deletion that was killed is completed by the next one.
    """
    expired = [folder for folder, record in runs.records.items() if record.exported < moment]
    for folder in expired:
        names = sorted(storage.files(folder).keys() - {RECORD})
        each(lambda name, folder=folder: storage.delete(f"{folder}/{name}"), names)  # type: ignore[misc]
        storage.delete(f"{folder}/{RECORD}")
        storage.delete_empty_folders(folder)
    return expired


def _read(storage: Storage, folders: Sequence[str]) -> ExportedRuns:
    records, faults = {}, []
    for folder, result in zip(folders, each(lambda name: _record(storage, name), folders), strict=True):
        if isinstance(result, Record):
            records[folder] = result
        elif result is not None:
            faults.append(result)
    newest_first = sorted(records.items(), key=lambda item: (item[1].run, item[1].project), reverse=True)
    return ExportedRuns(dict(newest_first), tuple(faults))


def _record(storage: Storage, folder: str) -> Record | str | None:
    """Return the record in a folder; a message if the record is damaged."""
    try:
        return manifest.read_record(storage, folder)
    except UsageError as error:
        return str(error)
