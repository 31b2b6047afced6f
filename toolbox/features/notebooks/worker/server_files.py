"""Copies files to a Jupyter server and back, with its contents API. The names that the server sends are checked."""

from __future__ import annotations

import base64
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path, PurePosixPath
from typing import Any, Final

from toolbox.features.notebooks.worker.execution_place import PlaceError
from toolbox.features.notebooks.worker.failure_texts import one_line
from toolbox.features.notebooks.worker.notebook_results import Fault
from toolbox.features.notebooks.worker.server_rest import ReplyError, ServerRest, quoted

MAX_BYTES: Final = 256 << 20
"""The largest size of all files that are copied in one direction."""
MAX_FILES: Final = 2000
_CHUNK: Final = 4 << 20
_LAST_CHUNK: Final = -1
_DEEPEST: Final = 20
_CONTENTS: Final = "/api/contents"


@dataclass(frozen=True)
class RemoteFile:
    """A file on the server.

    Args:
        path: the path below the directory.
        version: changes when the file changes.
    """

    path: str
    size: int
    version: tuple[str, int]


def create_directory(rest: ServerRest, path: str) -> None:
    """Create a directory on the server.

    Raises:
        PlaceError: the server cannot create it.
    """
    _save(rest, path, {"type": "directory"})


def upload(rest: ServerRest, source: Path, directory: str) -> dict[str, RemoteFile]:
    """Copy the files of a directory to the server, and return the new files on the server, by path.

    Raises:
        PlaceError: there are too many files, or the server cannot store them.
    """
    create_directory(rest, directory)
    files, size = 0, 0
    for path in _local_files(source):
        name = path.relative_to(source).as_posix()
        if path.is_dir():
            create_directory(rest, f"{directory}/{name}")
            continue
        files, size = files + 1, size + path.stat().st_size
        if files > MAX_FILES or size > MAX_BYTES:
            limit = f"{MAX_FILES} files and {MAX_BYTES >> 20} MiB"
            raise PlaceError(Fault.SERVER, f"the directory of the notebook exceeds the limit of {limit} for a server")
        _send(rest, path, f"{directory}/{name}")
    return {file.path: file for file in listed(rest, directory)}


def fetch(rest: ServerRest, directory: str, target: Path, known: dict[str, RemoteFile]) -> list[str]:
    """Copy new and changed files of a directory of the server to this machine, and return the files that were left out.

    Args:
        known: the files that were uploaded.

    Raises:
        PlaceError: the server does not answer.
    """
    left_out, size, files = [], 0, 0
    for file in listed(rest, directory):
        before = known.get(file.path)
        if before is not None and before.version == file.version:
            continue
        size, files = size + file.size, files + 1
        if size > MAX_BYTES or files > MAX_FILES:
            left_out.append(file.path)
            continue
        try:
            # Files are not read from `/files/`, because some hubs serve this path from another host.
            content = _content(rest, f"{directory}/{file.path}", file.size)
            _write(content, target, file.path)
        except (ReplyError, OSError, ValueError) as error:
            left_out.append(f"{file.path} ({one_line(str(error), 200)})")
    return left_out


def _write(content: bytes, target: Path, path: str) -> None:
    """Write a file below a directory, and follow no links."""
    local = target / path
    local.parent.mkdir(parents=True, exist_ok=True)
    if not local.parent.resolve().is_relative_to(target.resolve()):
        raise OSError("the directory of the file is a link")
    local.unlink(missing_ok=True)  # it may be a link
    local.write_bytes(content)


def delete(rest: ServerRest, directory: str) -> None:
    """Delete a directory of the server. The contents API does not see hidden files, which may remain."""
    folders = {PurePosixPath(directory)}
    for file in listed(rest, directory):
        path = PurePosixPath(directory, file.path)
        rest.content("DELETE", f"{_CONTENTS}/{quoted(str(path))}")
        folders |= {parent for parent in path.parents if parent.is_relative_to(directory)}
    for folder in sorted(folders, reverse=True):
        rest.content("DELETE", f"{_CONTENTS}/{quoted(str(folder))}")


