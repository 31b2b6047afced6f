"""Reads and writes files in a directory where the workload can write too.

The workload may have put a symbolic link, a pipe, a device or a directory in the place of any file. These functions
follow no link, open only regular files, and never wait for one to open.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat

_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PRIVATE = 0o600


def open_regular(path: str, flags: int = os.O_RDONLY) -> int:
    """Return a descriptor of a regular file; with O_CREAT in `flags`, of a new private one where there is none.

    Raises:
        OSError: there is something else, or nothing.
    """
    descriptor = os.open(path, flags | _SAFELY, _PRIVATE)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", path)
    return descriptor


def is_regular(path: str) -> bool:
    """Tell whether there is a regular file, which is not reached by a link."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def read(path: str, most: int, offset: int = 0) -> bytes:
    """Return at most `most` bytes of a regular file, from an offset on.

    Raises:
        OSError: it cannot be read.
    """
    descriptor = open_regular(path)
    try:
        return os.pread(descriptor, most, offset)
    finally:
        os.close(descriptor)


def replace(path: str, content: bytes) -> None:
    """Write a new file, and give it its name when it is whole.

    Raises:
        OSError: it cannot be written.
    """
    temporary = f"{path}.new"
    remove(temporary)
    descriptor = open_regular(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        _write(descriptor, content)
    finally:
        os.close(descriptor)
    rename(temporary, path)


def write(path: str, content: bytes) -> None:
    """Write over what a regular file holds, in the space that it has on the disk, and wait until the disk has it.

    Raises:
        OSError: there is something else, or it cannot be written.
    """
    descriptor = open_regular(path, os.O_WRONLY | os.O_CREAT)
    try:
        _write(descriptor, content)
        os.ftruncate(descriptor, len(content))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def overwrite(path: str, content: bytes) -> None:
    """Write as `write` does, after removing a link, a directory or another thing that is not a private regular file.

    Raises:
        OSError: it cannot be written.
    """
    if not is_regular(path) or os.lstat(path).st_nlink > 1:
        remove(path)
    write(path, content)


def rename(path: str, name: str) -> None:
    """Give a file a name, and replace the file, link or directory that has the name now."""
    if os.path.isdir(name) and not os.path.islink(name):
        remove(name)
    os.replace(path, name)


def remove(path: str) -> None:
    """Remove a file, a link or a directory tree. The target of a link stays."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError:
        shutil.rmtree(path, ignore_errors=True)


def make_directory(path: str) -> None:
    """Create a directory if it is missing, also where the workload has put a link or a file in its place."""
    if os.path.islink(path) or not os.path.isdir(path):
        remove(path)
        os.makedirs(path, mode=0o700, exist_ok=True)


def _write(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]
