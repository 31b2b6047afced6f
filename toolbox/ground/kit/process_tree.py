"""Finds the descendants of a process on Linux, and prevents them from leaving its process tree."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from typing import NamedTuple

MARK = "TOPGALLANT_STEP"
"""The environment variable with the directory of the step or attempt to which a process belongs."""
# From <sys/prctl.h>.
_SET_DEATH_SIGNAL = 1
_SET_CHILD_SUBREAPER = 36
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
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
    return _with_descendants(processes, [pid for pid, process in processes.items() if process.parent == root])


def _with_descendants(processes: dict[int, Process], roots: list[int]) -> dict[int, Process]:
    """Return processes and all their descendants. Each root is followed by its descendants, parents first."""
    children: dict[int, list[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
    tree: dict[int, Process] = {}
    todo = roots[:]
    while todo:
        pid = todo.pop()
        tree[pid] = processes[pid]
        todo += children.get(pid, ())
    return tree


class Use(NamedTuple):
    """What processes use: processor time in percent (200 is two busy processors), and resident memory in bytes."""

    percent: float
    memory: int


class UseMeter:
    """Measures what changing sets of processes use between two calls of `measure`."""

    def __init__(self) -> None:
        self._measured_at = time.monotonic()
        self._ticks: dict[tuple[int, int], int] = {}

    def measure(self, processes: dict[int, Process]) -> Use:
        """Return the use of processes. A process that was not in the last call has used all its time since then."""
        now = time.monotonic()
        ticks = {(pid, process.started): process.ticks for pid, process in processes.items()}
        used = sum(count - self._ticks.get(key, 0) for key, count in ticks.items())
        percent = 100 * used / _TICKS_PER_SECOND / max(now - self._measured_at, 1e-3)
        self._measured_at, self._ticks = now, ticks
        return Use(percent, sum(process.memory for process in processes.values()))


class ProcessTree:
    """A process and all its descendants, also those whose parents have ended since an earlier call of `measure`.

    Args:
        root: the process id.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._started: dict[int, int] = {}  # when each member started, by its process id
        self._meter = UseMeter()
        self.first = self.measure()

    def measure(self) -> Use | None:
        """Return the use of the processes since the last call; None if the root has ended."""
        # Skip processes that are ending: the system may still list them, but they have no memory.
        running = {pid: process for pid, process in _all_processes(False).items() if process.memory}
        roots = [pid for pid, started in self._started.items() if pid in running and running[pid].started == started]
        if not self._started and self._root in running:
            roots = [self._root]
        members = _with_descendants(running, roots)
        self._started = {pid: process.started for pid, process in members.items()}
        use = self._meter.measure(members)
        return use if self._root in members else None


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
