"""Values as messages show them."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Mapping
from typing import Any, Final

LONGEST_LINE: Final = 160


def cut(line: str) -> str:
    """Return a line, cut where it is long."""
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 3]}..."


def shown(value: object, *, longest: int = 60) -> str:
    """Return the repr of a value, cut where it is long."""
    text = repr(value)
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def without_kind(message: str) -> str:
    """Return a message of a pydantic validator without the kind of error that pydantic puts before it."""
    return message.removeprefix("Value error, ")


def as_text(value: object) -> str:
    """Return a value of a configuration as text: text as it is, and any other value as YAML writes it (`true`, `null`).

    Mappings and lists become JSON, which is YAML too.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else f"{'-' if value < 0 else ''}.inf"
    if value is None or isinstance(value, bool | int | float | Mapping | list):
        return json.dumps(_with_text_keys(value), default=as_text, ensure_ascii=False)
    return str(value)


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {as_text(key): _with_text_keys(item) for key, item in value.items()}
    return [_with_text_keys(item) for item in value] if isinstance(value, list) else value
