"""The packages of the runtime have the promised versions.

Promises: `packages`, a mapping from distributions to version specifiers of PEP 440, such as `>=2,<3`. A version without
an operator, such as `2.9`, stands for all 2.9.*. An empty specifier accepts any version.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from contextlib import suppress
from typing import Any, Iterator


def check(promises: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Compare each package with its promise."""
    packages = promises.get("packages") or {}
    if not packages:
        yield {"outcome": "skipped", "message": "nothing promises `packages`"}
    for name, value in packages.items():
        yield {"name": name, **_compared(name, "" if value is None else str(value).strip())}


def _compared(name: str, promised: str) -> dict[str, Any]:
    expected = promised or "any version"
    try:
        installed = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return {"outcome": "failed", "expected": expected, "found": "not installed"}
    specifiers = _specifiers()
    if specifiers is None:
        message = "the runtime has neither `packaging` nor pip, which contains it: install one of them"
        return {"outcome": "error", "expected": expected, "found": installed, "message": message}
    specifier = f"=={promised}.*" if promised[:1].isdigit() else promised
    try:
        is_kept = specifiers.SpecifierSet(specifier).contains(installed, prereleases=True)
    except specifiers.InvalidSpecifier:
        message = f"the promise `{promised}` is not a version specifier such as `>=2,<3`"
        return {"outcome": "error", "expected": expected, "found": installed, "message": message}
    return {"outcome": "passed" if is_kept else "failed", "expected": expected, "found": installed}


def _specifiers() -> Any:
    """Return the module that implements PEP 440; None if the runtime has none."""
    for name in ("packaging.specifiers", "pip._vendor.packaging.specifiers"):
        with suppress(ImportError):
            return importlib.import_module(name)
    return None
