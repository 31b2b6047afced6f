"""The sampler sums the use of a process and its descendants, and writes the columns of the GPUs that answer."""

from __future__ import annotations

import csv
import io
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from toolbox.features.notebooks.worker import use_sampler, worker_processes
from toolbox.features.notebooks.worker.local_kernels import LocalKernel, PipeTail
from toolbox.ground.kit import process_tree
from toolbox.ground.kit.own_cgroups import OomCounter
from toolbox.ground.kit.process_tree import ProcessTree

BUSY = "import time; data = bytearray(50_000_000)\nwhile time.process_time() < 0.2: pass\nprint(flush=True); input()"
PARENT = (
    f"import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', {BUSY!r}], stdin=subprocess.PIPE, "
    "stdout=subprocess.PIPE); child.stdout.readline(); print(flush=True); input()"
)


@pytest.fixture(name="busy_parent")
def _busy_parent() -> Iterator[int]:
    """The ID of a process with a child that has used 0.2 s and uses 50 MB."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        yield process.pid
        process.kill()


def test_descendants_are_part_of_the_use(busy_parent: int) -> None:
    use = ProcessTree(busy_parent).first
    assert use
    assert use.memory > 50_000_000


def test_the_cpu_time_between_two_samples_is_counted() -> None:
    tree = ProcessTree(os.getpid())
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
    use = tree.measure()
    assert use
    assert use.percent > 1


def test_a_process_that_has_ended_has_no_sample() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert ProcessTree(process.pid).measure() is None


def test_a_process_that_is_ending_has_no_sample_of_0_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system removes the memory of a process some time before the process becomes a zombie."""
    monkeypatch.setattr(process_tree, "_PAGE_BYTES", 0)
    file = io.StringIO()
    use_sampler.sample(os.getpid(), file, 0.05, lambda _: True)
    assert rows(file.getvalue()) == []


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_samples_are_written_at_the_start_and_at_the_end() -> None:
    file = io.StringIO()
    use_sampler.sample(os.getpid(), file, 0.0, lambda _: True)
    first, last = rows(file.getvalue())
    assert [bool(first["cpu_percent"]), bool(last["cpu_percent"])] == [False, True]
    for row in (first, last):
        assert abs(float(row["time"]) - time.time()) < 60
        assert int(row["memory_bytes"]) > 1_000_000


class FakeNvml:
    """Two GPUs, of which the second does not tell its use, as with MIG."""

    nvmlMemory_v2 = 2  # noqa: N815

    @staticmethod
    def nvmlInit() -> None:  # noqa: N802 - the names of NVML
        pass

    @staticmethod
    def nvmlDeviceGetCount() -> int:  # noqa: N802
        return 2

    @staticmethod
    def nvmlDeviceGetHandleByIndex(index: int) -> int:  # noqa: N802
        return index

    @staticmethod
    def nvmlDeviceGetUtilizationRates(handle: int) -> Any:  # noqa: N802
        if handle == 1:
            raise RuntimeError("Not Supported")
        return SimpleNamespace(gpu=73)

    @staticmethod
    def nvmlDeviceGetMemoryInfo(handle: int, version: int | None = None) -> Any:  # noqa: N802
        return SimpleNamespace(used=1000 + handle if version == FakeNvml.nvmlMemory_v2 else 5000 + handle)


def test_each_gpu_has_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml)
    file = io.StringIO()
    use_sampler.sample(os.getpid(), file, 0.0, lambda _: True)
    _, row = rows(file.getvalue())
    assert [row[f"gpu{index}_{part}"] for index in (0, 1) for part in ("percent", "memory_bytes")] == [
        *("73", "1000"),
        *("", "1001"),
    ]


def test_a_driver_may_not_know_what_it_reserves(monkeypatch: pytest.MonkeyPatch) -> None:
    class OlderNvml(FakeNvml):
        @staticmethod
        def nvmlDeviceGetMemoryInfo(handle: int, version: int | None = None) -> Any:  # noqa: N802
            if version is not None:
                raise RuntimeError("Function Not Found")
            return SimpleNamespace(used=5000 + handle)

    monkeypatch.setitem(sys.modules, "pynvml", OlderNvml)
    assert use_sampler.Gpus().sample() == [73.0, 5000.0, None, 5001.0]


def test_without_nvml_there_are_no_columns_of_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert use_sampler.Gpus().columns == []


def test_the_program_writes_until_its_input_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_processes, "END_SECONDS", 60.0)
    path = tmp_path / "samples.csv"
    with LocalKernel(None, SimpleNamespace(pid=os.getpid()), PipeTail(), OomCounter()).sampling(path, 600):
        pass
    assert len(rows(path.read_text())) == 2
