"""Sends the source code of modules to a Python in which they are not installed, such as that of a target."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Dict

_FINDER = """
import importlib.machinery, sys
sources = {sources}
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in sources:
            return importlib.machinery.ModuleSpec(name, Finder, is_package=not sources[name])
    @staticmethod
    def create_module(spec):
        return None
    @staticmethod
    def exec_module(module):
        exec(compile(sources[module.__name__], "<" + module.__name__ + ">", "exec"), module.__dict__)
sys.meta_path.insert(0, Finder)
"""


def read(*modules: ModuleType) -> Dict[str, str]:
    """Return the source code of modules by their names. Packages have an empty text.

    Args:
        modules: for a package, all its modules are returned, except those whose names begin with an underscore.
    """
    sources: Dict[str, str] = {}
    for module in modules:
        assert module.__file__ is not None, "it is not a namespace package"
        file, name = Path(module.__file__), module.__name__
        files = {name: file}
        if file.stem == "__init__":
            files = {f"{name}.{path.stem}": path for path in sorted(file.parent.glob("[!_]*.py"))}
        for each, path in files.items():
            package = each
            while package := package.rpartition(".")[0]:
                sources[package] = ""
            sources[each] = path.read_text(encoding="utf-8")
    return sources


def program(name: str, *modules: ModuleType) -> str:
    """Return a program that imports a module of a package, and that can be continued with calls of its functions.

    Args:
        name: the full name of the module. The program assigns the module to the last part of this name.
        modules: the modules that the program can import, as `read` takes them. It prefers them to installed modules.
    """
    package, _, last = name.rpartition(".")
    # A JSON object of strings is also a valid Python expression.
    return f"{_FINDER.replace('{sources}', json.dumps(read(*modules)))}from {package} import {last}\n"
