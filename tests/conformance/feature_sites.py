"""The sites of the features, which the suites find in `tests/features/NAME/conformance/sites.py`.

Such a module has a mapping for each kind of extension that needs a site, by the name of the extension: `BACKENDS` with
functions that open a `Site`, `RESOURCES` with functions that open a `ResourceSite`. `SENT_PACKAGES` contains each
`SentPackage`. A function `prepare(patch)` prepares each test of a backend.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Final

import pytest

_ROOT: Final = Path(__file__).parents[2]
_MODULES: Final = [
    importlib.import_module(".".join(file.relative_to(_ROOT).with_suffix("").parts))
    for file in sorted(_ROOT.glob("tests/features/*/conformance/sites.py"))
]


def of(kind: str) -> dict[str, Any]:
    """Return what all features have in their mappings with this name."""
    return {name: value for module in _MODULES for name, value in getattr(module, kind, {}).items()}


def prepare(patch: pytest.MonkeyPatch) -> None:
    """Prepare a test of a backend as each feature needs it."""
    for module in _MODULES:
        getattr(module, "prepare", lambda _: None)(patch)
