"""Provides temporary directories with short paths, and removes those that killed workers left.

A worker locks its directories. The system releases the locks when the worker ends, also if the worker is killed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

PREFIX: Final = "topgallant-notebook-"
_YOUNG_SECONDS: Final = 60.0  # a new directory is not locked yet


@contextmanager
def temporary_directory() -> Iterator[Path]:
    """Provide an empty directory that no other user can read, and remove it at the end of the context."""
    remove_stale()
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as path:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_SH)
            yield Path(path)
        finally:
            os.close(lock)


def remove_stale() -> None:
    """Remove the directories of this user that no worker uses any more."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # another worker uses or removes the directory
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                status = os.fstat(lock)
                if status.st_uid == os.getuid() and time.time() - status.st_mtime > _YOUNG_SECONDS:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)
