"""Writes the files of a run: only the owner can read them, and a reader never sees an incomplete file."""

from __future__ import annotations

import errno
import json
import os
import stat
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from toolbox.ground.kit import safe_files

PRIVATE_FILE: Final = 0o600
PRIVATE_DIRECTORY: Final = 0o700
_MAX_RECORD: Final = 1 << 28  # bytes


def make_directory(path: Path) -> Path:
    """Create a private directory and its missing parents, which are private too, and return it."""
    try:
        path.mkdir(exist_ok=True, mode=PRIVATE_DIRECTORY)
    except FileNotFoundError:  # the option `parents` of `mkdir` would give the parents the mode that the umask allows
        make_directory(path.parent)
        path.mkdir(exist_ok=True, mode=PRIVATE_DIRECTORY)
    return path


def make_durable_directory(path: Path) -> Path:
    """Create a private directory and its missing parents, and return when the new directories are on the disk."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    make_directory(path)
    for folder in missing:
        sync_directory(folder.parent)
    return path


def sync_directory(path: Path) -> None:
    """Wait until created, renamed and removed names in a directory are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str, *, durable: bool = False) -> Path:
    """Write a private text file atomically: a reader sees either the old text or the new text.

    Args:
        durable: whether to return only when the text is on the disk, as `write_bytes` explains.
    """
    return write_bytes(path, encode(text), durable=durable)


def encode(text: str) -> bytes:
    """Encode `text` as UTF-8. Surrogates, which represent undecodable bytes of file names, are escaped."""
    return text.encode(errors="backslashreplace")


def write_bytes(path: Path, content: bytes, *, durable: bool = False) -> Path:
    """Write a private file atomically.

    Args:
        durable: whether to return only when the content is on the disk, so that a power cut leaves the old file or the
            new file. This is slow: use it only for files that a resumed run reads.
    """
    return write_pieces(path, [content], durable=durable)


def write_pieces(path: Path, pieces: Iterable[bytes], *, durable: bool = False, mode: int = PRIVATE_FILE) -> Path:
    """Write a file atomically from pieces of content. The pieces may be read from the old file.

    Args:
        durable: whether to return only when the content is on the disk, as `write_bytes` explains.
    """
    if durable:
        make_durable_directory(path.parent)
    descriptor, name = _open_temporary(path)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.writelines(pieces)
            if mode != PRIVATE_FILE:  # mkstemp has already set PRIVATE_FILE
                os.fchmod(stream.fileno(), mode)
            if durable:
                stream.flush()
                os.fsync(stream.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    if durable:
        sync_directory(path.parent)
    return path


def _open_temporary(path: Path) -> tuple[int, str]:
    """Create a private file beside `path`, and return its descriptor and its path. Create missing directories."""
    folder, name = os.path.split(path)
    prefix = f".{name[:40]}."
    try:
        return tempfile.mkstemp(dir=folder, prefix=prefix)
    except FileNotFoundError:
        make_directory(path.parent)
        return tempfile.mkstemp(dir=folder, prefix=prefix)


def write_derived(path: Path, render: Callable[[], str]) -> Path:
    """Write a file that is derived from other files. If an error occurs, remove the outdated file."""
    try:
        return write_text(path, render())
    except BaseException:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        raise


def append_text(path: Path, text: str) -> None:
    """Append `text` to a private file."""
    with open(path, "a", encoding="utf-8", errors="backslashreplace", opener=private_opener) as stream:
        stream.write(text)


def size(path: Path) -> int:
    """Return the size of a file in bytes; 0 if the file is missing."""
    try:
        return path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return 0


def write_at(path: Path, offset: int, content: bytes) -> None:
    """Write bytes into a private file at an offset."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        while content:
            written = os.pwrite(descriptor, content, offset)
            content, offset = content[written:], offset + written
    finally:
        os.close(descriptor)


def open_lock(path: Path, mode: int = PRIVATE_FILE) -> int:
    """Open a lock file and return its descriptor. Create the file if it is missing.

    In a directory where other users can write, another user may have replaced the file. So symbolic links are not
    followed, and the file must be a regular file without further hard links. In a directory where only its owner can
    write, the file must belong to this user, to root, or to the owner of the directory.

    Raises:
        OSError: the file does not meet these conditions, or cannot be opened.
    """
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        # Try without O_CREAT first: with O_CREAT, the kernel may refuse to open another user's existing file in a
        # shared directory (sysctl fs.protected_regular).
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        with suppress(FileExistsError):  # another process has just created the file
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, mode)
            os.fchmod(descriptor, mode)  # the umask may have removed permissions
            return descriptor
        descriptor = os.open(path, flags)
    if fault := _lock_fault(os.fstat(descriptor), path.parent.stat()):
        os.close(descriptor)
        raise OSError(errno.EPERM, fault)
    return descriptor


def _lock_fault(file: os.stat_result, directory: os.stat_result) -> str:
    """Return why a file must not be used as a lock; empty if the file may be used."""
    if not stat.S_ISREG(file.st_mode):
        return "it is not a regular file"
    if file.st_nlink != 1:
        return "it is a hard link"
    is_shared = directory.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if not is_shared and file.st_uid not in {os.geteuid(), 0, directory.st_uid}:
        return "it belongs to another user"
    return ""


def private_opener(path: str, flags: int) -> int:
    """Open a file so that a new file is private: `open(..., opener=private_opener)`."""
    return os.open(path, flags, PRIVATE_FILE)


_json = json.JSONEncoder(ensure_ascii=False, default=str)
_text = json.encoder.encode_basestring  # what the encoder itself uses for a text


def dump_json(value: object) -> str:
    """Return a value as JSON with indentation."""
    return _indented(value, "\n") + "\n"


def _indented(value: object, line: str) -> str:
    """Return the same text as `json.dumps` with `indent=2`, which is several times slower.

    Args:
        line: the line break before the value, and the indentation of its line.
    """
    inner = f"{line}  "
    if isinstance(value, dict) and value:
        if not all(isinstance(key, str) for key in value):
            return json.dumps(value, indent=2, default=str, ensure_ascii=False).replace("\n", line)
        items = [f"{_text(key)}: {_indented(item, inner)}" for key, item in value.items()]
        return f"{{{inner}{f',{inner}'.join(items)}{line}}}"
    if isinstance(value, list | tuple) and value:
        return f"[{inner}{f',{inner}'.join(_indented(item, inner) for item in value)}{line}]"
    return _text(value) if type(value) is str else _json.encode(value)


def write_json(path: Path, value: object, *, durable: bool = False) -> Path:
    """Write a value to a file as JSON with indentation. `durable` means the same as for `write_bytes`."""
    return write_text(path, dump_json(value), durable=durable)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file that Topgallant wrote.

    Raises:
        OSError: the file cannot be read, or is not a regular file.
        ValueError: the file is not valid JSON, is nested too deeply, or is too large.
    """
    try:
        value: dict[str, Any] = json.loads(read_record(path))
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply") from None
    return value


def read_record(path: Path) -> str:
    """Return the text of a file that Topgallant wrote. The file may have been replaced, so links are not followed.

    Raises:
        OSError: the file cannot be read, or is not a regular file.
        ValueError: the file is not UTF-8, or is too large.
    """
    content = safe_files.read(str(path), _MAX_RECORD + 1)
    if len(content) > _MAX_RECORD:
        raise ValueError(f"{path} has more than {_MAX_RECORD} bytes")
    return content.decode()
