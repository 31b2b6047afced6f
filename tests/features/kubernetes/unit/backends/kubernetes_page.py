"""This module reads the examples of docs/kubernetes.md for the tests that compare them with the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import yaml

PAGE: Final = Path(__file__).parents[5] / "docs" / "kubernetes.md"


def examples() -> list[Any]:
    """Return the YAML documents of the page in their order."""
    blocks = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [document for block in blocks for document in yaml.safe_load_all(block)]


def role() -> dict[str, Any]:
    """Return the Role that the page describes as sufficient."""
    (found,) = (each for each in examples() if isinstance(each, dict) and each.get("kind") == "Role")
    return dict(found)
