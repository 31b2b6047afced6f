"""Finds extensions in the workspace, in installed packages (by entry points) and in Topgallant itself.

The kind of an extension is the name of a folder, such as `checks`. For example, the check `steady` is the file
`checks/steady.py` in the workspace, or the module that the entry point `steady` of the group `topgallant.checks` names.
The workspace takes precedence over packages, and packages over Topgallant.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from toolbox.ground.system import modules, places

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

_PREFIX: Final = "topgallant"


@dataclass(frozen=True, slots=True)
class Extension:
    """An extension that was found, but may not be imported yet.

    Args:
        origin: the file of the extension, or its entry point, for messages.
        load: imports the extension, and returns its module, or the object that its entry point names.
    """

    name: str
    origin: str
    load: Callable[[], object]
    is_builtin: bool = False

    def attribute(self, name: str) -> object:
        """Import the extension, and return the attribute `name` of its module.

        The entry point of a package may name the module or the attribute itself.

        Raises:
            ValueError: the code of the extension raises an error, or the attribute is missing.
        """
        try:
            loaded = self.load()
        except (Exception, SystemExit) as error:  # the code of an extension may raise any error
            raise ValueError(f"{self.origin} is broken: {type(error).__name__}: {error}") from error
        if getattr(loaded, "__name__", None) == name:
            return loaded
        if not hasattr(loaded, name):
            raise ValueError(f"{self.origin} has no `{name}`")
        return getattr(loaded, name)


def available(kind: str) -> dict[str, Extension]:
    """Return the extensions of a kind by name. If a name occurs twice, the extension with precedence counts."""
    external = dict(_installed(kind))
    if (root := places.workspace()) is not None:
        for path in (root / kind).glob("[!_]*.py"):
            external[path.stem] = Extension(path.stem, str(path), functools.partial(_load, kind, path))
    return builtin(kind) | dict(sorted(external.items()))


def builtin(kind: str) -> dict[str, Extension]:
    """Return the extensions of a kind that are a part of Topgallant."""
    files = (file for folder in places.homes(kind) for file in folder.glob("[!_]*.py"))
    return {file.stem: _builtin(file, str(places.module_name(file))) for file in sorted(files)}


def _builtin(file: Path, module: str) -> Extension:
    origin = f"{module.replace('.', '/')}.py"
    return Extension(file.stem, origin, functools.partial(importlib.import_module, module), is_builtin=True)


@functools.cache
def _load(kind: str, path: Path) -> object:
    return modules.load(f"_{kind}_{path.stem}", path)


@functools.cache
def _installed(kind: str) -> dict[str, Extension]:
    return {
        entry.name: Extension(entry.name, f"the entry point {entry.name} = {entry.value} ({entry.group})", entry.load)
        for entry in _entry_points()(group=f"{_PREFIX}.{kind}")
    }


@functools.cache
def _entry_points() -> Callable[..., EntryPoints]:
    """Return a function that selects entry points of all packages. Finding them reads a file of each package."""
    from importlib import metadata  # slow to import

    return metadata.entry_points().select
