"""Finds the processes of a tree on Linux, and keeps them from leaving it."""

from __future__ import annotations

import ctypes
import os
import signal
from typing import NamedTuple

# From <sys/prctl.h>.
_SET_DEATH_SIGNAL = 1
_SET_CHILD_SUBREAPER = 36
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_libc = ctypes.CDLL(None, use_errno=True)


class Process(NamedTuple):
    """A process: its parent, its CPU time so far in clock ticks, and its memory in bytes."""

    parent: int
    ticks: int
    memory: int


def adopt_orphans() -> None:
    """Become the parent of each descendant whose own parent ends, so that none leaves the tree."""
    _libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """Let the system kill this process when its parent ends."""
    _libc.prctl(_SET_DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0)


def descendants(root: int) -> dict[int, Process]:
    """Return the descendants of a process by their process ids. Zombies are left out."""
    everything = _table()
    children: dict[int, list[int]] = {}
    for number, process in everything.items():
        children.setdefault(process.parent, []).append(number)
    found: dict[int, Process] = {}
    todo = children.get(root, [])[:]
    while todo:
        number = todo.pop()
        found[number] = everything[number]
        todo += children.get(number, ())
    return found


def send(number: int, signal_number: int) -> None:
    """Send a signal to a process. Do nothing if it has ended, or must not be signalled."""
    try:
        os.kill(number, signal_number)
    except (ProcessLookupError, PermissionError):
        pass


def marked(variable: str, value: str) -> list[int]:
    """Return the other processes that have this value of an environment variable."""
    wanted = os.fsencode(f"{variable}={value}")
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/environ", "rb") as stream:
                    if wanted in stream.read().split(b"\0"):
                        found.append(int(name))
            except OSError:
                continue
    return found


def _table() -> dict[int, Process]:
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as stream:
                    # The program's name, in parentheses, may contain any character, also a parenthesis.
                    fields = stream.read().rpartition(b")")[2].split()
            except OSError:
                continue
            # A process whose first thread has ended has the state of a zombie, while its other threads run on.
            if fields[0] not in (b"Z", b"X") or int(fields[17]) > 1:
                ticks = int(fields[11]) + int(fields[12])
                found[int(name)] = Process(int(fields[1]), ticks, int(fields[21]) * _PAGE_BYTES)
    return found
