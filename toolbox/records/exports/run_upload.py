"""Writes one run into a storage, so that an upload that was killed is completed by the next one.

The order of the writes makes sure that a file which is present always has the digest in `export_files.json`, and that
`export.json` exists only while all files do: the old record is deleted, then the files that have changed or vanished,
then the new list is written, then the missing files, then the new record. Two uploads of the same run at the same time
are not supported.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from toolbox.ground.model.errors import InfrastructureError, UsageError
from toolbox.records.exports import manifest, secret_scan
from toolbox.records.exports.manifest import FILES, RECORD, ExportedFile, FileList, Record
from toolbox.records.exports.storage import Storage

log = logging.getLogger(__name__)

_THREADS: Final = 16
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Uploaded:
    """What an upload changed.

    Args:
        written: the number of files that were uploaded.
        present: the number of files that the storage already had.
        deleted: the number of files that the storage had, and that the run does not have in this form.
    """

    written: int = 0
    present: int = 0
    deleted: int = 0


def upload(storage: Storage, root: Path, record: Record, files: FileList) -> Uploaded:
    """Write a run into `PROJECT/RUN` of a storage. What is there already and has not changed is not written again.

    Raises:
        UsageError: the folder has files, and no upload of Topgallant has written them.
        InfrastructureError: a file cannot be read or written. The next upload continues.
    """
    folder = f"{record.project}/{record.run}"
    stored = storage.files(folder)
    earlier = manifest.read_files(storage, folder) or FileList(files={})
    if not stored.keys() & {FILES, RECORD} and any(f".{FILES}" not in name for name in stored):
        raise UsageError(f"{storage.below(folder)} exists already, and is no export: name another place, or remove it")
    present = {
        name for name, file in files.files.items() if stored.get(name) == file.size and earlier.files.get(name) == file
    }
    stale = stored.keys() - present - {FILES, RECORD}
    missing = [name for name in files.files if name not in present]
    if not missing and not stale and _is_recorded(storage, folder, record):
        return Uploaded(present=len(present))
    storage.delete(f"{folder}/{RECORD}")
    each(lambda name: storage.delete(f"{folder}/{name}"), sorted(stale))
    if earlier != files:
        storage.write(f"{folder}/{FILES}", [manifest.content_of(files)])
    each(
        lambda name: storage.write(f"{folder}/{name}", _verified(root, files.original(name), files.files[name])),
        missing,
    )
    storage.write(f"{folder}/{RECORD}", [manifest.content_of(record)])
    return Uploaded(len(missing), len(present), len(stale))


def each(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Call a function for each item in a few threads, and return the results in the order of the items.

    After an error, no further call begins, and the first error is raised.
    """
    failed = threading.Event()

    def call(item: Item) -> Result:
        if failed.is_set():
            raise CancelledError
        try:
            return function(item)
        except BaseException:
            failed.set()
            raise

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="export") as threads:
        try:
            calls = [threads.submit(call, item) for item in items]
            errors = [error for done in calls if (error := done.exception()) is not None]
        except BaseException:
            failed.set()
            raise
    for error in errors:
        if not isinstance(error, CancelledError):
            raise error
    return [done.result() for done in calls]


def _is_recorded(storage: Storage, folder: str, record: Record) -> bool:
    """Return whether the storage has a record with this content."""
    try:
        earlier = manifest.read_record(storage, folder)
    except UsageError as error:
        log.warning("%s: it is written again", error)
        return False
    return earlier is not None and earlier.has_same_content(record)


def _verified(root: Path, name: str, expected: ExportedFile) -> Iterator[bytes]:
    """Yield the content of a file. Raise at its end if the content is not the searched content."""
    digest = hashlib.sha256()
    try:
        for block in secret_scan.blocks(root, name):
            digest.update(block)
            yield block
    except OSError as error:
        raise InfrastructureError(f"{root / name} cannot be read: {error.strerror}") from None
    if digest.hexdigest() != expected.sha256:
        raise InfrastructureError(
            f"{root / name} has changed since it was searched for secrets: export the run again when nothing writes it"
        )
