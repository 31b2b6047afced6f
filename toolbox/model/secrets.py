"""A secret is a type: it prints, logs, formats, reprs and pickles as `***`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Self

MASK: Final = "***"


class Secret:
    """A value that must reach one process and no file, log or terminal.

    Args:
        value: the value, or a function that reads it when it is first asked for.
        reference: how the configuration writes it (`*$@a.b`), which may be shown.
    """

    __slots__ = ("_reference", "_value")

    def __init__(self, value: str | Callable[[], str], *, reference: str | None = None) -> None:
        self._value = value
        self._reference = reference

    def reveal(self) -> str:
        """Return the value itself. Whoever calls this answers for where it goes."""
        if not isinstance(self._value, str):
            self._value = self._value()
        return self._value

    @property
    def reference(self) -> str | None:
        """How the configuration writes this secret, or None when it does not come from there."""
        return self._reference

    def __repr__(self) -> str:
        return MASK

    def __format__(self, spec: str) -> str:
        return format(MASK, spec)

    def __reduce__(self) -> tuple[Any, ...]:
        return Secret, (MASK,)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: dict[int, Any]) -> Self:
        return self  # it does not change, and a copy in this process is no leak

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self.reveal() == other.reveal()

    def __hash__(self) -> int:
        return hash((Secret, self.reveal()))
