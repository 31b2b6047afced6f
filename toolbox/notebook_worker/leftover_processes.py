"""Kills the processes that a kernel or a program leaves, also processes that have started a new session.

A process that starts a session is no longer in the process group of its program. If the parent of a process ends, the
worker becomes its parent (`adopt_orphans`). So all processes that the program started are descendants of the worker.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from .time_limits import KILL_SECONDS

_LOOK_SECONDS: Final = 0.01
_SET_CHILD_SUBREAPER: Final = 36  # from <sys/prctl.h>
_PARENT, _STARTED = 1, 19  # fields of /proc/PID/stat after the name, counted from 0


class _Process(NamedTuple):
    """A process. The start time distinguishes it from a later process with the same ID."""

    pid: int
    started: int


def adopt_orphans() -> None:
    """Make this process the new parent of each descendant whose parent ends."""
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@contextmanager
def killed() -> Iterator[None]:
    """Kill the processes that were started in the context and that are left at its end."""
    before = _descendants(frozenset())
    try:
        yield
    finally:
        deadline = time.monotonic() + KILL_SECONDS
        while (left := _descendants(before)) and time.monotonic() < deadline:
            for process in left:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(process.pid, signal.SIGKILL)
                with suppress(ChildProcessError):  # it is not an orphan: its parent is in `left` too
                    os.waitpid(process.pid, os.WNOHANG)
            time.sleep(_LOOK_SECONDS)


def _descendants(ignored: frozenset[_Process]) -> frozenset[_Process]:
    """Return the descendants of this process, except the given processes and their descendants."""
    children: dict[int, list[_Process]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            # The second field is the name of the program in parentheses, which may itself contain `)`.
            fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
            children.setdefault(int(fields[_PARENT]), []).append(_Process(int(entry.name), int(fields[_STARTED])))
    found: set[_Process] = set()
    waiting = [os.getpid()]
    while waiting:
        new = set(children.get(waiting.pop(), ())) - ignored - found
        found |= new
        waiting += [process.pid for process in new]
    return frozenset(found)
