"""Syncs the files that a workload left, so that after a power cut no attempt has an end without its evidence."""

from __future__ import annotations

import os
import stat

_MOST_FILES = 1000  # to sync more of them one by one takes longer than to sync the whole system once


def sync_tree(top: str) -> None:
    """Wait until the disk has the files below a directory, and their names."""
    count = 0
    for folder, _, names in os.walk(top):
        for path in (folder, *(os.path.join(folder, name) for name in names)):
            count += 1
            if count > _MOST_FILES:
                os.sync()
                return
            sync(path)


def sync(path: str) -> None:
    """Wait until the disk has a regular file or the names in a directory; do nothing for anything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return  # a link, or a file that the workload has made unreadable
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
            os.fsync(descriptor)
    except OSError:
        pass  # a file system that has no such call; a disk that is full says so when the end is written
    finally:
        os.close(descriptor)
