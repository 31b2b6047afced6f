"""Writes text from outside as code, which a forge shows without mentions, references, links or emoji."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Final

from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.text import LONGEST_LINE, truncate, without_middle

_MAX_LINES: Final = 20  # lines of a message


def code(text: str, longest: int = LONGEST_LINE) -> str:
    """Return text from outside as one line of code, truncated if it is long."""
    line = " ".join(clean(text).split())
    return f"<code>{html.escape(truncate(line, longest))}</code>"


def preformatted(lines: Sequence[str], most: int = _MAX_LINES, longest: int = LONGEST_LINE) -> str:
    """Return lines from outside as a block. Line breaks are character references, so that no line ends the block."""
    kept = without_middle(lines, most)
    text = "&#10;".join(html.escape(truncate(clean(line).replace("\n", " "), longest)) for line in kept)
    return f"<pre>{text}</pre>" if text else ""


def size(text: str) -> int:
    """Return the length of a text in bytes of UTF-8."""
    return len(text.encode())
