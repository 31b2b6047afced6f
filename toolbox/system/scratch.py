"""Private directories for files that must not outlive a step, such as secrets for a command.

The directories are in memory if the system has `/dev/shm`. A process locks its directories, and the system releases the
locks when the process ends. So the next process can recognize and remove the directories of killed processes. A process
id in the name would not be enough: containers with separate process ids may share `/dev/shm`.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_PREFIX: Final = "topgallant-"
_IN_MEMORY: Final = Path("/dev/shm")  # noqa: S108  # `mkdtemp` makes a private directory there


@contextmanager
def directory() -> Iterator[Path]:
    """Create a private directory for the body of the `with` statement, and remove it with its content at the end.

    A fork of this process that leaves the body does not remove the directory.
    """
    parent = _IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
    _remove_abandoned(parent)
    path, lock = _create(parent)
    owner = os.getpid()
    try:
        yield path
    finally:
        if os.getpid() == owner:
            shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


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
