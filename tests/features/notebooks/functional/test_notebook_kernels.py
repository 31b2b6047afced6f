"""Kernels on this machine are found, limited, and ended with all their processes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from tests.features.notebooks.fakes.interpreter import FakeInterpreter
from tests.features.notebooks.functional import notebook_runs
from toolbox.features.notebooks.worker import execution, local_place
from toolbox.features.notebooks.worker.execution_place import PlaceError
from toolbox.features.notebooks.worker.local_place import LocalPlace
from toolbox.features.notebooks.worker.notebook_results import Fault, TestOutcome, TestResult
from toolbox.features.notebooks.worker.notebook_settings import Limits, NotebookSettings, Settings
from toolbox.ground.kit.own_cgroups import OomCounter


def opened(tmp_path: Path, *, limits: dict[str, Any] | None = None, **runtime: Any) -> Any:
    """Open a place for a runtime of this Python."""
    document = {
        "runtime": {"name": "r", "python": sys.executable, **runtime},
        "limits": limits or {},
        "environments": str(tmp_path / "cache"),
    }
    return local_place.opened(Settings.from_json(document), None, tmp_path)


@pytest.fixture(name="place")
def _place(tmp_path: Path) -> Iterator[LocalPlace]:
    with opened(tmp_path) as place:
        yield place


def executed(place: LocalPlace, tmp_path: Path, source: str) -> TestResult:
    """Execute a notebook with one cell."""
    (tmp_path / "src").mkdir()
    nbformat.write(new_notebook(cells=[new_code_cell(source)]), tmp_path / "src/n.ipynb")
    settings = NotebookSettings("n", "n.ipynb")
    return execution.run(
        settings, place, sources=tmp_path / "src", directory=tmp_path, limits=Limits(), sample_seconds=0.05
    )


def printed(tmp_path: Path) -> str:
    """Return what the first cell of the executed notebook printed."""
    return str(nbformat.read(tmp_path / "executed/n.ipynb", as_version=4).cells[0].outputs[0].text)


def test_a_notebook_is_executed_by_the_python_of_the_runtime(place: LocalPlace, tmp_path: Path) -> None:
    source = "import os, sys; print(sys.executable, os.environ['IPYTHONDIR'])"
    assert executed(place, tmp_path, source).outcome is TestOutcome.PASSED
    assert printed(tmp_path).split() == [sys.executable, str(place.private / "ipython")]


def test_a_kernel_has_the_memory_and_the_processors_of_the_limits(tmp_path: Path) -> None:
    source = "import os; print(os.sched_getaffinity(0)); data = bytearray(2_000_000_000)"
    with opened(tmp_path, limits={"cpus": 1, "memory_bytes": 1_000_000_000}) as place:
        result = executed(place, tmp_path, source)
    assert (result.outcome, result.fault) == (TestOutcome.FAILED, Fault.OUT_OF_MEMORY)
    assert printed(tmp_path).strip() == str(set(place.cpus))


@pytest.mark.parametrize(("kills", "fault"), [(0, Fault.KERNEL_DIED), (1, Fault.OUT_OF_MEMORY)])
def test_a_kernel_that_was_killed_is_told_apart_from_exhausted_memory(
    place: LocalPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int, fault: Fault
) -> None:
    monkeypatch.setattr(OomCounter, "count", lambda _: kills)
    result = executed(place, tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert (result.outcome, result.fault) == (TestOutcome.FAILED, fault)


def test_processes_of_a_kernel_end_with_it(place: LocalPlace, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "left")
    outlet = os.open(tmp_path / "left", os.O_RDONLY | os.O_NONBLOCK)
    source = f"import subprocess; subprocess.Popen(['sleep', '600'], stdout=open({str(tmp_path / 'left')!r}, 'w'))"
    assert executed(place, tmp_path, source).outcome is TestOutcome.PASSED
    os.set_blocking(outlet, True)
    assert os.read(outlet, 1) == b""  # no process has the other end
    os.close(outlet)


def test_a_kernel_that_does_not_end_is_killed(
    place: LocalPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolbox.features.notebooks.worker.local_kernels.SHUTDOWN_SECONDS", 0.2)
    source = (
        "import atexit, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); atexit.register(time.sleep, 600)"
    )
    assert executed(place, tmp_path, source).outcome is TestOutcome.PASSED


def test_the_use_of_a_kernel_is_sampled(place: LocalPlace, tmp_path: Path) -> None:
    samples = tmp_path / "samples/n.csv"
    source = "data = bytearray(200_000_000)\n" + notebook_runs.busy_while_sampled(samples, seconds=0.3)
    result = executed(place, tmp_path, source)
    assert result.notebook
    (cell,) = result.notebook.cells
    assert cell.peak_memory_bytes
    assert cell.peak_memory_bytes > 200_000_000
    assert cell.cpu_seconds
    assert cell.cpu_seconds > 0.1


def write_kernel(folder: Path, name: str, *argv: str, language: str = "python") -> None:
    (folder / "kernels" / name).mkdir(parents=True)
    specification = {"argv": argv, "display_name": name, "language": language}
    (folder / "kernels" / name / "kernel.json").write_text(json.dumps(specification))


@pytest.fixture(name="kernels")
def _kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with specifications of kernels."""
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    return tmp_path / "jupyter"


