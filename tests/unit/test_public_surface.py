"""The public surface is a recorded list, and projects, examples and documentation use nothing else."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator

import pytest

from toolbox.ground.system import places

ROOT = places.builtin_root()
RECORD = ROOT / "tests/unit/public_surface.txt"
FEATURES = sorted(f"toolbox.features.{file.parent.name}.public" for file in ROOT.glob("toolbox/features/*/public.py"))
CORE = ["toolbox.api", "toolbox.extensions", "toolbox.testing"]


def described(module: str) -> list[str]:
    """Return a line for each public name of a module: the name, and the signature or the members of its object."""
    return [f"{module}.{name}{signature(getattr(importlib.import_module(module), name))}" for name in public(module)]


def public(module: str) -> list[str]:
    """Return the public names of a module."""
    loaded = importlib.import_module(module)
    own = [name for name, value in vars(loaded).items() if getattr(value, "__module__", None) == module]
    return sorted(getattr(loaded, "__all__", None) or [name for name in own if not name.startswith("_")])


def signature(value: object) -> str:
    """Return the parameters of a function, the public members of a class, or the public functions of a module."""
    if inspect.isfunction(value):
        return f"({', '.join(inspect.signature(value).parameters)})"
    if inspect.isclass(value):
        members = {*vars(value), *vars(value).get("__annotations__", {})}
        return f": {', '.join(sorted(name for name in members if not name.startswith('_')))}"
    if inspect.ismodule(value):
        functions = [name for name, each in vars(value).items() if getattr(each, "__module__", "") == value.__name__]
        return f": {', '.join(sorted(name for name in functions if not name.startswith('_')))}"
    return ""


def test_the_public_surface_is_as_recorded() -> None:
    """To change the surface is a decision: change the file in the same commit, and write it into CHANGELOG.md."""
    recorded = RECORD.read_text(encoding="utf-8").splitlines()
    present = [line.rstrip(": ") for module in (*CORE, *FEATURES) for line in described(module)]
    assert present == [line for line in recorded if _is_present(line)]


@pytest.mark.parametrize("module", [*CORE[:2], *FEATURES])
def test_type_checkers_and_python_find_the_same_names(module: str) -> None:
    loaded = importlib.import_module(module)
    imported = {
        alias.asname or alias.name: f"{node.module}:{alias.name}"
        for block in ast.parse(inspect.getsource(loaded)).body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported == loaded._HOMES
    assert sorted(imported) == sorted(loaded.__all__)


def _is_present(line: str) -> bool:
    """Tell whether the module of a line is in this copy: a feature may have been left out."""
    return any(line.startswith(f"{module}.") for module in (*CORE, *FEATURES))


def recorded_modules() -> set[str]:
    """Return the modules of the record, also those of features that have been left out of this copy."""
    lines = RECORD.read_text(encoding="utf-8").splitlines()
    return {re.split("[(:]", line)[0].rpartition(".")[0] for line in lines}


def imports(source: str) -> Iterator[str]:
    """Yield the modules of Topgallant that a source imports."""
    for node in ast.walk(ast.parse(textwrap.dedent(source))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "toolbox":
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from names if names <= {*CORE, *FEATURES} else {str(node.module)}
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] == "toolbox")


def sources() -> Iterator[tuple[str, str]]:
    """Yield the sources that use only the public surface: projects, and the examples of the pages.

    Workloads are programs on targets, where only what is sent can be imported.
    """
    for file in sorted(ROOT.glob("projects/**/*.py")):
        if "workload" not in file.parts:
            yield str(file.relative_to(ROOT)), file.read_text(encoding="utf-8")
    for page in sorted([ROOT / "README.md", *ROOT.glob("docs/*.md")]):
        blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
        for number, block in enumerate(blocks):
            yield f"{page.relative_to(ROOT)}, block {number + 1}", block


@pytest.mark.parametrize(("name", "source"), list(sources()), ids=lambda value: value if len(value) < 80 else "")
def test_projects_and_examples_use_only_the_public_surface(name: str, source: str) -> None:
    assert set(imports(source)) <= recorded_modules(), name