def listed(rest: ServerRest, directory: str) -> list[RemoteFile]:
    """Return the files below a directory of the server, without hidden files.

    Raises:
        PlaceError: the server cannot list the files.
    """
    return list(_listed(rest, directory, PurePosixPath(), _DEEPEST))


def _listed(rest: ServerRest, directory: str, below: PurePosixPath, depth: int) -> Iterator[RemoteFile]:
    path = str(PurePosixPath(directory, below))
    try:
        document = rest.json("GET", f"{_CONTENTS}/{quoted(path)}?type=directory&content=1")
    except ReplyError as error:
        if error.status == HTTPStatus.NOT_FOUND:  # the notebook has removed the directory
            return
        raise PlaceError(Fault.SERVER, f"the Jupyter server cannot list {path}: {error}") from None
    content = document.get("content") if isinstance(document, dict) else None
    for model in content if isinstance(content, list) else ():
        name = model.get("name") if isinstance(model, dict) else None
        if not isinstance(name, str) or not is_safe(name):
            continue
        if model.get("type") == "directory":
            if depth:
                yield from _listed(rest, directory, below / name, depth - 1)
        else:
            yield _remote_file(str(below / name), model)


def is_safe(name: str) -> bool:
    """Return whether a name from the server is the name of a file and not a path."""
    return name not in {"", ".", ".."} and "/" not in name and "\0" not in name and len(os.fsencode(name)) < 256  # noqa: PLR2004


def _remote_file(path: str, model: dict[str, Any]) -> RemoteFile:
    size, changed = model.get("size"), model.get("last_modified")
    number = size if isinstance(size, int) and size >= 0 else 0
    return RemoteFile(path, number, (str(changed), number))


def _content(rest: ServerRest, path: str, size: int) -> bytes:
    most = 4 * max(size, 1 << 16) + (1 << 20)  # the content may be base64, and the file may have grown
    address = f"{_CONTENTS}/{quoted(path)}?type=file&format=base64&content=1"
    document = json.loads(rest.content("GET", address, most=most))
    text = document.get("content") if isinstance(document, dict) else None
    if not isinstance(text, str):
        raise ValueError("the server sends no content")  # noqa: TRY004 - the caller handles it as a fault of the file
    return base64.b64decode(text)


def _send(rest: ServerRest, path: Path, remote: str) -> None:
    """Send a file, in chunks if it is large."""
    with path.open("rb") as file:
        left, number = path.stat().st_size, 0
        while True:
            content = file.read(_CHUNK)
            left -= len(content)
            is_last = left <= 0 or not content
            model: dict[str, Any] = {"type": "file", "format": "base64", "content": base64.b64encode(content).decode()}
            number += 1
            if not (is_last and number == 1):
                model["chunk"] = _LAST_CHUNK if is_last else number
            _save(rest, remote, model)
            if is_last:
                return


def _save(rest: ServerRest, path: str, model: dict[str, Any]) -> None:
    try:
        rest.json("PUT", f"{_CONTENTS}/{quoted(path)}", model)
    except ReplyError as error:
        is_refused = error.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        hint = ": a proxy of the hub limits the size of requests" if is_refused else ""
        raise PlaceError(Fault.SERVER, f"the Jupyter server cannot store {path}: {error}{hint}") from None


def _local_files(source: Path) -> Iterator[Path]:
    """Yield the directories and regular files below a directory, parents first, without links and special files."""
    for folder, folders, names in os.walk(source):
        folders[:] = sorted(name for name in folders if name != "__pycache__" and not Path(folder, name).is_symlink())
        yield from (Path(folder, name) for name in folders)
        for name in sorted(names):
            path = Path(folder, name)
            if stat.S_ISREG(path.lstat().st_mode):
                yield path
