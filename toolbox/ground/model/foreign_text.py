"""Makes untrusted text safe for a terminal, for the log of a CI system, and for a spreadsheet."""

from __future__ import annotations

import re
from typing import Final

# Control characters (ESC begins escape sequences), characters that change the text direction, and lone surrogates.
_UNSAFE: Final = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_ESCAPES = re.compile(rf"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[{_UNSAFE}]")
_UNSAFE_CHARACTER = re.compile(f"[{_UNSAFE}]")
# The beginnings of commands that a CI system executes when it reads them in a log: `::` at the beginning of a line and
# `##[` (GitHub), `##vso[` (Azure Pipelines).
_WORKFLOW_COMMAND = re.compile(r"^([^\S\n]*:)(?=:)|(##)(?=\[|vso\[)", re.MULTILINE)
_UNSAFE_IN_JSON = re.compile(rf"[{_UNSAFE}]|(?<=##)\[|(?<=##)v(?=so\[)")
# A spreadsheet reads a cell that begins with one of these characters as a formula (OWASP, CSV Injection). The last four
# are the full-width forms of `=`, `+`, `-` and `@`.
_FORMULA = re.compile(r"[=+\-@\t\n\uff1d\uff0b\uff0d\uff20]")


def replace_unsafe(text: str) -> str:
    """Return a text with U+FFFD in place of each character that could control a terminal."""
    return _UNSAFE_CHARACTER.sub("\ufffd", text)


def clean(text: str) -> str:
    """Return a text without the characters that could control a terminal."""
    return _ESCAPES.sub("", text)


def printable(text: str) -> str:
    """Return a text without control characters, and with a space inside each command that a CI system would execute."""
    return _WORKFLOW_COMMAND.sub(lambda match: f"{match[0]} ", clean(text))


def printable_json(text: str) -> str:
    """Return the same JSON, with an escape for each character that could control a terminal or begin a CI command."""
    return _UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def csv_cell(text: str) -> str:
    """Return a text for a CSV cell: with a `'` in front if a spreadsheet would read the text as a formula."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")  # the CSV writer does not quote CR, and CR would end the row
    return f"'{text}" if _FORMULA.match(text) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.isascii() and text == text.strip()
