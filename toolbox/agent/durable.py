"""Syncs the files of a workload before its outcome is written: no power cut leaves an outcome without the files."""

from __future__ import annotations

import os
import stat

_MOST_FILES = 1000  # beyond this number, one sync of the whole system is faster than a sync per file


def sync_tree(top: str) -> None:
    """Wait until the files below a directory, and their names, are on the disk."""
    count = 0
    for folder, below, names in os.walk(top):
        # An empty directory needs no sync of its own: the sync of its parent covers its name.
        itself = [folder] if below or names else []
        for path in (*itself, *(os.path.join(folder, name) for name in names)):
            count += 1
            if count > _MOST_FILES:
                os.sync()
                return
            sync(path)


def sync(path: str) -> None:
    """Wait until a regular file, or the names in a directory, are on the disk. Skip any other kind of file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return  # a link, or a file that the workload has made unreadable
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
            os.fsync(descriptor)
    except OSError:
        pass  # the file system cannot sync, or the disk is full, which shows when the outcome is written
    finally:
        os.close(descriptor)
