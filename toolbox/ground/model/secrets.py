"""The type of secrets: a secret is printed, logged, formatted and pickled as `***`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from pydantic import ValidationInfo
    from pydantic_core import CoreSchema

MASK: Final = "***"
READER: Final = "secret_reader"


class Secret:
    """A value that one process may get, but that must not be written to a file, a log or a terminal.

    Args:
        value: the value, or a function that reads the value when it is first needed.
        reference: how the configuration (`*$@a.b`) or the command line (`env:NAME`, `@FILE`) refers to the secret.
            The reference is not secret.
    """

    __slots__ = ("_reference", "_value")

    def __init__(self, value: str | Callable[[], str], *, reference: str | None = None) -> None:
        self._value = value
        self._reference = reference

    def reveal(self) -> str:
        """Return the value itself. The caller is responsible for where the value goes."""
        if not isinstance(self._value, str):
            self._value = self._value()
        return self._value

    @property
    def reference(self) -> str | None:
        """How the configuration or the command line refers to this secret; None if neither does."""
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
        return self  # a secret is immutable, and a copy within this process leaks nothing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self.reveal() == other.reveal()

    def __hash__(self) -> int:
        return hash((Secret, self.reveal()))

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, _handler: object) -> CoreSchema:
        """Let pydantic convert text to a secret, with `context[READER]` if the validation context has this function."""
        from pydantic_core import core_schema

        return core_schema.with_info_plain_validator_function(cls._validate)

    @classmethod
    def _validate(cls, value: object, info: ValidationInfo) -> Secret:
        if isinstance(value, cls):
            return value
        if not isinstance(value, str):
            raise ValueError("a secret must be text")  # noqa: TRY004  # pydantic reports it
        secret: Secret = (info.context or {}).get(READER, cls)(value)
        return secret


def secrets_in(value: Any) -> list[Secret]:
    """Return the secrets in a value, including those in nested mappings, lists and tuples."""
    if isinstance(value, Secret):
        return [value]
    if isinstance(value, Mapping):
        return [secret for item in value.values() for secret in secrets_in(item)]
    if isinstance(value, list | tuple):
        return [secret for item in value for secret in secrets_in(item)]
    return []
