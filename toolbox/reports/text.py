"""Text that others wrote, made fit to be shown."""

from __future__ import annotations

import re

# Control sequences, titles, control characters; what turns the direction of text; halves of characters.
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def clean(text: str) -> str:
    """Return a text without what would steer a terminal."""
    return _ESCAPES.sub("", text)
