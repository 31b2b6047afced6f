"""Parses the value of `--overrides`: a mapping in YAML's flow style, or the names of YAML files with mappings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from toolbox.config import document


def parse(text: str | None) -> tuple[tuple[Path, ...], dict[str, Any]]:
    """Return the files of a text such as `one.yaml,two.yaml`, and the overrides of a text such as `{a.b: 1}`.

    Raises:
        ConfigurationError: a text that begins with `{` is not a YAML mapping.
    """
    if not text or not text.strip():
        return (), {}
    if text.lstrip().startswith("{"):
        return (), {str(key): value for key, value in document.parse(text, source="--overrides").root.items()}
    return tuple(Path(name.strip()) for name in text.split(",") if name.strip()), {}
