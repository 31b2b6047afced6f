"""The packages that are sent to targets need nothing else of Topgallant, and only what a target has."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.conformance import feature_sites
from tests.conformance.sent_packages import SentPackage
from toolbox.ground import kit
from toolbox.targets import agent

PACKAGES: Final[list[SentPackage]] = [
    SentPackage(agent, (3, 8)),
    SentPackage(kit, (3, 8)),
    *feature_sites.of("SENT_PACKAGES").values(),
]
MODULES = [(package, path) for package in PACKAGES for path in sorted(package.folder.rglob("*.py"))]
each_module = pytest.mark.parametrize(("package", "path"), MODULES, ids=[path.name for _, path in MODULES])


def imported(path: Path) -> Iterator[str]:
    """Yield the names of the modules that a module imports, except by relative imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module)


@each_module
def test_a_module_imports_only_what_a_target_has(package: SentPackage, path: Path) -> None:
    own = (package.module.__name__, kit.__name__)
    foreign = {name.partition(".")[0] for name in imported(path) if not name.startswith(own)}
    assert foreign <= sys.stdlib_module_names | package.libraries


@each_module
def test_a_module_is_valid_for_the_python_of_targets(package: SentPackage, path: Path) -> None:
    version = (3, 8) if path.name in package.older_modules else package.python
    ast.parse(path.read_text(encoding="utf-8"), feature_version=version)


@pytest.mark.parametrize("package", [package for package in PACKAGES if package.is_program], ids=str)
@pytest.mark.parametrize("options", [["-I", "-S"], []])
def test_a_worker_starts_without_its_libraries_and_prefers_its_own_kit(
    tmp_path: Path, package: SentPackage, options: list[str]
) -> None:
    """Another Topgallant may be installed on the target."""
    other = tmp_path / "other/toolbox/ground/kit"
    other.mkdir(parents=True)
    for file in (other.parent / "__init__.py", other / "__init__.py"):
        file.write_text("raise SystemExit('this file must not be imported')\n")
    command = [sys.executable, *options, str(package.folder), str(tmp_path / "settings.json")]
    environment = {"PYTHONPATH": str(tmp_path / "other")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "settings.json" in done.stderr
    assert done.returncode == 2
