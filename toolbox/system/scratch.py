"""Private directories for what must not outlive a step: secrets on their way to a command.

They are in memory where the system has `/dev/shm`. Each is locked while its process lives, and the system lets the
lock go whatever ends that: what a killed process left is removed by the next one. A lock, and not the number of the
process: containers that share `/dev/shm` have numbers of their own.
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
    """Yield a new private directory, and remove it with all that is in it."""
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
            # Before it was locked, another process could take it for abandoned.
            if path.exists():
                return path, lock
            os.close(lock)


def _remove_abandoned(parent: Path) -> None:
    for path in parent.glob(f"{_PREFIX}*"):
        # Somebody else's, in use, no directory, or removed by another process meanwhile.
        with suppress(OSError):
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock).st_uid == os.getuid():
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)
