"""Private directories for files that must not outlive a step: secrets on their way to a command.

They are in memory if the system has `/dev/shm`. Each directory is locked while its process lives, and the system
releases the lock when the process ends. The next process removes the directories of killed processes. Process ids
cannot replace the locks: containers may share `/dev/shm`, but each has process ids of its own.
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
_IN_MEMORY: Final = Path("/dev/shm")  # noqa: S108  # the directory made in it is private


@contextmanager
def directory() -> Iterator[Path]:
    """Yield a new private directory, and remove it with its content afterwards."""
    parent = _IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
    _remove_abandoned(parent)
    path, lock = _create(parent)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _create(parent: Path) -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        with suppress(FileNotFoundError):
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Before it was locked, another process may have removed it as abandoned.
            if path.exists():
                return path, lock
            os.close(lock)


def _remove_abandoned(parent: Path) -> None:
    for path in parent.glob(f"{_PREFIX}*"):
        # It belongs to another user, is in use, is not a directory, or was removed by another process.
        with suppress(OSError):
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock).st_uid == os.getuid():
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)
