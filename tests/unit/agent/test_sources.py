"""The agent's source runs on targets that have Python 3.8 or later and no package of Topgallant."""

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
def test_a_module_is_valid_python_3_8(file: Path) -> None:
    ast.parse(file.read_text(), feature_version=(3, 8))


@each_module
def test_a_module_imports_only_the_standard_library_and_the_agent(file: Path) -> None:
    needed = set(imports(ast.parse(file.read_text())))
    foreign = {name for name in needed if name.partition(".")[0] not in sys.stdlib_module_names}
    assert {name for name in foreign if not name.startswith("toolbox.agent")} == set()
