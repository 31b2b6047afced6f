"""Private directories for files that must not outlive a step, such as secrets for a command.

The directories are in memory if the system has `/dev/shm`. A process locks its directories, and the system releases the
locks when the process ends. So the next process can recognize and remove the directories of killed processes. A process
id in the name would not be enough: containers with separate process ids may share `/dev/shm`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from toolbox.ground.system import environ

_PREFIX: Final = "topgallant-"
_IN_MEMORY: Final = Path("/dev/shm")  # noqa: S108  # `mkdtemp` makes a private directory there
_USUAL: Final = Path("/tmp")  # noqa: S108  # as above
# The path of a socket has at most 107 bytes, of which those of a play need up to 85.
_LONGEST_PARENT: Final = 22


@contextmanager
def directory() -> Iterator[Path]:
    """Create a private directory for the body of the `with` statement, and remove it with its content at the end.

    A fork of this process that leaves the body does not remove the directory.
    """
    parent = _parent()
    _remove_abandoned(parent)
    path, lock = _create(parent)
    owner = os.getpid()
    try:
        yield path
    finally:
        if os.getpid() == owner:
            shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def ssh_sockets(*, create: bool) -> Path | None:
    """Return a private directory with a short path for the sockets of SSH connections that several commands share.

    It belongs to this user and this `$HOME`, whose SSH configuration decides how a host is reached. Return None if
    there is something else of this name, which another user may have created.

    Args:
        create: create the directory if it does not exist.
    """
    home = hashlib.sha256(os.fsencode(environ.get("HOME") or "")).hexdigest()[:8]
    path = _parent() / f"tg-ssh-{os.getuid()}-{home}"
    try:
        if create:
            path.mkdir(mode=0o700, exist_ok=True)
        status = path.lstat()
    except FileNotFoundError:
        return path
    except OSError:
        return None
    is_private = status.st_uid == os.getuid() and not stat.S_IMODE(status.st_mode) & 0o077
    return path if stat.S_ISDIR(status.st_mode) and is_private else None


def _parent() -> Path:
    if os.access(_IN_MEMORY, os.W_OK):
        return _IN_MEMORY
    parent = Path(tempfile.gettempdir())
    is_long = len(os.fsencode(parent)) > _LONGEST_PARENT
    return _USUAL if is_long and os.access(_USUAL, os.W_OK) else parent


def _create(parent: Path) -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        with suppress(FileNotFoundError):
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Another process may have removed the directory before it was locked here.
            if path.exists():
                return path, lock
            os.close(lock)


def _remove_abandoned(parent: Path) -> None:
    for path in parent.glob(f"{_PREFIX}*"):
        # Skip a path that belongs to another user, is in use, is not a directory, or was removed by another process.
        with suppress(OSError):
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock).st_uid == os.getuid():
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)
