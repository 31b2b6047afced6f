"""Imports extensions from files, and imports large libraries without slowing down the garbage collector."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any


@contextmanager
def gc_frozen_imports() -> Iterator[None]:
    """Exclude the objects that the body imports from garbage collection (`gc.freeze`).

    These objects live as long as the process. Scanning them repeatedly would take a fifth of the CPU time of a short
    run.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def load(name: str, path: Path) -> ModuleType:
    """Import a file as the module `name`.

    Raises:
        ImportError: the file is not a Python file. Exceptions of the code in the file are not caught.
    """
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def public(name: str, homes: Mapping[str, str], attribute: str) -> Any:
    """Return an attribute of a module whose names are imported when they are first used.

    Args:
        name: the name of the module.
        homes: for each name of the module, where it is defined, as `MODULE:NAME`.

    Raises:
        AttributeError: the module has no such name.
    """
    if attribute not in homes:
        raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
    module, _, original = homes[attribute].partition(":")
    loaded = importlib.import_module(module)
    if not hasattr(loaded, original):  # a module of a package that was not imported yet
        importlib.import_module(f"{module}.{original}")
    return getattr(loaded, original)
