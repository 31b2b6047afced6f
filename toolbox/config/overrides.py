"""Parses the value of `--overrides`: a mapping in YAML's flow style, or the names of YAML files with mappings."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any, Final

from toolbox.config import document
from toolbox.ground.model.errors import ConfigurationError
from toolbox.ground.model.text import abbreviated

_VALUE: Final = re.compile("[:=]")
log = logging.getLogger(__name__)


def parse(text: str | None) -> tuple[tuple[Path, ...], dict[str, Any]]:
    """Return the files of a text such as `one.yaml,two.yaml`, and the overrides of a text such as `{a.b: 1}`.

    A warning names each unquoted scalar of the overrides that may be meant as text.

    Raises:
        ConfigurationError: a text that begins with `{` is not a YAML mapping, or a text with a colon or an equals sign
            does not name files.
    """
    if not text or not text.strip():
        return (), {}
    if text.lstrip().startswith("{"):
        parsed = document.parse(text, source="--overrides")
        for line in parsed.ambiguous_lines():
            log.warning("%s", line)
        return (), {str(key): value for key, value in parsed.root.items()}
    files = tuple(Path(name.strip()) for name in text.split(",") if name.strip())
    if _VALUE.search(text) and not all(file.exists() for file in files):
        raise ConfigurationError(
            f"--overrides is {abbreviated(text)}, which does not name files: "
            "to set a value, write --overrides='{path: value}'"
        )
    return files, {}
