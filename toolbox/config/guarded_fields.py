"""Reads the fields that a comment may never change, and finds out on what they depend.

`comment_limits` compares these fields before and after the overrides of a comment. A guarded field may refer to other
fields, and to the axes of the matrix: its value then differs from cell to cell, and a comment that changes the axis
would change the field. The arguments of a command, and the values in `env` and `write`, are not guarded: they may refer
to fields that a comment may change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from toolbox.config import paths, presets, references, shell_text
from toolbox.config.document import Document
from toolbox.config.paths import Path
from toolbox.config.references import Resolver
from toolbox.ground.model import yaml_text

WORKLOAD: Final = (references.MATRIX, "workload")
_COMMAND: Final = (*WORKLOAD, "command")
_ONLY_KEYS: Final = ((*WORKLOAD, "env"), (*WORKLOAD, "write"))
# Where a shell expects the name of a program. Text in quotes is split too, so too much may count as a program.
_ENDS_OF_COMMANDS: Final = re.compile(r"[;&|\n(){}`]|\$\(")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*\+?=")
_BEFORE_PROGRAMS: Final = frozenset(
    [
        *("!", ".", "builtin", "command", "do", "elif", "else", "env", "eval", "exec", "if", "nice", "nohup", "setsid"),
        *("source", "sudo", "then", "time", "timeout", "until", "while", "xargs"),
    ]
)


@dataclass(frozen=True, slots=True)
class Guarded:
    """A guarded field.

    Args:
        value: the guarded part of the value as text, with its references resolved, except those to the cell.
        cell: the paths below `cell` to which the field refers; an empty path if it refers to all settings of the cell.
        reached: the paths of the fields to which the field refers.
    """

    value: str
    cell: frozenset[Path] = field(default_factory=frozenset)
    reached: frozenset[Path] = field(default_factory=frozenset)

    def depends_on_axis(self, axis: str) -> bool:
        """Return whether the value differs between cells that differ in an axis."""
        if any(not path or str(path[0]) == axis for path in self.cell):
            return True
        if "." not in axis and "[" not in axis:
            return False
        own = tuple(map(str, paths.parse(axis)))
        return any(own[: len(other)] == other[: len(own)] for other in (tuple(map(str, path)) for path in self.reached))


def read(document: Document, guarded: Sequence[Path]) -> dict[str, Guarded]:
    """Return the guarded fields that exist, by path, and the names of all secrets."""
    resolver = _Tracer(document)
    fields: dict[str, Guarded] = {}
    for path in Resolver(document).secrets():
        resolver.reached.clear()
        fields[paths.render(path)] = _guarded([resolver.secret_name(path)], resolver)
    for path in guarded:
        resolver.reached.clear()
        try:
            value = resolver.find(path)
        except paths.PathError:
            continue
        if path[0] != presets.BLOCK:
            fields[paths.render(path)] = _guarded(_guarded_part(document, path, value, resolver), resolver)
    return fields


class _Tracer(Resolver):
    """A resolver that remembers which fields it has read."""

    def __init__(self, document: Document) -> None:
        super().__init__(document)
        self.reached: set[Path] = set()

    def _written(self, path: Path, trail: tuple[str, ...], *, is_required: bool = True) -> Any:
        self.reached.add(path)
        return super()._written(path, trail, is_required=is_required)


def _guarded_part(document: Document, path: Path, value: Any, resolver: _Tracer) -> list[Any]:
    """Return the parts of a resolved value that a comment may not change, and remember only what they refer to."""
    if path in _ONLY_KEYS and isinstance(value, Mapping):
        resolver.reached.clear()
        _container(document, path, resolver)
        return sorted(map(str, value))
    if path != _COMMAND:
        return [value]
    resolver.reached.clear()
    written = _container(document, path, resolver)
    if isinstance(written, list):
        return [resolver.resolve(written[0], at=(*path, 0))] if written else []
    if not isinstance(written, str) or written.startswith("@"):
        return [resolver.find(path)]
    return [[word, resolver.resolve(word, at=(*WORKLOAD, "program"))] for word in _programs(written)]


def _container(document: Document, path: Path, resolver: _Tracer) -> Any:
    """Return the unresolved value at a path. If the value is a reference to a fixed path, follow the reference."""
    written = document.find(path)
    while references.is_whole_reference(written) and not references.refers_to_cell(written[1:]):
        target = paths.parse(written[1:])
        resolver.reached.add(target)
        written = document.find(target)
    return written


def _programs(text: str) -> Iterator[str]:
    """Yield the words of a shell text that may be names of programs, with their references unresolved."""
    kept = shell_text.REFERENCE.findall(text)
    numbers = iter(range(len(kept)))
    plain = shell_text.REFERENCE.sub(lambda _: f"\0{next(numbers)}\0", text)
    for command in _ENDS_OF_COMMANDS.split(plain):
        is_quoted = False
        for word in (word for word in command.split() if not _ASSIGNMENT.match(word)):
            yield re.sub(r"\0(\d+)\0", lambda match: f"{{@{kept[int(match[1])]}}}", word)
            is_quoted ^= (word.count("'") + word.count('"')) % 2 == 1
            if not is_quoted and word not in _BEFORE_PROGRAMS and not word.startswith("-"):
                break


def _guarded(parts: list[Any], resolver: _Tracer) -> Guarded:
    """Return a guarded field with its parts, and with all values that its references may select."""
    texts = list(_texts(parts))
    containers = sorted({prefix for text in texts if (prefix := references.prefix_of(text)) is not None})
    chosen = [resolver.find(paths.parse(each)) for each in containers if not references.refers_to_cell(each)]
    cell = {path for text in (*texts, *_texts(chosen)) for path in _cell_paths(text)}
    return Guarded(yaml_text.dump_line([parts, chosen]), frozenset(cell), frozenset(resolver.reached))


def _cell_paths(text: str) -> Iterator[Path]:
    """Yield the paths below `cell` to which an unresolved text refers."""
    whole = [text.lstrip("*$")[1:]] if text.startswith(("@", references.SECRET)) else []
    for target in (*whole, *(match[1] for match in shell_text.REFERENCE.finditer(text))):
        head = target.partition("{")[0].rstrip(".[")
        if references.refers_to_cell(head):
            yield paths.parse(head)[1:]


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
