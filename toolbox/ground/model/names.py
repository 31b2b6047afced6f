"""The rule for names that people choose, and that become parts of the names of cells, metrics and test cases."""

from __future__ import annotations

import unicodedata
from itertools import groupby
from typing import Final

_LONGEST: Final = 80  # characters
_PUNCTUATION: Final = "._=-"
_CATEGORIES: Final = frozenset("LMN")  # letters, the marks of letters, and numbers, as Unicode classifies characters


def is_name(name: str) -> str:
    """Return a name of letters and digits of any language. Raise ValueError for other names."""
    if not 0 < len(name) <= _LONGEST or name[0] in _PUNCTUATION or not all(map(_is_allowed, name)):
        raise ValueError(f"a name consists of at most {_LONGEST} letters, digits, `.`, `_`, `=` and `-`")
    return name


def as_name(text: str) -> str:
    """Return a name that resembles a text, with `-` in place of other characters; empty if none of them is allowed."""
    composed = unicodedata.normalize("NFC", text)  # some file systems decompose letters such as `ü`
    parts = ("".join(part) if is_allowed else "-" for is_allowed, part in groupby(composed, _is_allowed))
    return "".join(parts).lstrip(_PUNCTUATION)[:_LONGEST]


def _is_allowed(character: str) -> bool:
    return character in _PUNCTUATION or unicodedata.category(character)[0] in _CATEGORIES
