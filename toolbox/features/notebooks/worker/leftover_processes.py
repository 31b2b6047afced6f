"""Kills the processes that a kernel or a program leaves, also processes that have started a new session.

A process that starts a session is no longer in the process group of its program. If the parent of a process ends, the
worker becomes its parent (`process_tree.adopt_orphans`). So all processes that the program started are descendants of
the worker.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

from toolbox.ground.kit import process_tree

from .time_limits import KILL_SECONDS

_LOOK_SECONDS: Final = 0.01


@contextmanager
def killed() -> Iterator[None]:
    """Kill the processes that were started in the context and that are left at its end."""
    before = _descendants()
    try:
        yield
    finally:
        deadline = time.monotonic() + KILL_SECONDS
        while (left := _descendants(before)) and time.monotonic() < deadline:
            for pid in left:
                process_tree.send(pid, signal.SIGKILL)
                with suppress(ChildProcessError):  # it is not an orphan: its parent is in `left` too
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(_LOOK_SECONDS)


def _descendants(ignored: Mapping[int, int] | None = None) -> dict[int, int]:
    """Return the start times of the descendants of this process, except `ignored` and the descendants of `ignored`."""
    left: dict[int, int] = {}
    for pid, process in process_tree.descendants(os.getpid(), with_zombies=True).items():
        if (ignored or {}).get(pid) != process.started and (process.parent == os.getpid() or process.parent in left):
            left[pid] = process.started
    return left
