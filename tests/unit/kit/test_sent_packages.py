"""The packages that are sent to targets need nothing else of Topgallant, and only what a target has."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from toolbox import agent, inference_client, kit, notebook_worker

JUPYTER = {"jupyter_client", "jupyter_core", "nbclient", "nbformat", "papermill", "pynvml", "tornado", "zmq"}
PACKAGES: dict[ModuleType, tuple[tuple[int, int], set[str]]] = {
    agent: ((3, 8), set()),
    kit: ((3, 8), set()),
    inference_client: ((3, 10), {"google", "grpc", "h11", "httpx"}),
    notebook_worker: ((3, 10), JUPYTER),
}
FOR_THE_PYTHON_OF_RUNTIMES = {"python_check_harness.py", "server_programs.py", "use_sampler.py"}


def folder(package: ModuleType) -> Path:
    return Path(str(package.__file__)).parent


MODULES = [(package, path) for package in PACKAGES for path in sorted(folder(package).rglob("*.py"))]
each_module = pytest.mark.parametrize(("package", "path"), MODULES, ids=[path.name for _, path in MODULES])


def imported(path: Path) -> Iterator[str]:
    """Yield the names of the modules that a module imports, except by relative imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module)


@each_module
def test_a_module_imports_only_what_a_target_has(package: ModuleType, path: Path) -> None:
    _, libraries = PACKAGES[package]
    foreign = {name for name in imported(path) if not name.startswith((package.__name__, kit.__name__))}
    assert {name.partition(".")[0] for name in foreign} <= sys.stdlib_module_names | libraries


@each_module
def test_a_module_is_valid_for_the_python_of_targets(package: ModuleType, path: Path) -> None:
    version = (3, 8) if path.name in FOR_THE_PYTHON_OF_RUNTIMES else PACKAGES[package][0]
    ast.parse(path.read_text(encoding="utf-8"), feature_version=version)


@pytest.mark.parametrize("package", [inference_client, notebook_worker], ids=lambda package: package.__name__)
@pytest.mark.parametrize("options", [["-I", "-S"], []])
def test_a_worker_starts_without_its_libraries_and_prefers_its_own_kit(
    tmp_path: Path, package: ModuleType, options: list[str]
) -> None:
    """Another Topgallant may be installed on the target."""
    other = tmp_path / "other/toolbox/kit"
    other.mkdir(parents=True)
    for file in (other.parent / "__init__.py", other / "__init__.py"):
        file.write_text("raise SystemExit('this file must not be imported')\n")
    command = [sys.executable, *options, str(folder(package)), str(tmp_path / "settings.json")]
    environment = {"PYTHONPATH": str(tmp_path / "other")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "settings.json" in done.stderr
    assert done.returncode == 2
