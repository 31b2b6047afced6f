"""Suggests the names that are most similar to an unknown name, for error messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

_MISSPELLED: Final = 0.8  # the similarity of a misspelled name to the right one, from 0 to 1


def nearest(name: str, known: Iterable[str], *, limit: int = 3) -> list[str]:
    """Return the known names that are most similar to a name, best first."""
    return difflib.get_close_matches(name, list(known), n=limit, cutoff=0.5)


def misspelled(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that `name` misspells; None if `name` is another word.

    A longer word that begins with a known name (`machineset`, `machine`) is another word; a plural is a misspelling.
    """
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=_MISSPELLED)
    if not near or (name.startswith(near[0]) and len(name) > len(near[0]) + 1):
        return None
    return near[0]


def did_you_mean(name: str, known: Iterable[str], *, what: str = "known", prefix: str = "", most: int = 12) -> str:
    """Return `did you mean ...?` with a prefix before each name, or the known names if none is similar."""
    names = sorted(set(known))
    if near := nearest(name, names):
        return f"did you mean {' or '.join(prefix + other for other in near)}?"
    if not names:
        return "there are none"
    shown = ", ".join(prefix + other for other in names[:most])
    return f"{what}: {shown}" + (f" and {len(names) - most} more" if len(names) > most else "")
