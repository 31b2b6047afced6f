"""Reads and writes files in a directory to which the workload can write as well.

The workload may have replaced any file with a symbolic link, a pipe, a device or a directory. These functions follow no
link, open only regular files, and never block when they open one.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat

_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PRIVATE = 0o600


def open_regular(path: str, flags: int = os.O_RDONLY) -> int:
    """Open a regular file, and return its descriptor. With O_CREAT in `flags`, create a missing file as private.

    Raises:
        OSError: the file is missing, or is not a regular file.
    """
    descriptor = os.open(path, flags | _SAFELY, _PRIVATE)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", path)
    return descriptor


def is_regular(path: str) -> bool:
    """Return whether a path is a regular file, and not a link to one."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def read(path: str, most: int, offset: int = 0) -> bytes:
    """Return at most `most` bytes of a regular file, beginning at an offset.

    Raises:
        OSError: the file cannot be read.
    """
    descriptor = open_regular(path)
    try:
        return os.pread(descriptor, most, offset)
    finally:
        os.close(descriptor)


def replace(path: str, content: bytes) -> None:
    """Write a new file under a temporary name, and rename it when it is complete.

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
    """Overwrite a regular file within its present space on the disk, and wait until the content is on the disk.

    Raises:
        OSError: the file is not a regular file, or cannot be written.
    """
    descriptor = open_regular(path, os.O_WRONLY | os.O_CREAT)
    try:
        _write(descriptor, content)
        os.ftruncate(descriptor, len(content))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def reserve(path: str, count: int) -> None:
    """Reserve this number of bytes on the disk for a regular file. Create the file if it is missing.

    Raises:
        OSError: the path is not a regular file, or the disk is full.
    """
    descriptor = open_regular(path, os.O_WRONLY | os.O_CREAT)
    try:
        try:
            os.posix_fallocate(descriptor, 0, count)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
            # The file system cannot reserve space. It allocates the space when written content is synced.
            _write(descriptor, bytes(count))
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def overwrite(path: str, content: bytes) -> None:
    """Write as `write` does, but first remove a path that is not a regular file, or that has several hard links.

    Raises:
        OSError: it cannot be written.
    """
    if not is_regular(path) or os.lstat(path).st_nlink > 1:
        remove(path)
    write(path, content)


def rename(path: str, name: str) -> None:
    """Rename a file, and replace any file, link or directory that has the new name."""
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
    """Create a directory if it is missing. Replace a link or a file that the workload has put in its place."""
    if os.path.islink(path) or not os.path.isdir(path):
        remove(path)
        os.makedirs(path, mode=0o700, exist_ok=True)


def _write(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]
