"""Puts each attempt into its own cgroup, if the system allows this, so that all processes of the attempt can be found.

A process stays in its cgroup when it starts a session, loses its parent or clears its environment. It can leave its
cgroup only if it may write to another cgroup. So the processes are found even after their supervisor was killed.

Cgroups of version 2 are preferred. Of version 1, this module uses only the hierarchies in which a new group needs no
settings.
"""

from __future__ import annotations

import functools
import hashlib
import os
import signal
import time
from typing import List

from toolbox.ground.kit import own_cgroups, process_tree

_PROCESSES = "cgroup.procs"
_KILL = "cgroup.kill"  # since Linux 5.14
_HIERARCHIES = ("", "freezer", "pids", "name=systemd")  # of versions 2 and 1
_KILL_SECONDS = 2.0
_POLL_SECONDS = 0.01


def create(directory: str) -> str:
    """Create a group for an attempt, below the group of this process. Return its directory; empty on failure."""
    for parent in _parents():
        group = os.path.join(parent, _name(directory))
        # To move a process, version 2 requires write access to `cgroup.procs` of the new group and of its parent.
        if os.access(os.path.join(parent, _PROCESSES), os.W_OK) and _create_group(group):
            return group
    return ""


@functools.lru_cache(maxsize=1)
def _parents() -> List[str]:
    """Return the directories of the group of this process, in the order of `_HIERARCHIES`."""
    mounts, groups = own_cgroups.mounts(), own_cgroups.groups()
    usable = [hierarchy for hierarchy in _HIERARCHIES if hierarchy in mounts and hierarchy in groups]
    return list(filter(None, (mounts[hierarchy].path(groups[hierarchy]) for hierarchy in usable)))


def enter(group: str) -> bool:
    """Move this process into a group, and return whether this succeeded. If not, remove the empty group."""
    if _move_to(group):
        return True
    remove(group)
    return False


def leave(group: str) -> bool:
    """Move this process from a group to the group above it, and return whether this succeeded."""
    return _move_to(os.path.dirname(group))


def _move_to(group: str) -> bool:
    try:
        descriptor = os.open(os.path.join(group, _PROCESSES), os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, b"0")
        finally:
            os.close(descriptor)
    except OSError:
        return False
    return True


def find(directory: str) -> List[str]:
    """Return the directories of the groups of an attempt in all hierarchies."""
    name = _name(directory)
    mounts = own_cgroups.mounts()
    tops = {mounts[hierarchy].directory for hierarchy in _HIERARCHIES if hierarchy in mounts}
    return [os.path.join(folder, name) for top in tops for folder, names, _ in os.walk(top) if name in names]


def members(group: str) -> List[int]:
    """Return the ids of the processes in a group and in the groups below it."""
    files = [os.path.join(folder, _PROCESSES) for folder, _, _ in os.walk(group)]
    # The kernel shows 0 for a process of another PID namespace. Such a process cannot be signalled from here.
    return [int(line) for file in files for line in own_cgroups.lines(file) if line != "0"]


def kill(group: str) -> bool:
    """Kill all processes in a group, remove the group, and return whether the group is empty or removed."""
    deadline = time.monotonic() + _KILL_SECONDS
    while os.path.isdir(group) and time.monotonic() < deadline:
        send_kill(group)
        remove(group)
        if os.path.isdir(group):
            time.sleep(_POLL_SECONDS)
    return not members(group)


def send_kill(group: str) -> None:
    """Kill the processes in a group, all at once if the kernel supports this, so that no process can fork."""
    try:
        with open(os.path.join(group, _KILL), "r+", encoding="ascii") as stream:
            stream.write("1")
    except OSError:
        for pid in members(group):
            process_tree.send(pid, signal.SIGKILL)


def remove(group: str) -> None:
    """Remove a group, unless it contains a process."""
    try:
        for folder, _, _ in os.walk(group, topdown=False):
            os.rmdir(folder)
    except OSError:
        pass  # the group contains a process


def _name(directory: str) -> str:
    return f"topgallant-{hashlib.sha256(os.fsencode(directory)).hexdigest()[:32]}"


def _create_group(group: str) -> bool:
    try:
        os.mkdir(group)
    except FileExistsError:  # an earlier submission of this attempt created the group, and failed
        return not members(group)
    except OSError:
        return False
    return True
