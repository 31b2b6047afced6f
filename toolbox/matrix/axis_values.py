"""Axes of a matrix: which of their values are equal, and which axes set a field of the configuration."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Mapping
from typing import Any

from toolbox.config import paths
from toolbox.ground.model.text import abbreviated


def canonical(value: object) -> str:
    """Return the canonical JSON of a value. Two values of an axis are equal if their canonical JSON is equal.

    Keys are sorted, and types matter: 1, 1.0, true, "1", null and a date all differ. A date becomes `{"!date": ...}`,
    and a key that is not text becomes `!` and its JSON. A text key that begins with `!` gets another `!` in front.

    Raises:
        ValueError: the value contains a secret, or an object that is not plain data.
    """
    if isinstance(value, Mapping):
        return canonical_object({key: canonical(item) for key, item in value.items()})
    if isinstance(value, list):
        return f"[{','.join(canonical(item) for item in value)}]"
    if isinstance(value, dt.date):
        return f'{{"!date":"{value.isoformat()}"}}'
    if value is None or isinstance(value, str | int | float):
        return json.dumps(value)
    raise ValueError(f"{abbreviated(value)} is a {type(value).__name__}, which cannot be a value of an axis")


def canonical_object(members: Mapping[Any, str]) -> str:
    """Return the canonical JSON of a mapping, given the canonical JSON of its values."""
    return f"{{{','.join(sorted(f'{_canonical_key(key)}:{text}' for key, text in members.items()))}}}"


def _canonical_key(key: object) -> str:
    if isinstance(key, str):
        return json.dumps(f"!{key}" if key.startswith("!") else key)
    return json.dumps(f"!{canonical(key)}")


def path_of(axis: str) -> paths.Path | None:
    """Return the path in the configuration that an axis sets; None if the axis is a plain setting.

    Raises:
        PathError: the name of the axis has a dot or a bracket, but is not a path.
    """
    return paths.parse(axis) if re.search(r"[.\[\]]", axis) else None
