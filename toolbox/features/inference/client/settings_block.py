"""Reads fields of JSON with their types. Everything wrong is a SettingsError that names the field."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from .answer_format import SettingsError

_MAX_FILE_BYTES: Final = 64 << 20
_LARGEST: Final = 1e15  # of a number; also excludes infinity and NaN

T = TypeVar("T")


def read_json(path: Path) -> Any:
    """Return the content of a JSON file. Raise SettingsError."""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
        if len(content) > _MAX_FILE_BYTES:
            raise SettingsError(f"{path} is larger than {_MAX_FILE_BYTES} bytes")
        return json.loads(content)
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{path} is not JSON: {error}") from error


class Block:
    """An object of the settings, from which fields are taken with their types.

    Args:
        place: the name of the object in messages.
    """

    def __init__(self, content: object, place: str) -> None:
        if not isinstance(content, dict):
            raise SettingsError(f"{place} must be an object")
        self.place = place
        self._rest = dict(content)

    def take(self, name: str, kind: type[T], default: Any) -> Any:
        """Return a field. The value null stands for the default."""
        value = self._rest.pop(name, None)
        if value is None:
            return default
        if not isinstance(value, kind):
            raise SettingsError(f"{self.place}.{name} must be of the type {kind.__name__}")
        return value

    def positive(self, name: str, kind: type[int | float], default: float | None, *, most: float = _LARGEST) -> Any:
        """Return a field that must be a positive number."""
        value = self._number(name, kind, "a positive")
        if value is None:
            return default
        if not 0 < value <= most:
            limit = f" of at most {most:g}" if most < _LARGEST else ""
            raise SettingsError(f"{self.place}.{name} must be a positive {kind.__name__}{limit}")
        return kind(value)

    def not_negative(self, name: str, kind: type[int | float], default: float) -> Any:
        """Return a field that must be a number from 0 upwards."""
        value = self._number(name, kind, "a non-negative")
        if value is None:
            return default
        if not 0 <= value <= _LARGEST:
            raise SettingsError(f"{self.place}.{name} must be a non-negative {kind.__name__}")
        return kind(value)

    def _number(self, name: str, kind: type[int | float], wanted: str) -> int | float | None:
        value: object = self._rest.pop(name, None)
        kinds = (int,) if kind is int else (int, float)
        if value is None or (isinstance(value, kinds) and not isinstance(value, bool)):
            return value
        raise SettingsError(f"{self.place}.{name} must be {wanted} {kind.__name__}")

    def texts(self, name: str) -> Sequence[str] | None:
        """Return a field that must be a list of texts, or null."""
        value: list[object] | None = self.take(name, list, None)
        if value is None:
            return None
        if not value or not all(isinstance(item, str) and "\0" not in item for item in value):
            raise SettingsError(f"{self.place}.{name} must be a list of texts")
        return [str(item) for item in value]

    def mapping_of_texts(self, name: str) -> Mapping[str, str]:
        """Return a field that must be an object of texts."""
        value: dict[str, object] = self.take(name, dict, {})
        for key, item in value.items():
            if not isinstance(item, str) or "\0" in item or not key or "=" in key or "\0" in key:
                raise SettingsError(f"{self.place}.{name} must map names of variables to texts")
        return {key: str(item) for key, item in value.items()}

    def refuse_rest(self) -> None:
        """Raise SettingsError if a field has not been taken."""
        if self._rest:
            raise SettingsError(f"{self.place} has unknown fields: {', '.join(map(ascii, self._rest))}")
