"""Selects objects by their names, with shell patterns (`*`, `?`, `[...]`)."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def matching(pattern: str, things: Iterable[T], names: Callable[[T], Iterable[str]]) -> list[T]:
    """Return the objects that have a name equal to the pattern; if there are none, those with a name that matches it.

    Names may contain pattern characters: `x=[a]` selects the object of that name, and not `x=a`.
    """
    candidates = list(things)
    equal = [thing for thing in candidates if pattern in names(thing)]
    return equal or [thing for thing in candidates if covers(pattern, *names(thing))]


def covers(pattern: str, *names: str) -> bool:
    """Return whether a name equals the pattern, or matches it."""
    return any(name == pattern or fnmatch.fnmatchcase(name, pattern) for name in names)
