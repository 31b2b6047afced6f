"""Resolves references: `@a.b`, `text {@a.b} text` and the secret `*$@a.b`. The syntax is that of TOPSAIL.

A key of a reference may be the value of another reference: `@a.{@b}` is `@a.x` if the value of `b` is `x`.

The value of a reference may itself contain references, even in mappings and lists. A loop is an error. References in
`ci_presets` are not resolved there, because they belong to the fields that the presets will set.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any, Final, TypeGuard

from toolbox.config import paths, presets, shell_text
from toolbox.config.document import Document
from toolbox.config.paths import Key, Path
from toolbox.ground.model.errors import ConfigurationError, ConfigurationFaults
from toolbox.ground.model.secrets import Secret
from toolbox.ground.model.text import abbreviated, as_text
from toolbox.ground.system import environ

MISSING: Final = object()
SECRET: Final = "*$@"  # noqa: S105  # the prefix of a reference to a secret
_UNSUPPORTED: Final = "*@"
# References to `cell` in the block `matrix` are resolved only in the configuration of a cell.
CELL: Final = "cell"
MATRIX: Final = "matrix"
# In these fields, a text is a shell command, in which the value of a reference becomes a quoted word. None stands for
# any key.
_SHELL_TEXTS: Final = (
    (MATRIX, "workload", "command"),
    ("clusters", None, "create", "command"),
    ("clusters", None, "create", "destroy"),
)
_SECRETS_DIRECTORY: Final[Path] = ("secrets", "dir", "env_key")


def is_reference(value: object) -> bool:
    """Tell whether an unresolved value is a text that contains a reference."""
    return isinstance(value, str) and (
        value.startswith(("@", SECRET, _UNSUPPORTED)) or shell_text.REFERENCE.search(value) is not None
    )


def is_whole_reference(value: object) -> TypeGuard[str]:
    """Tell whether an unresolved value is a single reference to a fixed path: `@a.b`."""
    return isinstance(value, str) and value.startswith("@") and shell_text.REFERENCE.search(value) is None


def prefix_of(text: str) -> str | None:
    """Return the path of the field that contains all values to which a reference such as `@a.{@b}` may refer.

    Return None if the text is not such a reference.
    """
    match = shell_text.REFERENCE.search(text)
    if match is None or not text.startswith("@"):
        return None
    return text[1 : match.start()].rstrip(".[") or paths.ROOT


def refers_to_cell(target: str) -> bool:
    """Tell whether the path in a reference is a path inside `cell`."""
    return target == CELL or target.startswith((f"{CELL}.", f"{CELL}["))


class Resolver:
    """Resolves the references in one document. It has no state of its own, so any thread may use it."""

    def __init__(self, document: Document) -> None:
        self._document = document

    def find(self, path: Path, *, default: object = MISSING) -> Any:
        """Return the value at a path with its references resolved. Fields along the path may be references too.

        Args:
            default: the value to return if the field does not exist. Without a default, a missing field is an error.

        Raises:
            ConfigurationError: the field does not exist, or references are wrong.
        """
        value = self._written(path, (), is_required=default is MISSING)
        return default if value is MISSING else self.resolve(value, at=path)

    def resolve(self, value: object, *, at: Path, trail: tuple[str, ...] = ()) -> Any:
        """Return a value with all its references resolved. Containers are copied.

        Args:
            at: the path of the value.
            trail: the references that are being resolved, to detect loops.
        """
        if at[:1] == (presets.BLOCK,) and not trail:
            return copy.deepcopy(value)
        if isinstance(value, str):
            return self._resolve_text(value, at, trail, is_shell=_is_shell_text(at)) if is_reference(value) else value
        if isinstance(value, Mapping):
            return dict(self._members(value.items(), at, trail))
        if isinstance(value, list):
            return [item for _, item in self._members(enumerate(value), at, trail)]
        return value

    def _members(
        self, members: Iterable[tuple[object, object]], at: Path, trail: tuple[str, ...]
    ) -> list[tuple[object, Any]]:
        """Return the members of a container with their references resolved.

        Raises:
            ConfigurationError: the message names the faults of all members. If the value of a reference has several
                faults, the message names only the first of these.
        """
        resolved: list[tuple[object, Any]] = []
        faults: list[str] = []
        for key, item in members:
            try:
                resolved.append((key, self.resolve(item, at=(*at, _key(key)), trail=trail)))
            except ConfigurationError as error:
                if trail:
                    raise
                faults += error.faults
        if faults:
            raise ConfigurationError(faults[0]) if len(set(faults)) == 1 else ConfigurationFaults(faults)
        return resolved

    def secrets(self) -> Iterator[Path]:
        """Yield the paths of all references to secrets, except in `ci_presets`."""
        return (path for path, text in _texts(self._document.root, ()) if text.startswith(SECRET))

    def secret_name(self, at: Path) -> str:
        """Return the file name of the secret to which the text at a path refers."""
        text = self._document.find(at)
        target = text.removeprefix(SECRET)
        return text if self._is_unresolved(target, at) else str(self._target(target, text, at, (text,)))

    def _written(self, path: Path, trail: tuple[str, ...], *, is_required: bool = True) -> Any:
        """Return the unresolved value at a path; `MISSING` if the field does not exist and is not required."""
        value: Any = self._document.root
        for depth, name in enumerate(path):
            if is_reference(value):
                value = self.resolve(value, at=path[:depth], trail=trail)
            try:
                _, value = paths.child(value, name)
            except KeyError:
                if not is_required:
                    return MISSING
                raise paths.missing(path, depth, value, source=self._document.source) from None
        return value

    def _resolve_text(self, text: str, at: Path, trail: tuple[str, ...], *, is_shell: bool) -> Any:
        if text in trail:
            loop = " -> ".join([*trail[trail.index(text) :], text])
            raise self._fault(at, f"the references form a loop: {loop}")
        trail = (*trail, text)
        if text.startswith(SECRET):
            return self._secret(text, at, trail)
        if text.startswith(_UNSUPPORTED):
            raise self._fault(at, f"{text!r} is not a reference: write `@a.b`, or `*$@a.b` for a secret")
        if text.startswith("@"):
            keys = [match[1] for match in shell_text.REFERENCE.finditer(text)]
            if any(self._is_unresolved(target, at) for target in (text[1:], *keys)):
                return text
            text = self._with_keys(text, at, trail) if keys else text
            return self._command(text, at, trail) if is_shell else self._target(text[1:], text, at, trail)
        if is_shell:
            self._check_shell_text(text, at)
        values = {
            match[1]: self._target(match[1], text, at, trail)
            for match in shell_text.REFERENCE.finditer(text)
            if not self._is_unresolved(match[1], at)
        }
        fill = shell_text.fill if is_shell else _fill
        if any(isinstance(value, Secret) for value in values.values()):
            return Secret(lambda: fill(text, _revealed(values)), reference=text)
        return fill(text, values)

    def _with_keys(self, text: str, at: Path, trail: tuple[str, ...]) -> str:
        """Replace each inner reference of `@a.{@b}` by its value as a quoted key."""

        def key(match: re.Match[str]) -> str:
            value = self._target(match[1], text, at, trail)
            if not isinstance(value, str | int):
                raise self._fault(at, f"{text}: the value of `{match[1]}` must be a name, not {abbreviated(value)}")
            escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
            return f'"{escaped}"'

        return shell_text.REFERENCE.sub(key, text)

    def _command(self, text: str, at: Path, trail: tuple[str, ...]) -> Any:
        """Return the command to which a single reference refers. If the command is text, it is a shell command.

        Raises:
            ConfigurationError: the command is a string from an axis, which is never run as shell text.
        """
        path, written = self._written_at(text[1:], text, at, trail)
        if isinstance(written, str) and path[:1] == (CELL,):
            hint = f"give the axis lists of arguments, or write `[bash, -c, {text!r}]`"
            raise self._fault(at, f"{text} is a value of an axis, and Topgallant never runs it as shell text: {hint}")
        if isinstance(written, str) and is_reference(written):
            return self._resolve_text(written, path, trail, is_shell=True)
        return self.resolve(written, at=path, trail=trail)

    def _check_shell_text(self, text: str, at: Path) -> None:
        try:
            shell_text.fill(text, {})
        except shell_text.ShellTextError as error:
            raise self._fault(at, str(error)) from None

    def _is_unresolved(self, target: str, at: Path) -> bool:
        """Tell whether a reference to `cell` cannot be resolved yet, because there is no cell."""
        return refers_to_cell(target) and at[:1] == (MATRIX,) and CELL not in self._document.root

    def _target(self, target: str, text: str, at: Path, trail: tuple[str, ...]) -> Any:
        path, value = self._written_at(target, text, at, trail)
        return self.resolve(value, at=path, trail=trail)

    def _written_at(self, target: str, text: str, at: Path, trail: tuple[str, ...]) -> tuple[Path, Any]:
        """Return the path in a reference, and the unresolved value at the path."""
        try:
            path = paths.parse(target)
            return path, self._written(path, trail)
        except paths.PathError as error:
            raise self._fault(at, f"dangling reference {text!r}: {error.detail}") from None

    def _secret(self, text: str, at: Path, trail: tuple[str, ...]) -> Secret:
        name = self._target(text.removeprefix(SECRET), text, at, trail or (text,))
        if not isinstance(name, str) or not name:
            raise self._fault(at, f"secret {text!r}: the field must contain the name of a file, not {name!r}")
        return Secret(lambda: self._read(name, text, at), reference=text)

    def _read(self, name: str, text: str, at: Path) -> str:
        variable = self.find(_SECRETS_DIRECTORY)
        directory = environ.get_path(str(variable))
        if directory is None:
            raise self._fault(
                at,
                f"secret {text!r}: the environment variable {variable} must name the directory of the secrets",
            )
        file = FilePath(directory, name)
        if not file.resolve().is_relative_to(directory.resolve()):
            raise self._fault(at, f"secret {text!r}: {name!r} is outside of the directory that ${variable} names")
        try:
            return file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be read: {error}"
            raise self._fault(at, f"secret {text!r}: the file {file} ({variable}) {reason}") from None

    def _fault(self, at: Path, message: str) -> ConfigurationError:
        return ConfigurationError(f"{self._document.where(at)}: `{paths.render(at)}`: {message}")


def _key(key: object) -> Key:
    return key if isinstance(key, str | int) else str(key)


def _is_shell_text(at: Path) -> bool:
    return any(
        len(at) == len(pattern) and all(key in (None, own) for key, own in zip(pattern, at, strict=True))
        for pattern in _SHELL_TEXTS
    )


def _fill(text: str, values: Mapping[str, object]) -> str:
    return shell_text.REFERENCE.sub(lambda match: as_text(values[match[1]]) if match[1] in values else match[0], text)


def _revealed(values: Mapping[str, object]) -> dict[str, object]:
    return {name: value.reveal() if isinstance(value, Secret) else value for name, value in values.items()}


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
