"""The resolved configuration of a run, line by line, with who gave a field its value.

From what the run directory holds: `config.yaml`, and in `run.json` every change that presets and overrides made. What
the orchestration changed while it ran is in the journal.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from toolbox.config import paths
from toolbox.model.events import ConfigurationChanged
from toolbox.runs import journal
from toolbox.runs.layout import RunDirectory
from toolbox.system import filesystem, redaction

_MOST_LINES: Final = 3000
_MOST_BYTES: Final = 1 << 18
_FIELDS: Final = ("path", "value", "by", "where", "replaced", "replaced_where")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Change:
    """A field that got another value.

    Args:
        by: a preset, an override, or the orchestration.
        where: the file and line that say so; empty where none does.
        replaced: what was there before, and `replaced_where` the file and line that said that.
    """

    path: str
    value: str
    by: str
    where: str = ""
    replaced: str = ""
    replaced_where: str = ""


@dataclass(frozen=True, slots=True)
class ConfigLine:
    """A line of the configuration.

    Args:
        by: who gave it its value, where that is not the project's own file.
        is_first: whether the line before it has another author, or belongs to another field.
    """

    number: int
    text: str
    by: str = ""
    is_first: bool = False


@dataclass(frozen=True, slots=True)
class Resolved:
    """The configuration. `left_out`: how many lines the page has no room for."""

    lines: Sequence[ConfigLine]
    changes: Sequence[Change]
    left_out: int


def of(directory: Path) -> Resolved:
    """Return the configuration of a run; without lines where it has none."""
    text = _text(RunDirectory(directory).configuration)
    changes = [*_applied(RunDirectory(directory).request), *_by_the_orchestration(directory)]
    lines = text.splitlines()
    authors = _authors(text, changes) if len(text) <= _MOST_BYTES else {}
    shown = []
    for number, line in enumerate(lines[:_MOST_LINES]):
        change = authors.get(number)
        is_first = change is not None and authors.get(number - 1) is not change
        shown.append(ConfigLine(number + 1, line, change.by if change else "", is_first))
    return Resolved(shown, changes, len(lines) - len(shown))


def _text(file: Path) -> str:
    with contextlib.suppress(OSError):
        return redaction.current()(file.read_text(encoding="utf-8", errors="replace"))
    return ""


def _applied(file: Path) -> list[Change]:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return [
            Change(**{name: str(change[name]) for name in _FIELDS}) for change in filesystem.read_json(file)["changes"]
        ]
    return []


def _by_the_orchestration(directory: Path) -> Iterator[Change]:
    for entry in journal.read(directory):
        if isinstance(event := entry.event, ConfigurationChanged):
            yield Change(event.path, event.value, event.by)


def _authors(text: str, changes: Sequence[Change]) -> dict[int, Change]:
    """Return by line, from 0 on, the change that gave it its value. The last one wins."""
    places: dict[tuple[str, ...], range] = {}
    with contextlib.suppress(yaml.YAMLError, RecursionError):
        _places(yaml.compose(text, Loader=_LOADER), (), places)
    found: dict[int, Change] = {}
    for change in changes:
        with contextlib.suppress(paths.PathError):
            path = tuple(str(key) for key in paths.parse(change.path))
            found.update(dict.fromkeys(places.get(path, ()), change))
    return found


def _places(node: yaml.Node | None, at: tuple[str, ...], places: dict[tuple[str, ...], range]) -> None:
    """Find out which lines each field has."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            path = (*at, str(key.value))
            places[path] = range(key.start_mark.line, _last(value) + 1)
            _places(value, path, places)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            path = (*at, str(index))
            places[path] = range(value.start_mark.line, _last(value) + 1)
            _places(value, path, places)


def _last(node: yaml.Node) -> int:
    """Return the last line of a value. What is written over several lines ends where the next thing begins."""
    is_block = getattr(node, "flow_style", None) is False or getattr(node, "style", None) in {"|", ">"}
    return max(node.start_mark.line, node.end_mark.line - 1) if is_block else node.end_mark.line
