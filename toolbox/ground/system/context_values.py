"""Values that code reads without a parameter: the current step, the current session, the current cancel scope.

A thread that Topgallant starts inherits the context of the code that started it, and so these values. A thread that a
project starts has an empty context. For such threads, `entered_by_process` stores the value for the whole process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Generic, TypeVar

Value = TypeVar("Value")


class ContextValue(Generic[Value]):
    """A value of the current context, or of the process if the context has none."""

    def __init__(self, name: str) -> None:
        self._of_context: ContextVar[Value] = ContextVar(name)
        self._of_process: Value | None = None

    def get(self) -> Value | None:
        """Return the value of the context, or of the process; None if neither has a value."""
        value = self._of_context.get(None)
        return self._of_process if value is None else value

    @contextmanager
    def entered(self, value: Value) -> Iterator[Value]:
        """Set the value of the context for the body of the `with` statement."""
        token = self._of_context.set(value)
        try:
            yield value
        finally:
            self._of_context.reset(token)

    @contextmanager
    def entered_by_process(self, value: Value) -> Iterator[Value]:
        """Set the values of the context and of the process for the body of the `with` statement."""
        previous, self._of_process = self._of_process, value
        try:
            with self.entered(value):
                yield value
        finally:
            self._of_process = previous