def test_a_kernel_of_the_machine_is_used_by_its_name(tmp_path: Path, kernels: Path) -> None:
    write_kernel(kernels, "mine", "python3", "-m", "ipykernel_launcher", "-f", "{connection_file}")
    with opened(tmp_path, kernel="mine") as place:
        assert executed(place, tmp_path, "import sys; print(sys.executable)").outcome is TestOutcome.PASSED
    assert printed(tmp_path).strip() == sys.executable


def test_a_missing_kernel_is_told_with_those_that_exist(tmp_path: Path, kernels: Path) -> None:
    write_kernel(kernels, "mine", "python3")
    with opened(tmp_path, kernel="other") as place, pytest.raises(PlaceError) as caught:
        place.kernel(tmp_path)
    assert caught.value.fault is Fault.NO_KERNEL
    assert "the kernel other does not exist; kernels of this machine: " in str(caught.value)
    assert "mine" in str(caught.value)


def test_a_kernel_whose_program_is_missing_is_told(tmp_path: Path, kernels: Path) -> None:
    write_kernel(kernels, "mine", "/nowhere/R", language="R")
    with (
        opened(tmp_path, kernel="mine") as place,
        pytest.raises(PlaceError, match="program of the kernel mine"),
    ):
        place.kernel(tmp_path)


def test_a_python_check_needs_a_python_kernel(tmp_path: Path, kernels: Path) -> None:
    write_kernel(kernels, "mine", "sh", language="bash")
    with opened(tmp_path, kernel="mine") as place, pytest.raises(PlaceError, match="mine is not a Python kernel"):
        place.python("", timeout=60)


@pytest.mark.parametrize(
    ("error", "fault", "message"),
    [
        ("No module named ipykernel_launcher", Fault.NO_KERNEL, "has no ipykernel; install it there"),
        ("MemoryError", Fault.OUT_OF_MEMORY, "its memory limit is too low"),
        ("something else", Fault.NO_KERNEL, "something else"),
    ],
)
def test_a_kernel_that_does_not_start_tells_why(tmp_path: Path, error: str, fault: Fault, message: str) -> None:
    interpreter = FakeInterpreter(tmp_path)
    Path(interpreter.path).write_text(f"#!/bin/sh\necho '{error}' >&2\nexit 1\n")
    with (
        opened(tmp_path, python=interpreter.path) as place,
        pytest.raises(PlaceError, match=message) as caught,
        place.kernel(tmp_path),
    ):
        pass
    assert caught.value.fault is fault
