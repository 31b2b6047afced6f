"""Samples the CPU, memory and GPU use of a process and its descendants: `use_sampler.py PID FILE SECONDS`.

The sampler is a separate process, so that a busy kernel does not delay the samples. It ends when its standard input
ends or when the process has ended. A Python kernel on another machine can also execute the source of this file and call
`sample`. So the file imports only the standard library, and pynvml if it is installed.

The columns are `time` in seconds since 1970, `cpu_percent` with 200 for two busy processors, and `memory_bytes` as the
sum of the resident memory. `gpu0_percent` and `gpu0_memory_bytes` are the use of the first GPU by all programs; further
GPUs have the same columns. The memory that the driver reserves for itself is not included, as in `nvidia-smi`.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TextIO

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MOST_GPUS = 16
_AFTER_NAME = 2  # the index of the first field after the name in /proc/PID/stat, counted from 0
_UTIME, _STIME, _STARTED, _RSS = (field - _AFTER_NAME for field in (13, 14, 21, 23))


def command(pid: int, path: Path, seconds: float) -> list[str]:
    """Return the command that samples a process."""
    return [sys.executable, "-I", str(Path(__file__)), str(pid), str(path), str(seconds)]


class Use(NamedTuple):
    """The resource use of a process. The start time distinguishes it from a later process with the same ID."""

    started: int
    ticks: int
    memory: int


class ProcessTree:
    """A process and all its descendants, also those whose parents have ended since an earlier call.

    Args:
        pid: the process.
    """

    def __init__(self, pid: int) -> None:
        self._root = pid
        self._members: dict[int, Use] = {}
        self._last = time.monotonic()
        self.sample()

    def sample(self) -> list[float] | None:
        """Return the CPU use in percent since the last call and the memory in bytes; None if the root has ended."""
        now = time.monotonic()
        members: dict[int, Use] = {}
        waiting = [self._root, *self._members]
        while waiting:
            pid = waiting.pop()
            use = None if pid in members else _use(pid)
            before = self._members.get(pid)
            if use is not None and (before is None or before.started == use.started):
                members[pid] = use
                waiting += _children(pid)
        ticks = sum(
            use.ticks - (self._members[pid].ticks if pid in self._members else 0) for pid, use in members.items()
        )
        percent = 100 * ticks / _TICKS / max(now - self._last, 1e-3)
        self._members, self._last = members, now
        return [percent, self.memory] if self._root in members else None

    @property
    def memory(self) -> float:
        """The memory of all members at the last sample, in bytes."""
        return sum(use.memory for use in self._members.values())


def _use(pid: int) -> Use | None:
    """Return the use of a process; None if it has ended. A process that is ending has no memory any more."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib is three times as slow here
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    if not fields or fields[0] in b"ZX":
        return None
    memory = int(fields[_RSS]) * _PAGE
    return Use(int(fields[_STARTED]), int(fields[_UTIME]) + int(fields[_STIME]), memory) if memory else None


def _children(pid: int) -> Iterator[int]:
    """Return the children of the threads of a process."""
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - see _use
            with suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb") as file:  # noqa: PTH123
                yield from map(int, file.read().split())


class Gpus:
    """The NVIDIA GPUs of the machine; none without pynvml or without a driver."""

    def __init__(self) -> None:
        self._handles: list[Any] = []
        try:
            import pynvml  # type: ignore[import-untyped,unused-ignore]

            pynvml.nvmlInit()
            count = min(pynvml.nvmlDeviceGetCount(), _MOST_GPUS)
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
    if tree.memory:
        _write(file, None, tree.memory, gpus)
    while not is_last:
        due = max(due + seconds, time.monotonic())
        is_last = wait(max(0.0, due - time.monotonic()))
        use = tree.sample()
        if use is None:
            break
        _write(file, use[0], use[1], gpus)


def _write(file: TextIO, percent: float | None, memory: float, gpus: Gpus) -> None:
    values = [f"{time.time():.3f}", "" if percent is None else f"{percent:.1f}", f"{memory:.0f}"]
    values += ["" if value is None else f"{value:.0f}" for value in gpus.sample()]
    file.write(",".join(values) + "\n")
    file.flush()


def _input_ends(seconds: float) -> bool:
    """Wait for the end of the standard input, and return whether it has ended."""
    return bool(select.select([sys.stdin], [], [], seconds)[0])


def main(arguments: list[str]) -> None:
    """Sample the process of the arguments."""
    pid, path, seconds = arguments
    with suppress(OSError), open(path, "w", encoding="ascii") as file:  # noqa: PTH123 - OSError: the disk is full
        sample(int(pid), file, float(seconds), _input_ends)


if __name__ == "__main__":
    main(sys.argv[1:])
