"""Values of the current context: the step, the session, the cancel scope.

A thread that Topgallant starts inherits the context of the code that started it. A thread that a project starts by
itself has no context: it gets the value of the process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Ambient(Generic[Value]):
    """A value of the current context, or of the process if the context has none."""

    def __init__(self, name: str) -> None:
        self._of_context: ContextVar[Value] = ContextVar(name)
        self._of_process: Value | None = None

    def get(self) -> Value | None:
        """Return the value; None if there is none."""
        return self._of_context.get(None) or self._of_process

    @contextmanager
    def entered(self, value: Value) -> Iterator[Value]:
        """Set the value of this context for the body."""
        token = self._of_context.set(value)
        try:
            yield value
        finally:
            self._of_context.reset(token)

    @contextmanager
    def entered_by_process(self, value: Value) -> Iterator[Value]:
        """Set the value of this context for the body, and also of threads without a context."""
        before, self._of_process = self._of_process, value
        try:
            with self.entered(value):
                yield value
        finally:
            self._of_process = before
