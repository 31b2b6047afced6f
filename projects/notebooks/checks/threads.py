"""The tests can use the promised processors, and numeric libraries start no more threads than that.

Promise: `cpus`. A program becomes slow if a library starts a thread for each processor of the machine, although the
tests may use fewer processors.
"""

from __future__ import annotations

import importlib.util
import math
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Iterator

_ROOT = Path("/")


def check(promises: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Compare the processors with the promise, and the threads of the libraries with the processors."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = control_group_quota(_ROOT)
    usable = min(processors, quota or math.inf)
    found = f"{usable:g} processors" + (f" (a quota of the control group, {processors} visible)" if quota else "")
    promised = promises.get("cpus")
    if promised is None:
        yield {"name": "cpus", "outcome": "skipped", "found": found, "message": "nothing promises `cpus`"}
    else:
        is_kept = usable >= float(promised)
        outcome = "passed" if is_kept else "failed"
        yield {"name": "cpus", "outcome": outcome, "expected": f"{promised} processors or more", "found": found}
    yield from _libraries(math.ceil(usable))


def _libraries(usable: int) -> Iterator[dict[str, Any]]:
    for name, count in (("numpy", _numpy_threads), ("torch", _torch_threads)):
        if importlib.util.find_spec(name) is not None:
            threads = count()
            yield {
                "name": name,
                "outcome": "passed" if threads <= usable else "failed",
                "expected": f"at most {usable} threads",
                "found": f"{threads} threads; set OMP_NUM_THREADS" if threads > usable else f"{threads} threads",
            }


def control_group_quota(root: Path) -> float | None:
    """Return the processors that the control group of the process may use; None without a limit."""
    groups = root / "sys/fs/cgroup"
    with suppress(OSError, ValueError):
        quota, period = map(float, (groups / "cpu.max").read_text(encoding="ascii").split())  # `max`: no limit
        return quota / period
    with suppress(OSError, ValueError):
        quota = float((groups / "cpu/cpu.cfs_quota_us").read_text(encoding="ascii"))
        period = float((groups / "cpu/cpu.cfs_period_us").read_text(encoding="ascii"))
        return quota / period if quota > 0 else None
    return None


def _numpy_threads() -> int:
    """Return how many threads multiply matrices: the calling thread, and the threads that NumPy has started."""
    before = _threads()
    import numpy as np

    matrix = np.ones((512, 512))
    matrix @ matrix
    return 1 + max(0, _threads() - before)


def _torch_threads() -> int:
    import torch  # type: ignore[import-not-found,unused-ignore]

    return int(torch.get_num_threads())


def _threads() -> int:
    """Return the number of threads of this process, also of threads that Python did not start."""
    with suppress(OSError):
        return len(list(Path("/proc/self/task").iterdir()))
    return threading.active_count()
