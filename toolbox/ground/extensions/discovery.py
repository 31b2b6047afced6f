"""Finds extensions in the workspace, in features that other packages have installed, and in Topgallant itself.

The kind of an extension is the name of a folder, such as `checks`. For example, the check `steady` is the file
`checks/steady.py` in the workspace or in a feature. The workspace takes precedence over installed features, and
installed features over Topgallant.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from toolbox.ground.system import modules, places


@dataclass(frozen=True, slots=True)
class Extension:
    """An extension that was found, but may not be imported yet.

    Args:
        origin: the file of the extension, for messages.
        load: imports the module of the extension.
    """

    name: str
    origin: str
    load: Callable[[], object]
    is_builtin: bool = False

    def attribute(self, name: str) -> object:
        """Import the extension, and return the attribute `name` of its module.

        Raises:
            ValueError: the code of the extension raises an error, or the attribute is missing.
        """
        try:
            loaded = self.load()
        except (Exception, SystemExit) as error:  # the code of an extension may raise any error
            raise ValueError(f"{self.origin} is broken: {type(error).__name__}: {error}") from error
        if not hasattr(loaded, name):
            raise ValueError(f"{self.origin} has no `{name}`")
        return getattr(loaded, name)


def available(kind: str) -> dict[str, Extension]:
    """Return the extensions of a kind by name. If a name occurs twice, the extension with precedence is used."""
    folders = [folder / kind for folder in reversed(places.installed_features())]
    external = {file.stem: _imported(file) for folder in folders for file in folder.glob("[!_]*.py")}
    if (root := places.workspace()) is not None:
        for path in (root / kind).glob("[!_]*.py"):
            external[path.stem] = Extension(path.stem, str(path), functools.partial(_load, kind, path))
    return builtin(kind) | dict(sorted(external.items()))


def builtin(kind: str) -> dict[str, Extension]:
    """Return the extensions of a kind that are a part of Topgallant."""
    files = (file for folder in places.homes(kind) for file in folder.glob("[!_]*.py"))
    return {file.stem: _imported(file, is_builtin=True) for file in sorted(files)}


def _imported(file: Path, *, is_builtin: bool = False) -> Extension:
    """Return the extension of a file that is imported by its name."""
    module = str(places.module_name(file))
    origin = f"{module.replace('.', '/')}.py"
    return Extension(file.stem, origin, functools.partial(importlib.import_module, module), is_builtin=is_builtin)


@functools.cache
def _load(kind: str, path: Path) -> object:
    return modules.load(f"_{kind}_{path.stem}", path)
