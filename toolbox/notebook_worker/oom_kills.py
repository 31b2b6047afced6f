"""Counts the processes that the operating system killed because memory was exhausted.

If SIGKILL ended a kernel or a check, the worker compares the count with the count before the start. Only the count
distinguishes the operating system from a person who used `kill -9`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/")


def count(root: Path = _ROOT) -> int:
    """Return how many processes were killed in the control group of this process, or on the machine without a group.

    Args:
        root: the directory that contains `proc` and `sys`.
    """
    for path in _candidates(root):
        with suppress(OSError, UnicodeDecodeError):
            if number := re.search(r"^oom_kill (\d+)$", path.read_text(encoding="ascii"), re.MULTILINE):
                return int(number[1])
    return 0


def _candidates(root: Path) -> Iterator[Path]:
    """Return the files with a count, best first.

    In a container, the path of the group may be that on the host, although the group is mounted as the root.
    """
    groups = root / "sys/fs/cgroup"
    lines: list[str] = []
    with suppress(OSError, UnicodeDecodeError):
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        group = group.lstrip("/")
        if "memory" in controllers.split(","):
            yield groups / "memory" / group / "memory.oom_control"
            yield groups / "memory/memory.oom_control"
        elif not controllers:
            yield groups / group / "memory.events"
            yield groups / "memory.events"
    yield root / "proc/vmstat"
