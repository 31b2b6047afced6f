"""Puts each attempt into its own cgroup, if the system allows this, so that all processes of the attempt can be found.

A process stays in its cgroup when it starts a session, loses its parent or clears its environment. It can leave its
cgroup only if it may write to another cgroup. So the processes are found even after their supervisor was killed.

Cgroups of version 2 are preferred (https://docs.kernel.org/admin-guide/cgroup-v2.html). Of version 1, this module uses
only the hierarchies in which a new group needs no settings.
"""

from __future__ import annotations

import functools
import hashlib
import os
import signal
import time
from typing import Dict, Iterator, List, NamedTuple, Optional

from toolbox.kit import process_tree

_PROCESSES = "cgroup.procs"
_KILL = "cgroup.kill"  # since Linux 5.14
_HIERARCHIES = ("", "freezer", "pids", "name=systemd")  # the name of the hierarchy of version 2 is empty
_OOM_FILES = {"": "memory.events", "memory": "memory.oom_control"}  # by hierarchy; version 1 since Linux 4.13
_KILL_SECONDS = 2.0
_POLL_SECONDS = 0.01


class _Mount(NamedTuple):
    """The directory at which a hierarchy is mounted, and the group that this directory represents."""

    directory: str
    root: str


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
    mounts, own_groups = _mounts(), _own_groups()
    usable = [hierarchy for hierarchy in _HIERARCHIES if hierarchy in mounts and hierarchy in own_groups]
    directories = [_directory_of(mounts[hierarchy], own_groups[hierarchy]) for hierarchy in usable]
    return [directory for directory in directories if directory]


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
    mounts = _mounts()
    tops = {mounts[hierarchy].directory for hierarchy in _HIERARCHIES if hierarchy in mounts}
    return [os.path.join(folder, name) for top in tops for folder, names, _ in os.walk(top) if name in names]


def members(group: str) -> List[int]:
    """Return the ids of the processes in a group and in the groups below it."""
    files = [os.path.join(folder, _PROCESSES) for folder, _, _ in os.walk(group)]
    # The kernel shows 0 for a process of another PID namespace. Such a process cannot be signalled from here.
    return [int(line) for file in files for line in _lines(file) if line != "0"]


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


class OomCounter:
    """Counts the processes that the kernel kills for want of memory in the memory group of a workload.

    This is the group of the attempt if it has a memory controller, else the nearest group above it that has one. Other
    processes may be in that group too, for example the other attempts of the user.
    """

    def __init__(self, group: str = "") -> None:
        """Begin to count.

        Args:
            group: the directory of the group of the attempt; empty if it has none.
        """
        files = (file for file in _oom_files(group) if _oom_kills(file) is not None)
        self._file = next(files, "")
        self._earlier = _oom_kills(self._file) or 0

    def count(self) -> int:
        """Return the number of processes that were killed since the beginning; 0 if the kernel does not count them."""
        return max(0, (_oom_kills(self._file) or 0) - self._earlier)


def _oom_files(group: str) -> Iterator[str]:
    """Yield the files that may count killed processes, the nearest to the attempt first."""
    if group:
        yield os.path.join(group, _OOM_FILES[""])
    mounts, own_groups = _mounts(), _own_groups()
    for hierarchy, name in _OOM_FILES.items():
        if hierarchy in mounts and hierarchy in own_groups:
            top = mounts[hierarchy].directory
            directory = _directory_of(mounts[hierarchy], own_groups[hierarchy])
            while directory and os.path.commonpath([top, directory]) == top:
                yield os.path.join(directory, name)
                if directory == top:
                    break
                directory = os.path.dirname(directory)


def _oom_kills(file: str) -> Optional[int]:
    """Return the number of killed processes in a file of the kernel; None if the file does not have it."""
    counts = [line.split()[1:] for line in _lines(file) if line.startswith("oom_kill ")] if file else []
    return int(counts[0][0]) if counts and counts[0] and counts[0][0].isdigit() else None


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


def _directory_of(mount: _Mount, group: str) -> str:
    """Return the directory of a group; empty if the mount does not contain the group."""
    relative = os.path.relpath(group, mount.root)
    return "" if relative.startswith("..") else os.path.normpath(os.path.join(mount.directory, relative))


def _own_groups() -> Dict[str, str]:
    """Return the group of this process in each hierarchy."""
    groups = {}
    for line in _lines("/proc/self/cgroup"):
        _, _, controllers_and_path = line.partition(":")
        controllers, _, path = controllers_and_path.partition(":")
        groups.update(dict.fromkeys(controllers.split(","), path))
    return groups


def _mounts() -> Dict[str, _Mount]:
    """Return the mount of each hierarchy; see proc_pid_mountinfo(5)."""
    mounts: Dict[str, _Mount] = {}
    for line in _lines("/proc/self/mountinfo"):
        mount_text, _, file_system_text = line.partition(" - ")
        mount, file_system = mount_text.split(), file_system_text.split()
        if file_system[:1] == ["cgroup2"]:
            mounts[""] = _Mount(mount[4], mount[3])
        elif file_system[:1] == ["cgroup"]:
            mounts.update(dict.fromkeys(file_system[2].split(","), _Mount(mount[4], mount[3])))
    return mounts


def _lines(file: str) -> Iterator[str]:
    try:
        with open(file, encoding="utf-8", errors="surrogateescape") as stream:
            yield from (line.rstrip("\n") for line in stream)
    except OSError:
        return
