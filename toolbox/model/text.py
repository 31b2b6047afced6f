"""Values as messages show them."""

from __future__ import annotations

from typing import Final

LONGEST_LINE: Final = 160


def cut(line: str) -> str:
    """Return a line, cut where it is long."""
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 3]}..."


def shown(value: object, *, longest: int = 60) -> str:
    """Return the repr of a value, cut where it is long."""
    text = repr(value)
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
