"""Chooses the processors for the programs of a worker. Concurrent workers get different processors.

A worker locks a file for each processor that it uses. The system releases the locks when the worker ends, even if it is
killed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from .file_locks import FileLock


def available() -> list[int]:
    """Return the numbers of the processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


@contextmanager
def reserved(count: int, directory: Path) -> Iterator[list[int]]:
    """Reserve processors while the context is active, and return their numbers.

    Free processors are chosen first. If there are not enough of them, the result contains processors that other
    workers use; the process ID decides which, so that workers share them evenly. The result has fewer than `count`
    entries if the machine has fewer processors.

    Args:
        directory: contains the lock files of all workers of a user.
    """
    candidates = available()
    with ExitStack() as locks:
        with suppress(OSError):  # if no lock file can be made, the process ID decides about all processors
            directory.mkdir(parents=True, exist_ok=True)
        chosen: list[int] = []
        for cpu in candidates:
            lock = FileLock(directory / str(cpu))
            with suppress(OSError):
                if len(chosen) < count and lock.acquire(exclusive=True):
                    locks.callback(lock.release)
                    chosen.append(cpu)
        rest = [cpu for cpu in candidates if cpu not in chosen]
        missing = range(min(count - len(chosen), len(rest)))
        chosen += [rest[(os.getpid() + offset) % len(rest)] for offset in missing]
        yield sorted(chosen)
