"""Finds promises that no check reads. They are probably misspelled, and nothing would verify them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from toolbox.ground.model.nearest import did_you_mean

_LARGEST_CHECK: Final = 1 << 20  # bytes of a check that are searched
_READ: Final = re.compile(r"""PROMISE_(?P<variable>[A-Z0-9_]+)|promises(?:\.get\(|\[)["'](?P<key>[^"'\n]+)["']""")
_COMMENT: Final = re.compile(r"\bPromises?: (?P<names>\w+(?:, \w+)*)")


def unread(promises: Iterable[str], checks: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """Yield each promise that no check reads, with a message.

    A check that computes the names of its promises lists them in a comment: `# Promises: licence, quota`.

    Args:
        checks: the files of all checks, also of checks that are skipped.
    """
    texts = [_text(path) for path in checks]
    read = {(match["key"] or match["variable"]).lower() for text in texts for match in _READ.finditer(text)}
    listed = {
        name for text in texts for match in _COMMENT.finditer(text) for name in re.findall(r"\w+", match["names"])
    }
    for name in promises:
        if name.lower() not in read and name not in listed:
            hint = did_you_mean(name, sorted(read), label="promises")
            yield name, f"no check reads the promise `{name}`: {hint}"


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST_CHECK).decode(errors="replace")
    except OSError:  # the plan reports the file
        return ""
