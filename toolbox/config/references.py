"""References: `@a.b`, `text {@a.b} text` and the secret `*$@a.b`, as TOPSAIL writes them.

They are followed everywhere, through one another and inside mappings and lists; a loop is an error. `ci_presets`
holds what presets will write, so that references in it are not followed where they stand.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any, Final

from toolbox.config import paths, presets
from toolbox.config.document import Document
from toolbox.config.paths import Key, Path
from toolbox.model.errors import ConfigurationError
from toolbox.model.secrets import Secret
from toolbox.system import environ

SECRET: Final = "*$@"  # noqa: S105  # how a reference to one begins
_UNSUPPORTED: Final = "*@"
_INSIDE_TEXT = re.compile(r"\{@(.*?)\}")
# What a cell of the matrix has, and stands in the block of the matrix: it is followed where there is a cell.
CELL: Final = "cell"
MATRIX: Final = "matrix"
_SECRETS_DIRECTORY: Final[Path] = ("secrets", "dir", "env_key")


def is_reference(value: object) -> bool:
    """Tell whether a value as written refers to another one."""
    return isinstance(value, str) and (
        value.startswith(("@", SECRET, _UNSUPPORTED)) or _INSIDE_TEXT.search(value) is not None
    )


class Resolver:
    """Follows the references of one document. It keeps nothing, so it may be used from any thread."""

    def __init__(self, document: Document) -> None:
        self._document = document

    def find(self, path: Path, *, trail: tuple[str, ...] = ()) -> Any:
        """Return the value at a path, references followed also on the way to it.

        Raises:
            ConfigurationError: there is no such field, or a reference is wrong.
        """
        return self.resolve(self._written(path, trail), at=path, trail=trail)

    def resolve(self, value: object, *, at: Path, trail: tuple[str, ...] = ()) -> Any:
        """Return a value with all references in it followed. Containers are copied.

        Args:
            at: where the value stands, for messages.
            trail: the references that led here, for loops.
        """
        if at[:1] == (presets.BLOCK,) and not trail:
            return copy.deepcopy(value)
        if isinstance(value, str):
            return self._follow(value, at, trail) if is_reference(value) else value
        if isinstance(value, Mapping):
            return {key: self.resolve(item, at=(*at, _key(key)), trail=trail) for key, item in value.items()}
        if isinstance(value, list):
            return [self.resolve(item, at=(*at, index), trail=trail) for index, item in enumerate(value)]
        return value

    def secrets(self) -> Iterator[Path]:
        """Yield where the document refers to a secret. `ci_presets` is left out."""
        return (path for path, text in _texts(self._document.root, ()) if text.startswith(SECRET))

    def _written(self, path: Path, trail: tuple[str, ...]) -> Any:
        value: Any = self._document.root
        for depth, name in enumerate(path):
            if is_reference(value):
                value = self.resolve(value, at=path[:depth], trail=trail)
            try:
                _, value = paths.child(value, name)
            except KeyError:
                raise paths.missing(path, depth, value, source=self._document.source) from None
        return value

    def _follow(self, text: str, at: Path, trail: tuple[str, ...]) -> Any:
        if text in trail:
            loop = " -> ".join([*trail[trail.index(text) :], text])
            raise self._fault(at, f"reference loop: {loop}")
        trail = (*trail, text)
        if text.startswith(SECRET):
            return self._secret(text, at, trail)
        if text.startswith(_UNSUPPORTED):
            raise self._fault(at, f"{text!r} is not a reference: write `@a.b`, or `*$@a.b` for a secret")
        if text.startswith("@"):
            return text if self._waits(text[1:], at) else self._target(text[1:], text, at, trail)
        values = {
            match[1]: match[0] if self._waits(match[1], at) else self._target(match[1], text, at, trail)
            for match in _INSIDE_TEXT.finditer(text)
        }
        if any(isinstance(value, Secret) for value in values.values()):
            return Secret(lambda: _fill(text, values), reference=text)
        return _fill(text, values)

    def _waits(self, target: str, at: Path) -> bool:
        """Tell whether a reference to the cell stands where it will be known, and is not yet."""
        asks = target == CELL or target.startswith((f"{CELL}.", f"{CELL}["))
        return asks and at[:1] == (MATRIX,) and CELL not in self._document.root

    def _target(self, target: str, text: str, at: Path, trail: tuple[str, ...]) -> Any:
        try:
            path = paths.parse(target)
            value = self._written(path, trail)
        except paths.PathError as error:
            raise self._fault(at, f"dangling reference {text!r}: {error.detail}") from None
        return self.resolve(value, at=path, trail=trail)

    def _secret(self, text: str, at: Path, trail: tuple[str, ...]) -> Secret:
        name = self._target(text.removeprefix(SECRET), text, at, trail or (text,))
        if not isinstance(name, str) or not name:
            raise self._fault(at, f"secret {text!r}: the name of a file was expected there, not {name!r}")
        return Secret(lambda: self._read(name, text, at), reference=text)

    def _read(self, name: str, text: str, at: Path) -> str:
        variable = self.find(_SECRETS_DIRECTORY)
        directory = environ.get_path(str(variable))
        if directory is None:
            raise self._fault(at, f"secret {text!r}: the environment variable {variable} names no directory")
        file = FilePath(directory, name)
        if not file.resolve().is_relative_to(directory.resolve()):
            raise self._fault(at, f"secret {text!r}: {name!r} leaves the directory of the secrets")
        try:
            return file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be read: {error}"
            raise self._fault(at, f"secret {text!r}: the file {file} ({variable}) {reason}") from None

    def _fault(self, at: Path, message: str) -> ConfigurationError:
        return ConfigurationError(f"{self._document.where(at)}: `{paths.render(at)}`: {message}")


def _key(key: object) -> Key:
    return key if isinstance(key, str | int) else str(key)


def _fill(text: str, values: Mapping[str, object]) -> str:
    def shown(match: re.Match[str]) -> str:
        value = values[match[1]]
        return value.reveal() if isinstance(value, Secret) else str(value)

    return _INSIDE_TEXT.sub(shown, text)


def _texts(value: object, at: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield at, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if at or key != presets.BLOCK:
                yield from _texts(item, (*at, _key(key)))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, (*at, index))
