"""Masks the API key in texts and in the output of the server."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from toolbox.ground.kit.masking import Masker, overlap

MASK: Final = "***"
_CUT_ENDS: Final = re.compile(r"""\\?['"]?\.\.\.""")  # also of a text in quotes
_SHORTEST_PART: Final = 4  # less of a key tells nothing, and is often the end of a word


class KeyMask:
    """Replaces an API key by `***`, also where the key is escaped as in JSON.

    Before `...`, which ends texts that were cut, the beginning of the key is replaced, too.

    Args:
        key: the key, of printable ASCII characters; None if there is none.
    """

    def __init__(self, key: str | None) -> None:
        forms = {key, json.dumps(key)[1:-1]} if key else set()
        self.forms = sorted(forms, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, self.forms))) if forms else None

    def __call__(self, text: str) -> str:
        """Return a text without the key."""
        return self._without_cut_keys(self._pattern.sub(MASK, text)) if self._pattern else text

    def _without_cut_keys(self, text: str) -> str:
        pieces = []
        begin = 0
        for end in _CUT_ENDS.finditer(text):
            before = text[begin : end.start()]
            part = max(overlap(before, form) for form in self.forms)
            pieces += [f"{before[:-part]}{MASK}" if part >= _SHORTEST_PART else before, end[0]]
            begin = end.end()
        return "".join([*pieces, text[begin:]])

    def is_in_parts(self, value: object) -> bool:
        """Return whether the key is in a JSON value, but not in one text: several texts have a part of it each.

        These are the texts of consecutive chunks of a stream, or of consecutive tokens: texts at the same place but for
        the positions in lists. A number `index` tells which of several streams an object belongs to.
        """
        if not self._pattern:
            return False
        joined: dict[tuple[object, ...], list[str]] = defaultdict(list)
        for place, text in _texts(value, ()):
            joined[place].append(self(text))
        return any(self._pattern.search("".join(texts)) for texts in joined.values())

    def stream(self) -> Masker:
        """Return a mask for bytes that arrive in pieces."""
        return Masker([form.encode() for form in self.forms])


NO_KEY: Final = KeyMask(None)


def _texts(value: object, place: tuple[object, ...]) -> Iterator[tuple[tuple[object, ...], str]]:
    """Yield each text of a JSON value with its place, and each key of an object with the place of the object."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict):
        inner = (*place, value["index"]) if isinstance(value.get("index"), int) else place
        for name, item in value.items():
            yield inner, name
            yield from _texts(item, (*inner, name))
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item, place)
