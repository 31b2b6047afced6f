"""Finds the descendants of a process on Linux, and prevents them from leaving its process tree."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import NamedTuple

MARK = "TOPGALLANT_STEP"
"""The environment variable with the directory of the step or attempt to which a process belongs."""
# From <sys/prctl.h>.
_SET_DEATH_SIGNAL = 1
_SET_CHILD_SUBREAPER = 36
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


class Process(NamedTuple):
    """A process.

    Args:
        parent: the process id of its parent.
        ticks: its CPU time in clock ticks.
        memory: its resident memory in bytes.
        started: when it started; distinguishes it from a later process with the same process id.
    """

    parent: int
    ticks: int
    memory: int
    started: int


def adopt_orphans(is_on: bool = True) -> None:
    """Make this process the new parent of each descendant whose parent ends, or stop this."""
    _set_option(_SET_CHILD_SUBREAPER, int(is_on))


def die_with_parent() -> None:
    """Let the system kill this process when its parent ends."""
    _set_option(_SET_DEATH_SIGNAL, int(signal.SIGKILL))


def _set_option(option: int, value: int) -> None:
    if _libc is not None:  # the inference worker also runs on other systems than Linux
        _libc.prctl(option, value, 0, 0, 0)


def descendants(root: int, *, with_zombies: bool = False) -> dict[int, Process]:
    """Return the descendants of a process by their process ids, parents first."""
    processes = _all_processes(with_zombies)
    children: dict[int, list[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
    tree: dict[int, Process] = {}
    todo = children.get(root, [])[:]
    while todo:
        pid = todo.pop()
        tree[pid] = processes[pid]
        todo += children.get(pid, ())
    return tree


def send(pid: int, signal_number: int) -> None:
    """Send a signal to a process. Do nothing if the process has ended, or belongs to another user."""
    try:
        os.kill(pid, signal_number)
    except (ProcessLookupError, PermissionError):
        pass


def kill_group(group: int) -> None:
    """Kill the processes of a process group. Do nothing if they have ended, or belong to another user."""
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def marked(directory: str) -> list[int]:
    """Return the ids of the processes whose environment has the mark of a directory. This process is left out."""
    entry = os.fsencode(f"{MARK}={directory}")
    pids = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/environ", "rb") as stream:
                    if entry in stream.read().split(b"\0"):
                        pids.append(int(name))
            except OSError:
                continue
    return pids


def _all_processes(with_zombies: bool) -> dict[int, Process]:
    processes = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as stream:
                    # The second field is the name of the program in parentheses, which may itself contain `)`.
                    fields = stream.read().rpartition(b")")[2].split()
            except OSError:
                continue
            # A process whose first thread has ended is shown as a zombie, although its other threads may still run.
            if with_zombies or fields[0] not in (b"Z", b"X") or int(fields[17]) > 1:
                ticks = int(fields[11]) + int(fields[12])
                memory = int(fields[21]) * _PAGE_BYTES
                processes[int(name)] = Process(int(fields[1]), ticks, memory, int(fields[19]))
    return processes
