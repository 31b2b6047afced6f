"""Computes the signature of a failure: its cause, and its message without the parts that differ between cells.

`attribution` groups failed cells by their signatures.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Final

from toolbox.ground.model.text import truncate

_MAX_LINES: Final = 5
_LONGEST: Final = 200  # characters
_SHORTEST_LABEL: Final = 3  # characters: shorter labels occur in messages by chance
# The order matters: a timestamp contains numbers, and a path may contain an address.
_PATTERNS: Final = (
    (re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d([.,]\d+)?)?(Z|[+-]\d\d:?\d\d)?)?"), "<time>"),
    (re.compile(r"\b\d\d:\d\d:\d\d([.,]\d+)?"), "<time>"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE), "<address>"),
    (re.compile(r"(?<![\w/])(~|\.{1,2})?/[^\s:'\"`,;()\[\]]+"), "<path>"),
    (re.compile(r"\b\d{1,3}(\.\d{1,3}){3}(:\d+)?\b"), "<address>"),
    (re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,}\b", re.IGNORECASE), "<id>"),
)
# The numbers of statuses and signals are kept, because they say how a program ended.
_NUMBER = re.compile(r"(?P<kept>\b(exit (status|code)|status|signal|errno) )?-?\d+(\.\d+)?(e[-+]?\d+)?", re.IGNORECASE)


def signature(cause: str | None, message: str, labels: Mapping[str, str]) -> str:
    """Return a string that is the same for cells that failed in the same way.

    Args:
        message: the messages of the checks and of the workload.
        labels: the labels of the cell, by axis. A label in the message is replaced by the name of its axis.
    """
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    text = "; ".join(lines[:_MAX_LINES])
    for axis, label in labels.items():
        if len(label) >= _SHORTEST_LABEL:
            text = re.sub(rf"(?<!\w){re.escape(label)}(?!\w)", partial(_named, axis), text)
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    text = _NUMBER.sub(lambda match: match[0] if match["kept"] else "#", text)
    text = truncate(text, _LONGEST)
    return f"{cause}: {text}" if cause and text else text or cause or ""


def _named(axis: str, _: re.Match[str]) -> str:
    # A function, because `re.sub` would read a backslash of a replacement string as the start of an escape.
    return f"<{axis}>"
