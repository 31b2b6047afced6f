"""Sets limits for this process and then replaces it by a program: `limits_launcher.py LIMITS PROGRAM ARGUMENT...`.

The worker starts kernels and checks with this script. The limits must exist before the program begins, and the worker
cannot set them between fork and exec, because this is not safe in a process with threads. The program has the process
ID of this script.

The memory limit is RLIMIT_DATA, which counts the memory that a process can write and that no file or other process
shares. RLIMIT_AS would also count address space that is only reserved: CUDA, Java and Go reserve much more than a
machine has, and would not start.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> None:
    """Set the limits of the first argument, a JSON object, and execute the other arguments."""
    limits, program = json.loads(arguments[0]), list(arguments[1:])
    if limits.get("cpus"):
        os.sched_setaffinity(0, limits["cpus"])
    if limits.get("memory_bytes"):
        limit_memory(limits["memory_bytes"])
    try:
        os.execvp(program[0], program)  # noqa: S606 - the script exists for this call
    except OSError as error:
        sys.exit(f"{program[0]}: {error.strerror}")


def limit_memory(size: int) -> None:
    """Limit the private writable memory of this process and of each of its children. A lower limit is kept."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    size = size if hard == resource.RLIM_INFINITY else min(size, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (size, size))


if __name__ == "__main__":
    main(sys.argv[1:])
