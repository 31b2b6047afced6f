"""Paths of fields in a document: `a.b`, `a["key.with.dots"]`, `a[0]`; `$` is the whole document.

A path is a tuple of keys. Keys with dots need the quoted form; the keys of a preset, for example, are paths themselves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from toolbox.ground.model.errors import ConfigurationError
from toolbox.ground.model.nearest import did_you_mean

Key = str | int
Path = tuple[Key, ...]

ROOT: Final = "$"
_TOKEN = re.compile(
    r"""
    (?P<name>[^.\[\]"']+)                                    # a plain key
    | \[(?P<index>-?\d{1,1000})\]                                   # a position in a list, or a numeric key
    | (?:\[(?P<bracket>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')\])   # a quoted key in brackets
    | (?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')            # a quoted key after a dot
    """,
    re.VERBOSE,
)
_PLAIN = re.compile(r"""[^.\[\]"'\s$][^.\[\]"'\s]*""")


class PathError(ConfigurationError):
    """A text that is not a path, or a path of a field that does not exist.

    Args:
        detail: the message without the file.
        source: the file of the document.
    """

    def __init__(self, detail: str, *, source: str | None = None) -> None:
        super().__init__(f"{source}: {detail}" if source else detail)
        self.detail = detail


def parse(text: str) -> Path:
    """Parse the text of a path, or raise a `PathError`."""
    rest = text.strip()
    if rest == ROOT:
        return ()
    rest = rest.removeprefix("$.")
    if rest.startswith("$["):
        rest = rest[1:]
    keys: list[Key] = []
    position = 0
    while position < len(rest):
        if keys and rest[position] == ".":
            position += 1
        elif keys and rest[position] != "[":
            raise _not_a_path(text)
        token = _TOKEN.match(rest, position)
        if token is None:
            raise _not_a_path(text)
        keys.append(_key(token))
        position = token.end()
    if not keys or rest.endswith("."):
        raise _not_a_path(text)
    return tuple(keys)


def _key(token: re.Match[str]) -> Key:
    if token["index"] is not None:
        return int(token["index"])
    if quoted := token["bracket"] or token["quoted"]:
        return re.sub(r"\\(.)", r"\1", quoted[1:-1])
    return token["name"].strip()


def _not_a_path(text: str) -> PathError:
    return PathError(f'{text!r} is not a path: write a.b, a[0], a["key.with.dots"], or $')


def render(path: Path) -> str:
    """Return the text of a path, which `parse` accepts."""
    text = ""
    for key in path:
        if isinstance(key, int):
            text += f"[{key}]"
        elif _PLAIN.fullmatch(key):
            text += f".{key}" if text else key
        else:
            escaped = key.replace("\\", "\\\\").replace('"', '\\"')
            text += f'["{escaped}"]'
    return text or ROOT


def child(container: object, key: Key) -> tuple[Any, Any]:
    """Return the actual key in a container and its value, or raise a `KeyError`.

    If YAML parsed a key as a number, a boolean or a date, the text of the key matches too. A negative index counts from
    the end of a list.
    """
    if isinstance(container, Mapping):
        if key in container:
            return key, container[key]
        for actual in container:
            if not isinstance(actual, str) and str(actual) == str(key):
                return actual, container[actual]
    elif isinstance(container, list) and isinstance(key, int) and -len(container) <= key < len(container):
        return key % len(container), container[key]
    raise KeyError(key)


def missing(path: Path, depth: int, container: object, *, source: str) -> PathError:
    """Return the error that a path does not exist, because the container at `path[:depth]` has no `path[depth]`."""
    parent = render(path[:depth])
    if isinstance(container, Mapping):
        fields = [render((key,)) if isinstance(key, str) else str(key) for key in container]
        hint = did_you_mean(str(path[depth]), fields, label="fields")
        where = "the document" if not depth else f"`{parent}`"
        detail = f"{where} has no `{path[depth]}`; {hint}"
    elif isinstance(container, list):
        detail = f"`{parent}` is a list of {len(container)} items"
    else:
        kind = "null" if container is None else f"a {type(container).__name__}"
        detail = f"`{parent}` is {kind}, which has no fields"
    return PathError(f"no field `{render(path)}`: {detail}", source=source)
