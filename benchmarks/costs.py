"""What a run of cells cost: what the benchmarks of cells share."""

from __future__ import annotations

import os
import resource
import sys
import time
from dataclasses import dataclass

from toolbox.testing import Workspace

_PATIENCE = 3600.0


@dataclass(frozen=True)
class Cost:
    """What a number of cells cost, in seconds; memory in MB is the largest of a process, so far."""

    cells: int
    wall: float
    cpu: float
    memory: float

    @property
    def cpu_ms(self) -> float:
        """Milliseconds of processor time a cell."""
        return 1e3 * self.cpu / self.cells

    def __str__(self) -> str:
        wall = 1e3 * self.wall / self.cells
        cells = f"{self.cells} cell{'s' if self.cells > 1 else ''}"
        return f"{self.cpu_ms:5.1f} ms of CPU, {wall:5.1f} ms of wall time a cell, {self.memory:4.0f} MB ({cells})"


def of_run(work: Workspace, cells: int, *args: str) -> Cost:
    """Run the project `cells`, and return what that cost, with all that it started.

    A workspace has a home of its own, in which its first run would make the store; where the benchmark names a
    `$XDG_STATE_HOME`, its runs share that one, as the runs of a user do. Modules are compiled once, as they are there.
    """
    shared = {name: os.environ[name] for name in ("XDG_STATE_HOME",) if name in os.environ}
    shared["PYTHONDONTWRITEBYTECODE"] = ""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    with work.start("project", "run", "cells", *args, env=shared) as running:
        outcome = running.wait(_PATIENCE)
    wall = time.perf_counter() - began
    if outcome.exit_code != 0:
        sys.exit(str(outcome)[-2000:])
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    return Cost(cells, wall, cpu, used.ru_maxrss / 1024)
