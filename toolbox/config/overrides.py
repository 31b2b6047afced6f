"""The text of `--overrides`: a mapping in YAML's flow style, or the names of files that hold one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from toolbox.config import document


def parse(text: str | None) -> tuple[tuple[Path, ...], dict[str, Any]]:
    """Return the override files and the overrides that a text asks for: `{a.b: 1}`, or `one.yaml,two.yaml`.

    Raises:
        ConfigurationError: it is neither.
    """
    if not text or not text.strip():
        return (), {}
    if text.lstrip().startswith("{"):
        return (), {str(key): value for key, value in document.parse(text, source="--overrides").root.items()}
    return tuple(Path(name.strip()) for name in text.split(",") if name.strip()), {}
