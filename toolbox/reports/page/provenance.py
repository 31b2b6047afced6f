"""Reads the resolved configuration of a run, line by line, with the origin of each value.

The configuration is in `config.yaml` of the run directory, the changes by presets and overrides are in `run.json`, and
the changes that the orchestration made during the run are in the journal.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from toolbox.config import paths
from toolbox.ground.model.yaml_scalars import FastLoader
from toolbox.ground.system import redaction
from toolbox.records.runs.layout import RunDirectory
from toolbox.records.runs.run_state import RunState

_MAX_LINES: Final = 3000
_MAX_BYTES: Final = 1 << 18
_FIELDS: Final = ("path", "value", "by", "where", "replaced", "replaced_where")


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the value of a field.

    Args:
        by: the preset, the override, or the call of the orchestration that made the change.
        where: the file and line of the new value; empty if the value does not come from a file.
        replaced: the earlier value.
        replaced_where: the file and line of the earlier value.
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
        by: the preset, the override, or the call of the orchestration that gave the line its value; empty for the
            project's own file.
        is_first: whether the line is the first line of its change.
    """

    number: int
    text: str
    by: str = ""
    is_first: bool = False


@dataclass(frozen=True, slots=True)
class Resolved:
    """The resolved configuration.

    Args:
        left_out: the number of lines for which the page has no room.
    """

    lines: Sequence[ConfigLine]
    changes: Sequence[Change]
    left_out: int


def of(run: RunState) -> Resolved:
    """Return the configuration of a run; without lines if the file is missing."""
    text = _text(RunDirectory(run.directory).configuration)
    by_the_orchestration = [Change(change.path, change.value, change.by) for change in run.configuration_changes]
    changes = [*_applied(RunDirectory(run.directory)), *by_the_orchestration]
    lines = text.splitlines()
    authors = _authors(text, changes) if len(text) <= _MAX_BYTES else {}
    config_lines = []
    for number, line in enumerate(lines[:_MAX_LINES]):
        change = authors.get(number)
        is_first = change is not None and authors.get(number - 1) is not change
        config_lines.append(ConfigLine(number + 1, line, change.by if change else "", is_first))
    return Resolved(config_lines, changes, len(lines) - len(config_lines))


def _text(file: Path) -> str:
    with contextlib.suppress(OSError):
        return redaction.current()(file.read_text(encoding="utf-8", errors="replace"))
    return ""


def _applied(directory: RunDirectory) -> list[Change]:
    with contextlib.suppress(KeyError, TypeError):
        changes = directory.read_request()["changes"]
        return [Change(**{name: str(change[name]) for name in _FIELDS}) for change in changes]
    return []


def _authors(text: str, changes: Sequence[Change]) -> dict[int, Change]:
    """Return the last change of each line, by the number of the line, from 0."""
    lines_of: dict[tuple[str, ...], range] = {}
    with contextlib.suppress(yaml.YAMLError, RecursionError):
        _add_lines(yaml.compose(text, Loader=FastLoader), (), lines_of)
    authors: dict[int, Change] = {}
    for change in changes:
        with contextlib.suppress(paths.PathError):
            path = tuple(str(key) for key in paths.parse(change.path))
            authors.update(dict.fromkeys(lines_of.get(path, ()), change))
    return authors


def _add_lines(node: yaml.Node | None, at: tuple[str, ...], lines_of: dict[tuple[str, ...], range]) -> None:
    """Add the line numbers of each field to `lines_of`, by the path of the field."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            path = (*at, str(key.value))
            lines_of[path] = range(key.start_mark.line, _last(value) + 1)
            _add_lines(value, path, lines_of)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            path = (*at, str(index))
            lines_of[path] = range(value.start_mark.line, _last(value) + 1)
            _add_lines(value, path, lines_of)


def _last(node: yaml.Node) -> int:
    """Return the number of the last line of a value. The end mark of a block is at the start of the next node."""
    is_block = getattr(node, "flow_style", None) is False or getattr(node, "style", None) in {"|", ">"}
    return max(node.start_mark.line, node.end_mark.line - 1) if is_block else node.end_mark.line
