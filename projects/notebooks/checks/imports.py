"""The modules of the runtime can be imported.

Promises: `imports`, a list of modules. Without it, the modules of the distributions in `packages` are imported. Each
module is imported by a process of its own, because a broken extension module can crash the interpreter.
"""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from typing import Any, Iterator

_TIMEOUT = 50.0


def check(promises: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Import each module."""
    modules = promises.get("imports") or [
        module for name in promises.get("packages") or {} for module in _modules(name)
    ]
    if not modules:
        yield {"outcome": "skipped", "message": "nothing promises `imports` or `packages`"}
    for module in modules:
        failure = _failure(module)
        yield {
            "name": module,
            "outcome": "failed" if failure else "passed",
            "expected": f"import {module}",
            "found": failure or "imported",
        }


def _modules(distribution: str) -> list[str]:
    """Return the importable top-level modules of a distribution; empty if it is not installed."""
    try:
        files = importlib.metadata.files(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        return []  # the check `packages` reports this
    packages = {file.parts[0] for file in files if len(file.parts) == 2 and file.parts[1] == "__init__.py"}
    modules = {file.stem for file in files if len(file.parts) == 1 and file.suffix == ".py"}
    return sorted(name for name in packages | modules if name.isidentifier() and not name.startswith("_"))


def _failure(module: str) -> str:
    """Return why a module cannot be imported; empty if it can."""
    program = "import importlib, sys; importlib.import_module(sys.argv[1])"
    try:
        done = subprocess.run(
            [sys.executable, "-c", program, module],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"the import did not end within {_TIMEOUT:g} s"
    if done.returncode == 0:
        return ""
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else f"the interpreter ended with status {done.returncode}"
