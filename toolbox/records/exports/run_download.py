"""Reads an exported run back into a directory of this machine.

An export is data from outside: `manifest.py` refuses paths that lead elsewhere, each file has at most its listed size,
and its content must have the listed digest. Files that are not listed are not read.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from toolbox.ground.kit import safe_files
from toolbox.ground.model.errors import InfrastructureError, UsageError
from toolbox.ground.system import filesystem
from toolbox.records.exports import manifest
from toolbox.records.exports.manifest import ExportedFile, FileList, Record
from toolbox.records.exports.run_upload import each
from toolbox.records.exports.storage import Storage

MAX_BYTES: Final = 20 << 30


def download(storage: Storage, folder: str, record: Record, output: Path) -> Path:
    """Read a run into `output/PROJECT/RUN`, and return this directory. A directory with the same files is kept.

    The files get the paths that they had in the run.

    Raises:
        UsageError: the directory has other files, or the export is damaged, too large, or being replaced.
        InfrastructureError: the storage does not answer, or a file cannot be written.
    """
    directory = output / record.project / record.run
    files = manifest.read_files(storage, folder)
    if files is None or manifest.digest_of(files) != record.list_sha256:
        raise UsageError(f"{storage.below(folder)} is damaged, or is being exported again: {manifest.FILES} differs")
    if directory.is_symlink() or directory.exists():
        if _has_all(directory, files):
            return directory
        raise UsageError(f"{directory} exists already: name another --directory, or remove it")
    if sum(file.size for file in files.files.values()) > MAX_BYTES:
        raise UsageError(f"{storage.below(folder)} has more than {MAX_BYTES >> 30} GiB, which is not allowed")
    try:
        filesystem.make_directory(directory)
        each(lambda item: _fetch(storage, folder, *item, directory / files.original(item[0])), files.files.items())
    except BaseException as error:
        shutil.rmtree(directory, ignore_errors=True)
        if isinstance(error, OSError):
            raise InfrastructureError(f"{directory} cannot be written: {error.strerror}") from None
        raise
    return directory


def _has_all(directory: Path, files: FileList) -> bool:
    """Return whether a directory has all files of an export."""
    return all(
        _digest(directory, files.original(name)) == (file.size, file.sha256) for name, file in files.files.items()
    )


def _digest(directory: Path, name: str) -> tuple[int, str]:
    try:
        with os.fdopen(safe_files.open_regular(str(directory / name)), "rb") as stream:
            return os.fstat(stream.fileno()).st_size, hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return -1, ""


def _fetch(storage: Storage, folder: str, name: str, expected: ExportedFile, target: Path) -> None:
    filesystem.write_pieces(target, _verified(storage, f"{folder}/{name}".lstrip("/"), expected))


def _verified(storage: Storage, name: str, expected: ExportedFile) -> Iterator[bytes]:
    digest = hashlib.sha256()
    for piece in storage.pieces(name, expected.size):
        digest.update(piece)
        yield piece
    if digest.hexdigest() != expected.sha256:
        raise UsageError(f"{storage.below(name)} is damaged: its content is not that of the export")
