"""Finds the cgroups of this process, and counts the processes that the kernel kills there for want of memory.

Cgroups have two versions (https://docs.kernel.org/admin-guide/cgroup-v2.html). Version 1 has several hierarchies, whose
names are those of their controllers. The name of the hierarchy of version 2 is empty.
"""

from __future__ import annotations

import functools
import os
from typing import Dict, Iterator, NamedTuple, Optional

_OOM_FILES = {"": "memory.events", "memory": "memory.oom_control"}  # by hierarchy; version 1 since Linux 4.13
_MACHINE = "/proc/vmstat"


class Mount(NamedTuple):
    """The directory at which a hierarchy is mounted, and the group that this directory represents."""

    directory: str
    root: str

    def path(self, group: str) -> str:
        """Return the directory of a group; empty if the mount does not contain the group."""
        relative = os.path.relpath(group, self.root)
        return "" if relative.startswith("..") else os.path.normpath(os.path.join(self.directory, relative))


class OomCounter:
    """Counts the processes that the kernel kills for want of memory in the memory group of this process.

    This is the group of an attempt if it has a memory controller, else the nearest group above this process that has
    one. Other processes may be in that group too, for example the other attempts of the user.
    """

    def __init__(self, group: str = "", *, else_machine: bool = False) -> None:
        """Begin to count.

        Args:
            group: the directory of the group of the attempt; empty if it has none.
            else_machine: if no group counts the killed processes, count those of the machine.
        """
        files = [os.path.join(group, _OOM_FILES[""])] if group else []
        files += [_own_oom_file(), *([_MACHINE] if else_machine else ())]
        counts = ((file, _oom_kills(file)) for file in files)
        self._file, self._earlier = next(((file, kills) for file, kills in counts if kills is not None), ("", 0))

    def count(self) -> int:
        """Return the number of processes that were killed since the beginning; 0 if the kernel does not count them."""
        return max(0, (_oom_kills(self._file) or 0) - self._earlier)


@functools.lru_cache(maxsize=1)
def _own_oom_file() -> str:
    """Return the file that counts the killed processes of the group of this process; empty if there is none."""
    mounted, own = mounts(), groups()
    for hierarchy, name in _OOM_FILES.items():
        if hierarchy in mounted and hierarchy in own:
            top = mounted[hierarchy].directory
            # In a container, the path may be that on the host, although the group is mounted as the root.
            directory = mounted[hierarchy].path(own[hierarchy]) or top
            while os.path.commonpath([top, directory]) == top:
                file = os.path.join(directory, name)
                if _oom_kills(file) is not None:
                    return file
                if directory == top:
                    break
                directory = os.path.dirname(directory)
    return ""


def _oom_kills(file: str) -> Optional[int]:
    """Return the number of killed processes in a file of the kernel; None if the file does not have it."""
    try:
        with open(file, "rb", buffering=0) as stream:
            content = stream.read().split()
    except OSError:
        return None
    count = content[content.index(b"oom_kill") + 1 :][:1] if b"oom_kill" in content else []
    return int(count[0]) if count and count[0].isdigit() else None


def groups() -> Dict[str, str]:
    """Return the group of this process in each hierarchy."""
    found = {}
    for line in lines("/proc/self/cgroup"):
        _, _, controllers_and_path = line.partition(":")
        controllers, _, path = controllers_and_path.partition(":")
        found.update(dict.fromkeys(controllers.split(","), path))
    return found


def mounts() -> Dict[str, Mount]:
    """Return the mount of each hierarchy; see proc_pid_mountinfo(5)."""
    found: Dict[str, Mount] = {}
    for line in lines("/proc/self/mountinfo"):
        mount_text, _, file_system_text = line.partition(" - ")
        mount, file_system = mount_text.split(), file_system_text.split()
        if file_system[:1] == ["cgroup2"]:
            found[""] = Mount(mount[4], mount[3])
        elif file_system[:1] == ["cgroup"]:
            found.update(dict.fromkeys(file_system[2].split(","), Mount(mount[4], mount[3])))
    return found


def lines(file: str) -> Iterator[str]:
    """Yield the lines of a file of the kernel; none if it cannot be read."""
    try:
        with open(file, encoding="utf-8", errors="surrogateescape") as stream:
            yield from (line.rstrip("\n") for line in stream)
    except OSError:
        return
