"""Puts each attempt into a cgroup of its own, where the system allows it, so that all of its processes are found.

A process stays in its cgroup when it starts a session, loses its parent or clears its environment: it can leave only
if it may write to another cgroup. So the processes of a killed supervisor are found as well. Version 2 is preferred
(https://docs.kernel.org/admin-guide/cgroup-v2.html). Of version 1, only hierarchies whose groups need no settings are
used.
"""

from __future__ import annotations

import hashlib
import os
import signal
import time
from typing import Dict, Iterator, List, NamedTuple

from toolbox.agent import tree

_PROCESSES = "cgroup.procs"
_KILL = "cgroup.kill"  # since Linux 5.14
_HIERARCHIES = ("", "freezer", "pids", "name=systemd")  # the empty name stands for version 2
_KILL_SECONDS = 2.0
_LOOK_SECONDS = 0.01


class _Mount(NamedTuple):
    """The directory at which a hierarchy is mounted, and the group that appears at the top of the mount."""

    directory: str
    root: str


def create(directory: str) -> str:
    """Create a group for an attempt below the group of this process, and return its path; empty if that fails."""
    mounts, own = _mounts(), _own_groups()
    for hierarchy in _HIERARCHIES:
        if hierarchy in mounts and hierarchy in own:
            parent = _directory_of(mounts[hierarchy], own[hierarchy])
            group = os.path.join(parent, _name(directory))
            # Before a process is moved, version 2 also requires write access to `cgroup.procs` of the parent.
            if parent and os.access(os.path.join(parent, _PROCESSES), os.W_OK) and _create_group(group):
                return group
    return ""


def enter(group: str) -> None:
    """Move this process into a group. If that fails, remove the group, which would stay empty."""
    try:
        # Plain system calls instead of a Python stream: the new process copies each memory page that it writes to.
        descriptor = os.open(os.path.join(group, _PROCESSES), os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, b"0")
        finally:
            os.close(descriptor)
    except OSError:
        remove(group)


def find(directory: str) -> List[str]:
    """Return the groups of an attempt in all hierarchies, whichever supervisor created them."""
    name = _name(directory)
    mounts = _mounts()
    tops = {mounts[hierarchy].directory for hierarchy in _HIERARCHIES if hierarchy in mounts}
    return [os.path.join(folder, name) for top in tops for folder, names, _ in os.walk(top) if name in names]


def members(group: str) -> List[int]:
    """Return the processes in a group and in the groups below it."""
    files = [os.path.join(folder, _PROCESSES) for folder, _, _ in os.walk(group)]
    # 0 stands for a process of another PID namespace, which cannot be signalled from here.
    return [int(line) for file in files for line in _lines(file) if line != "0"]


def kill(group: str) -> bool:
    """Kill all processes in a group, remove the group, and return whether no process is left in it."""
    deadline = time.monotonic() + _KILL_SECONDS
    while os.path.isdir(group) and time.monotonic() < deadline:
        send_kill(group)
        remove(group)
        if os.path.isdir(group):
            time.sleep(_LOOK_SECONDS)
    return not members(group)


def send_kill(group: str) -> None:
    """Kill the processes in a group, all at once if the kernel supports it: then no process can fork meanwhile."""
    try:
        with open(os.path.join(group, _KILL), "r+", encoding="ascii") as stream:
            stream.write("1")
    except OSError:
        for pid in members(group):
            tree.send(pid, signal.SIGKILL)


def remove(group: str) -> None:
    """Remove a group in which there is no process."""
    try:
        for folder, _, _ in os.walk(group, topdown=False):
            os.rmdir(folder)
    except OSError:
        pass  # a process is still in it


def _name(directory: str) -> str:
    return f"topgallant-{hashlib.sha256(os.fsencode(directory)).hexdigest()[:32]}"


def _create_group(group: str) -> bool:
    try:
        os.mkdir(group)
    except FileExistsError:  # an earlier submission of this attempt failed
        return not members(group)
    except OSError:
        return False
    return True


def _directory_of(mount: _Mount, group: str) -> str:
    """Return the directory of a group in the file system; empty if the group is outside of the mounted part."""
    inside = os.path.relpath(group, mount.root)
    return "" if inside.startswith("..") else os.path.normpath(os.path.join(mount.directory, inside))


def _own_groups() -> Dict[str, str]:
    """Return the group of this process in each hierarchy."""
    found = {}
    for line in _lines("/proc/self/cgroup"):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        found.update(dict.fromkeys(controllers.split(","), path))
    return found


def _mounts() -> Dict[str, _Mount]:
    """Return the mount of each hierarchy; see proc_pid_mountinfo(5)."""
    found: Dict[str, _Mount] = {}
    for line in _lines("/proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if kind[:1] == ["cgroup2"]:
            found[""] = _Mount(fields[4], fields[3])
        elif kind[:1] == ["cgroup"]:
            found.update(dict.fromkeys(kind[2].split(","), _Mount(fields[4], fields[3])))
    return found


def _lines(file: str) -> Iterator[str]:
    try:
        with open(file, encoding="utf-8", errors="surrogateescape") as stream:
            yield from (line.rstrip("\n") for line in stream)
    except OSError:
        return
