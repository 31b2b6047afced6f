"""The Python checks compare a runtime with what it promises, and are skipped where it promises nothing."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.features.notebooks.unit.projects.notebooks.conftest import CHECKS, RunCheck
from toolbox.features.notebooks.worker.notebook_results import TestOutcome, TestResult

PASSED, FAILED, SKIPPED, ERROR = TestOutcome.PASSED, TestOutcome.FAILED, TestOutcome.SKIPPED, TestOutcome.ERROR
NUMPY = importlib.metadata.version("numpy")


def outcomes(results: list[TestResult]) -> dict[str, TestOutcome]:
    return {result.name: result.outcome for result in results}


def loaded(name: str) -> ModuleType:
    """Import a check, to call its functions."""
    specification = importlib.util.spec_from_file_location(f"check_{name}", CHECKS / f"{name}.py")
    assert specification
    assert specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["imports", "packages", "memory", "threads"])
def test_a_check_without_promises_is_skipped_with_a_reason(run_check: RunCheck, name: str) -> None:
    first = run_check(f"{name}.py")[0]
    assert first.outcome is SKIPPED
    assert first.message.startswith("nothing promises")


@pytest.mark.parametrize(
    ("promised", "outcome"),
    [
        ("", PASSED),
        (None, PASSED),
        (">=1,<99", PASSED),
        (NUMPY, PASSED),
        (NUMPY.rpartition(".")[0], PASSED),
        ("<1", FAILED),
        ("1", FAILED),
        ("new", ERROR),
    ],
)
def test_packages_compares_versions(run_check: RunCheck, promised: str | None, outcome: TestOutcome) -> None:
    (result,) = run_check("packages.py", packages={"numpy": promised})
    assert (result.name, result.outcome, result.found) == ("packages:numpy", outcome, NUMPY)


def test_packages_names_a_package_that_is_not_installed(run_check: RunCheck) -> None:
    (result,) = run_check("packages.py", packages={"nowhere": ">=1"})
    assert (result.outcome, result.message) == (FAILED, "expected >=1, found not installed")


def test_packages_uses_the_copy_of_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "packaging.specifiers", None)
    (result,) = loaded("packages").check({"packages": {"numpy": ">=1"}})
    assert result["outcome"] == "passed"


def test_imports_imports_each_module(run_check: RunCheck) -> None:
    results = run_check("imports.py", imports=["json", "module_nowhere"])
    assert outcomes(results) == {"imports:json": PASSED, "imports:module_nowhere": FAILED}
    assert results[1].found == "ModuleNotFoundError: No module named 'module_nowhere'"


def test_imports_finds_the_modules_of_promised_packages(run_check: RunCheck) -> None:
    results = run_check("imports.py", packages={"numpy": "", "python-dateutil": "", "six": "", "nowhere": ""})
    assert outcomes(results) == {"imports:numpy": PASSED, "imports:dateutil": PASSED, "imports:six": PASSED}


def test_imports_survives_a_module_that_crashes(
    run_check: RunCheck, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "crashes.py").write_text("import os; os.abort()")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    results = run_check("imports.py", imports=["crashes", "json"])
    assert outcomes(results) == {"imports:crashes": FAILED, "imports:json": PASSED}
    assert results[0].found == "the interpreter ended with status -6"


def test_tensor_computes_with_numpy_without_a_framework(run_check: RunCheck) -> None:
    (result,) = run_check("tensor.py", gpus=1)
    assert (result.name, result.outcome, result.found) == ("tensor:numpy", PASSED, "the exact product, on cpu")


def test_tensor_fails_without_a_framework_for_a_promised_gpu(run_check: RunCheck) -> None:
    (result,) = run_check("tensor.py", device="cuda")
    assert (result.outcome, result.found) == (FAILED, "no PyTorch, JAX or TensorFlow")


def fake_torch(*, has_gpu: bool, error: float = 0.0) -> Any:
    """A module with the functions of PyTorch that the check uses."""
    import numpy as np

    class Tensor:
        def __init__(self, values: Any, device: str) -> None:
            assert device == ("cuda" if has_gpu else "cpu")
            self.values = np.array(values)

        def __matmul__(self, other: Any) -> Any:
            return SimpleNamespace(cpu=lambda: self.values @ other.values + error)

    cuda = SimpleNamespace(is_available=lambda: has_gpu, get_device_name=lambda: "H100")
    return SimpleNamespace(cuda=cuda, tensor=Tensor)


@pytest.mark.parametrize(
    ("torch", "promises", "outcome", "found"),
    [
        (fake_torch(has_gpu=True), {"gpus": 1}, "passed", "the exact product, on cuda (H100)"),
        (fake_torch(has_gpu=False), {"gpus": 1}, "failed", "the exact product, on cpu"),
        (fake_torch(has_gpu=False), {"gpus": 1, "device": "cpu"}, "passed", "the exact product, on cpu"),
        (fake_torch(has_gpu=False), {"device": "cuda"}, "failed", "the exact product, on cpu"),
        (fake_torch(has_gpu=True, error=1e-3), {}, "failed", "wrong numbers, on cuda (H100)"),
        (SimpleNamespace(), {}, "failed", "AttributeError: "),
    ],
)
def test_tensor_compares_numbers_and_device(
    monkeypatch: pytest.MonkeyPatch, torch: Any, promises: Mapping[str, Any], outcome: str, found: str
) -> None:
    tensor = loaded("tensor")
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(tensor, "_is_installed", lambda name: name == "torch")
    (result,) = tensor.check(promises)
    assert (result["name"], result["outcome"]) == ("torch", outcome)
    assert result["found"].startswith(found)


def test_memory_compares_the_smallest_limit(run_check: RunCheck) -> None:
    (few,), (many,) = (run_check("memory.py", memory_gb=size) for size in (0.01, 10**6))
    assert (few.outcome, many.outcome) == (PASSED, FAILED)
    assert many.found == few.found


def test_memory_considers_the_resource_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = loaded("memory")
    limits = {resource.RLIMIT_DATA: 3_000_000_000}
    monkeypatch.setattr(memory, "control_groups", lambda _: [])
    monkeypatch.setattr(resource, "getrlimit", lambda number: (limits.get(number, resource.RLIM_INFINITY), -1))
    monkeypatch.setattr(memory, "_machine", lambda: [(64e9, "the memory of the machine")])
    assert memory.check({"memory_gb": 3.2})["outcome"] == "passed"
    assert memory.check({"memory_gb": 4}) == {
        "outcome": "failed",
        "expected": "about 4 GB or more",
        "found": "3.0 GB (RLIMIT_DATA)",
    }


@pytest.mark.parametrize(
    ("groups", "file", "limit"),
    [
        ("0::/a/b\n", "memory.max", "1000"),
        ("0::/a/b\n", "a/memory.max", "1000"),
        ("4:memory:/host/a\n", "memory/memory.limit_in_bytes", "1000"),
        ("0::/../other\n", "memory.max", "1000"),
        ("0::/\n", "memory.max", "max"),
        ("4:memory:/\n", "memory/memory.limit_in_bytes", "9223372036854771712"),
    ],
)
def test_memory_reads_the_limits_of_control_groups(tmp_path: Path, groups: str, file: str, limit: str) -> None:
    for path, content in (("proc/self/cgroup", groups), (f"sys/fs/cgroup/{file}", limit)):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(content)
    limits = {size for size, _ in loaded("memory").control_groups(tmp_path)}
    assert limits == ({1000.0} if limit == "1000" else set())


def test_threads_compares_processors(run_check: RunCheck) -> None:
    usable = len(os.sched_getaffinity(0))
    assert outcomes(run_check("threads.py", cpus=usable + 1))["threads:cpus"] is FAILED
    assert run_check("threads.py", cpus=1)[0].expected == "1 processors or more"


def test_threads_of_numpy_are_counted(run_check: RunCheck, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    results = {result.name: result for result in run_check("threads.py")}
    assert (results["threads:numpy"].outcome, results["threads:numpy"].found) == (PASSED, "1 threads")


def test_threads_finds_a_library_with_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = loaded("threads")
    monkeypatch.setattr(threads, "_numpy_threads", lambda: 64)
    (result,) = [result for result in threads._libraries(2) if result["name"] == "numpy"]
    assert (result["outcome"], result["found"]) == ("failed", "64 threads; set OMP_NUM_THREADS")


@pytest.mark.parametrize(
    ("file", "content", "quota"),
    [("cpu.max", "150000 100000", 1.5), ("cpu.max", "max 100000", None), ("none", "", None)],
)
def test_threads_reads_the_quota_of_the_control_group(
    tmp_path: Path, file: str, content: str, quota: float | None
) -> None:
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup" / file).write_text(content)
    assert loaded("threads").control_group_quota(tmp_path) == quota


@pytest.mark.parametrize("path", sorted(CHECKS.glob("*.py")), ids=lambda path: path.name)
def test_a_check_is_valid_for_python_3_8(path: Path) -> None:
    program = f"import ast; ast.parse(open({str(path)!r}).read(), feature_version=(3, 8))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
