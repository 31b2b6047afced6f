"""Source code that was read can be imported where it is not installed, and replaces code that is installed."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from toolbox import agent, kit
from toolbox.kit import source_code, streams

MODULES = {
    name: (package, text) for package in (agent, kit) for name, text in source_code.read(package).items() if text
}
each_module = pytest.mark.parametrize("name", MODULES)


def imports(module: ast.Module) -> Iterator[str]:
    """Yield the names of the modules that a module imports."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_a_package_is_read_with_its_parents() -> None:
    sources = source_code.read(kit)
    assert (sources["toolbox"], sources["toolbox.kit"]) == ("", "")
    assert sources["toolbox.kit.streams"] == Path(streams.__file__).read_text()


@pytest.mark.parametrize("module", [kit, streams])
def test_the_sources_are_preferred_to_an_installed_package(tmp_path: Path, module: ModuleType) -> None:
    (tmp_path / "toolbox/kit").mkdir(parents=True)
    for file in ("toolbox/__init__.py", "toolbox/kit/__init__.py", "toolbox/kit/streams.py"):
        (tmp_path / file).write_text("raise SystemExit('this file must not be imported')\n")
    program = source_code.importable(source_code.read(module))
    program += "from toolbox.kit.streams import write_all\nwrite_all(1, b'written')\n"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, check=False)
    assert (done.stdout, done.stderr) == (b"written", b"")


@each_module
def test_a_module_of_the_agent_or_the_kit_is_valid_python_3_8(name: str) -> None:
    ast.parse(MODULES[name][1], feature_version=(3, 8))


@each_module
def test_a_module_imports_only_the_standard_library_its_package_and_the_kit(name: str) -> None:
    package, text = MODULES[name]
    needed = set(imports(ast.parse(text)))
    foreign = {each for each in needed if each.partition(".")[0] not in sys.stdlib_module_names}
    assert {each for each in foreign if not each.startswith((package.__name__, kit.__name__))} == set()
