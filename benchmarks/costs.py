"""Measures the cost of a run, for the benchmarks of cells."""

from __future__ import annotations

import os
import resource
import sys
import time
from dataclasses import dataclass

from toolbox.testing import Workspace

_TIMEOUT = 3600.0


@dataclass(frozen=True)
class Cost:
    """The cost of a number of cells.

    Args:
        wall: wall time, in seconds.
        cpu: processor time, in seconds.
        memory: the largest memory of any process so far, in MB.
    """

    cells: int
    wall: float
    cpu: float
    memory: float

    @property
    def cpu_ms(self) -> float:
        """Milliseconds of processor time per cell."""
        return 1e3 * self.cpu / self.cells

    def __str__(self) -> str:
        wall = 1e3 * self.wall / self.cells
        cells = f"{self.cells} cell{'s' if self.cells > 1 else ''}"
        return f"{self.cpu_ms:5.1f} ms of CPU, {wall:5.1f} ms of wall time per cell, {self.memory:4.0f} MB ({cells})"


def of_run(work: Workspace, cells: int, *args: str) -> Cost:
    """Run the project `cells`, and return the cost of the run, which includes all processes that the run started.

    If the benchmark sets `$XDG_STATE_HOME`, its runs share the store in this directory, as the runs of a user do.
    If the variable is not set, each workspace has its own home, in which the first run creates a store.
    """
    shared = {name: os.environ[name] for name in ("XDG_STATE_HOME",) if name in os.environ}
    shared["PYTHONDONTWRITEBYTECODE"] = ""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    with work.start("project", "run", "cells", *args, env=shared) as running:
        outcome = running.wait(_TIMEOUT)
    wall = time.perf_counter() - began
    if outcome.exit_code != 0:
        sys.exit(str(outcome)[-2000:])
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    return Cost(cells, wall, cpu, used.ru_maxrss / 1024)
