"""The agent is sent as text to machines that have a Python of their own, and nothing else of ours."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolbox import agent

MODULES = sorted(Path(agent.__file__).parent.glob("*.py"))
each_module = pytest.mark.parametrize("file", MODULES, ids=lambda file: file.stem)


def imports(tree: ast.Module) -> Iterator[str]:
    """Yield the names of the modules that a module imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


@each_module
def test_a_module_is_understood_by_python_3_8(file: Path) -> None:
    ast.parse(file.read_text(), feature_version=(3, 8))


@each_module
def test_a_module_needs_only_the_standard_library_and_its_neighbours(file: Path) -> None:
    needed = set(imports(ast.parse(file.read_text())))
    foreign = {name for name in needed if name.partition(".")[0] not in sys.stdlib_module_names}
    assert {name for name in foreign if not name.startswith("toolbox.agent")} == set()
