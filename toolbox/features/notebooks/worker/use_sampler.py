"""Samples the CPU, memory and GPU use of a process and its descendants.

The sampler is a separate process, so that a busy kernel does not delay the samples. It ends when its standard input
ends or when the process has ended. The worker sends this module as a `program` to another Python: that of the worker,
or a kernel on another machine. So the module imports only the standard library and `process_tree`, and pynvml if it is
installed.

The columns are `time` in seconds since 1970, `cpu_percent` with 200 for two busy processors, and `memory_bytes` as the
sum of the resident memory. `gpu0_percent` and `gpu0_memory_bytes` are the use of the first GPU by all programs; further
GPUs have the same columns. The memory that the driver reserves for itself is not included, as in `nvidia-smi`.
"""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TextIO

from toolbox.ground.kit import process_tree, source_code
from toolbox.ground.kit.process_tree import ProcessTree

_MAX_GPUS = 16


def program() -> str:
    """Return a program that makes the functions of this module available as `use_sampler`."""
    return source_code.program(__name__, process_tree, source_code, sys.modules[__name__])


class Gpus:
    """The NVIDIA GPUs of the machine; none without pynvml or without a driver."""

    def __init__(self) -> None:
        self._handles: list[Any] = []
        try:
            import pynvml  # type: ignore[import-untyped,unused-ignore]

            pynvml.nvmlInit()
            count = min(pynvml.nvmlDeviceGetCount(), _MAX_GPUS)
            self._handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
            self._nvml = pynvml
        except Exception:  # noqa: BLE001 - pynvml raises an exception of its own for each reason
            self._handles = []

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return [f"gpu{index}_{part}" for index in range(len(self._handles)) for part in ("percent", "memory_bytes")]

    def sample(self) -> list[float | None]:
        """Return the values of the columns; None for a value that a GPU does not report."""
        values: list[float | None] = []
        for handle in self._handles:
            values.append(_value(self._nvml.nvmlDeviceGetUtilizationRates, handle, "gpu"))
            values.append(_value(self._memory, handle, "used"))
        return values

    def _memory(self, handle: Any) -> Any:
        """Return the memory of a GPU. Drivers before version 510 count what they reserve as used."""
        try:
            return self._nvml.nvmlDeviceGetMemoryInfo(handle, version=self._nvml.nvmlMemory_v2)
        except Exception:  # noqa: BLE001 - see __init__
            return self._nvml.nvmlDeviceGetMemoryInfo(handle)


def _value(query: Callable[[Any], Any], handle: Any, name: str) -> float | None:
    """Return a value of a GPU; None if the GPU does not report it. A GPU with MIG does not report its use."""
    try:
        return float(getattr(query(handle), name))
    except Exception:  # noqa: BLE001 - see Gpus
        return None


def sample(pid: int, file: TextIO, seconds: float, wait: Callable[[float], bool]) -> None:
    """Write samples until the process has ended. The first sample has no CPU use, because this needs two points in
    time.

    Args:
        file: gets the lines.
        wait: waits for a number of seconds, and returns whether to stop.
    """
    gpus = Gpus()
    file.write(",".join(["time", "cpu_percent", "memory_bytes", *gpus.columns]) + "\n")
    tree = ProcessTree(pid)
    due, is_last = time.monotonic(), False
    if tree.first:
        _write(file, None, tree.first.memory, gpus)
    while not is_last:
        due = max(due + seconds, time.monotonic())
        is_last = wait(max(0.0, due - time.monotonic()))
        use = tree.measure()
        if use is None:
            break
        _write(file, use.percent, use.memory, gpus)


def _write(file: TextIO, percent: float | None, memory: int, gpus: Gpus) -> None:
    values = [f"{time.time():.3f}", "" if percent is None else f"{percent:.1f}", f"{memory}"]
    values += ["" if value is None else f"{value:.0f}" for value in gpus.sample()]
    file.write(",".join(values) + "\n")
    file.flush()


def _input_ends(seconds: float) -> bool:
    """Wait for the end of the standard input, and return whether it has ended."""
    return bool(select.select([sys.stdin], [], [], seconds)[0])


def write(pid: int, path: str, seconds: float) -> None:
    """Sample a process into a file until the standard input ends."""
    with suppress(OSError), open(path, "w", encoding="ascii") as file:  # noqa: PTH123 - OSError: the disk is full
        sample(pid, file, seconds, _input_ends)
