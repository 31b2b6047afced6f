"""Selects objects by their names, with shell patterns (`*`, `?`, `[...]`)."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def matching(pattern: str, things: Iterable[T], names: Callable[[T], Iterable[str]]) -> list[T]:
    """Return the objects with a name that equals the pattern; if there are none, the objects with a matching name.

    The pattern `x=[a]` selects the object named `x=[a]`, if it exists, and not the object named `x=a`.

    Args:
        names: returns the names of an object.
    """
    candidates = list(things)
    equal = [thing for thing in candidates if pattern in names(thing)]
    return equal or [thing for thing in candidates if covers(pattern, *names(thing))]


def covers(pattern: str, *names: str) -> bool:
    """Return whether one of the names equals or matches the pattern."""
    return any(name == pattern or fnmatch.fnmatchcase(name, pattern) for name in names)
