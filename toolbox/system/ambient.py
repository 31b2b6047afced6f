"""Values that code finds around it: the step, the session, the cancel scope.

Threads of Topgallant carry the context of whoever started them. A thread that a project starts by itself has none: it
finds the value of the process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Ambient(Generic[Value]):
    """A value of the context around, or of the process where the context has none."""

    def __init__(self, name: str) -> None:
        self._of_context: ContextVar[Value] = ContextVar(name)
        self._of_process: Value | None = None

    def get(self) -> Value | None:
        """Return the value; None where there is none."""
        return self._of_context.get(None) or self._of_process

    @contextmanager
    def entered(self, value: Value) -> Iterator[Value]:
        """Make a value that of this context."""
        token = self._of_context.set(value)
        try:
            yield value
        finally:
            self._of_context.reset(token)

    @contextmanager
    def entered_by_process(self, value: Value) -> Iterator[Value]:
        """Make a value that of this context, and of threads that have none."""
        before, self._of_process = self._of_process, value
        try:
            with self.entered(value):
                yield value
        finally:
            self._of_process = before
