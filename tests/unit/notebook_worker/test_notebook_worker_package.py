"""The package can be sent to a target alone, and begins its work before its libraries exist."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolbox.system import places

PACKAGE = places.builtin_root() / "toolbox/notebook_worker"
LIBRARIES = {
    *("jupyter_client", "jupyter_core", "nbclient", "nbformat", "papermill", "pynvml", "tornado", "zmq"),
    "toolbox",
}
FOR_THE_PYTHON_OF_RUNTIMES = ["python_check_harness.py", "use_sampler.py"]


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module)


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.name)
def test_a_module_imports_only_what_a_target_has(path: Path) -> None:
    names = set(imported(path))
    assert {name.split(".")[0] for name in names} - set(sys.stdlib_module_names) <= LIBRARIES
    assert all(name.startswith("toolbox.notebook_worker") for name in names if name.split(".")[0] == "toolbox")


def test_the_worker_starts_without_its_libraries(tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-S", str(PACKAGE), str(tmp_path / "settings.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "settings.json: " in done.stderr
    assert done.returncode == 2


@pytest.mark.parametrize("name", FOR_THE_PYTHON_OF_RUNTIMES)
def test_a_file_for_the_python_of_runtimes_is_valid_for_python_3_8(name: str) -> None:
    ast.parse((PACKAGE / name).read_text(encoding="utf-8"), feature_version=(3, 8))
