"""Marks code that runs in a parallel region, where the configuration cannot be changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_name: ContextVar[str | None] = ContextVar("parallel_region", default=None)


def current() -> str | None:
    """Return the name of the parallel region that the caller runs in, or None outside of one."""
    return _name.get()


@contextmanager
def entered(name: str) -> Iterator[None]:
    """Mark the code in the body as part of a parallel region, also in threads that run in a copy of its context."""
    token = _name.set(name)
    try:
        yield
    finally:
        _name.reset(token)
