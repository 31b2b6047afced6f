"""Syncs the files of a workload to the disk, before the supervisor writes the outcome of the workload."""

from __future__ import annotations

import os
import stat

_MAX_FILES = 1000  # for more files, one sync of the whole system is faster than a sync of each file


def sync_tree(top: str) -> None:
    """Return when the files below a directory, and their names, are on the disk."""
    count = 0
    for folder, subfolders, names in os.walk(top):
        # For an empty directory, the sync of its parent is enough.
        non_empty = [folder] if subfolders or names else []
        for path in (*non_empty, *(os.path.join(folder, name) for name in names)):
            count += 1
            if count > _MAX_FILES:
                os.sync()
                return
            sync(path)


def sync(path: str) -> None:
    """Return when a regular file, or the names in a directory, are on the disk. Skip any other kind of file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return  # the path is a link, or the workload has made the file unreadable
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
            os.fsync(descriptor)
    except OSError:
        pass  # the file system cannot sync, or the disk is full
    finally:
        os.close(descriptor)
