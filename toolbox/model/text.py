"""Values as messages show them."""

from __future__ import annotations


def shown(value: object, *, longest: int = 60) -> str:
    """Return the repr of a value, cut where it is long."""
    text = repr(value)
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
