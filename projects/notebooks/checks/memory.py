"""The tests can use the promised memory.

Promise: `memory_gb`, in units of 1e9 bytes. The usable memory is the memory of the machine, or the lowest limit of a
control group. The resource limits of the process count only if no control group has a limit. In a control group, the
worker sets a resource limit that is lower than the limit of the group, because the worker needs memory too. 10 percent
less than promised is accepted, because the operating system keeps a part of the memory.
"""

from __future__ import annotations

import os
import re
import resource
from contextlib import suppress
from pathlib import Path
from typing import Any, Iterator

_TOLERANCE = 0.1
_GB = 1e9
_UNLIMITED = 1 << 60  # in version 1 of control groups, a huge number means no limit
_ROOT = Path("/")


def check(promises: dict[str, Any]) -> dict[str, Any]:
    """Compare the smallest limit with the promise."""
    usable, origin = min([*_machine(), *(list(control_groups(_ROOT)) or _resources())])
    found = f"{usable / _GB:.1f} GB ({origin})"
    promised = promises.get("memory_gb")
    if promised is None:
        return {"outcome": "skipped", "found": found, "message": "nothing promises `memory_gb`"}
    is_kept = usable >= (1 - _TOLERANCE) * float(promised) * _GB
    return {"outcome": "passed" if is_kept else "failed", "expected": f"about {promised} GB or more", "found": found}


def _machine() -> list[tuple[float, str]]:
    return [(float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")), "the memory of the machine")]


def control_groups(root: Path) -> Iterator[tuple[float, str]]:
    """Yield the limits of the control groups of this process, for versions 1 and 2 of control groups."""
    groups = root / "sys/fs/cgroup"
    for version_1, group in _groups(root):
        base, name = (groups / "memory", "memory.limit_in_bytes") if version_1 else (groups, "memory.max")
        for path in (base / group, *(base / group).parents):
            with suppress(OSError, ValueError):  # `max`: there is no limit
                limit = float((path / name).read_text(encoding="ascii"))
                if limit < _UNLIMITED:
                    yield limit, "the limit of the control group"
            if path == base:
                break


def _groups(root: Path) -> Iterator[tuple[bool, str]]:
    """Return the control groups for memory, with their versions."""
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            match = re.fullmatch(r"\d+:([^:]*):/?(.*)", line)
            if match and (not match[1] or "memory" in match[1].split(",")):
                # In a container, the path of the group may be that on the host, although the group is mounted as the
                # root.
                yield bool(match[1]), "" if match[2].startswith("..") else match[2]
                yield bool(match[1]), ""


def _resources() -> Iterator[tuple[float, str]]:
    for name in ("RLIMIT_DATA", "RLIMIT_AS"):
        soft, _ = resource.getrlimit(getattr(resource, name))
        if soft != resource.RLIM_INFINITY:
            yield float(soft), name
