"""Reads and writes files in a directory in which the workload can write too.

The workload may have replaced any file with a symbolic link, a pipe, a device or a directory. The functions here don't
follow links, open only regular files, and don't block when they open a file.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat

from toolbox.ground.kit.streams import write_all

_SAFE_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_PRIVATE = 0o600


def open_regular(path: str, flags: int = os.O_RDONLY, *, mode: int = _PRIVATE) -> int:
    """Open a regular file, and return its descriptor. With O_CREAT in `flags`, create a missing file with a mode.

    Raises:
        OSError: the file is missing, or is not a regular file.
    """
    return _checked(os.open(path, flags | _SAFE_FLAGS, mode), path)


def open_below(directory: str, name: str) -> int:
    """Open a regular file below a directory, and return its descriptor. Links along the way are not followed.

    Args:
        name: the path of the file, relative to the directory, without `..`.

    Raises:
        OSError: the file is missing, is not a regular file, or a folder along the way is a link.
    """
    *folders, last = name.split("/")
    opened = [os.open(directory, _FOLDER_FLAGS)]
    try:
        for folder in folders:
            opened.append(os.open(folder, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=opened[-1]))
        return _checked(os.open(last, os.O_RDONLY | _SAFE_FLAGS, dir_fd=opened[-1]), name)
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _checked(descriptor: int, path: str) -> int:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return descriptor


def is_regular(path: str) -> bool:
    """Return whether a path is a regular file, and not a link to a regular file."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def read(path: str, most: int, offset: int = 0) -> bytes:
    """Return up to `most` bytes of a regular file, beginning at an offset.

    Raises:
        OSError: the file cannot be read.
    """
    descriptor = open_regular(path)
    try:
        return os.pread(descriptor, most, offset)
    finally:
        os.close(descriptor)


def replace(path: str, content: bytes, *, mode: int = _PRIVATE) -> None:
    """Replace a file atomically: write a temporary file, and rename it.

    Args:
        mode: the mode of the file, of which the umask of this process is removed.

    Raises:
        OSError: the file cannot be written.
    """
    temporary = f"{path}.new"
    remove(temporary)
    descriptor = open_regular(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode=mode)
    try:
        write_all(descriptor, content)
    finally:
        os.close(descriptor)
    rename(temporary, path)


def reserve(path: str, count: int) -> None:
    """Reserve `count` bytes on the disk for a regular file. Create the file if it is missing.

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
            # The file system does not support reservations. Write zeros to allocate the space.
            write_all(descriptor, bytes(count))
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def overwrite(path: str, content: bytes) -> None:
    """Overwrite a file in place, and return when the content is on the disk.

    A link, a directory, a special file, or a file with several hard links at this path is removed first.

    Raises:
        OSError: the file cannot be written.
    """
    if not is_regular(path) or os.lstat(path).st_nlink > 1:
        remove(path)
    descriptor = open_regular(path, os.O_WRONLY | os.O_CREAT)
    try:
        write_all(descriptor, content)
        os.ftruncate(descriptor, len(content))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rename(path: str, name: str) -> None:
    """Rename a file. A file, link or directory that has the new name is replaced."""
    if os.path.isdir(name) and not os.path.islink(name):
        remove(name)
    os.replace(path, name)


def remove(path: str) -> None:
    """Remove a file, a directory tree, or a link without its target."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError:
        shutil.rmtree(path, ignore_errors=True)


def _make_private(path: str) -> None:
    parent = os.path.dirname(path)
    if parent and not os.path.isdir(parent):
        _make_private(parent)  # `os.makedirs` would give the parents the mode that the umask allows
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


def make_directory(path: str) -> None:
    """Create a directory if it is missing. Replace a link or a file that has the name of the directory."""
    if os.path.islink(path) or not os.path.isdir(path):
        remove(path)
        _make_private(path)
