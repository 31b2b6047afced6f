"""Text that others wrote, made fit to be shown on a terminal, in the log of a CI system, and in a spreadsheet."""

from __future__ import annotations

import re
from typing import Final

# Control sequences, titles, control characters; what turns the direction of text; halves of characters.
_STEERING: Final = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_ESCAPES = re.compile(rf"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[{_STEERING}]")
_STEERING_CHARACTER = re.compile(f"[{_STEERING}]")
# GitHub's runner takes a line that begins with `::` for a command, and `##[` anywhere; Azure Pipelines `##vso[`.
_WORKFLOW_COMMAND = re.compile(r"^([^\S\n]*:)(?=:)|(##)(?=\[|vso\[)", re.MULTILINE)
_IN_JSON = re.compile(rf"[{_STEERING}]|(?<=##)\[|(?<=##)v(?=so\[)")
# What makes a cell a formula (OWASP, CSV Injection), also as full-width characters.
_FORMULA = re.compile(r"[=+\-@\t\n\uff1d\uff0b\uff0d\uff20]")


def replaced(text: str) -> str:
    """Return a text in which U+FFFD takes the place of each character that would steer a terminal."""
    return _STEERING_CHARACTER.sub("\ufffd", text)


def clean(text: str) -> str:
    """Return a text without what would steer a terminal."""
    return _ESCAPES.sub("", text)


def printable(text: str) -> str:
    """Return a text for a terminal or a log: it steers no terminal, and holds no command for a CI system."""
    return _WORKFLOW_COMMAND.sub(lambda match: f"{match[0]} ", clean(text))


def printable_json(text: str) -> str:
    """Return JSON that holds the same data, with what `printable` takes out escaped."""
    return _IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def csv_cell(text: str) -> str:
    """Return the text of a cell that no spreadsheet takes for a formula. A number stays a number."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")  # the writer quotes no CR, which ends a row
    return f"'{text}" if _FORMULA.match(text) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.isascii() and text == text.strip()
