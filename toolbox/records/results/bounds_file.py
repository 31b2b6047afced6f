"""Reads and writes the two files of bounds of a project; docs/bounds.md shows the files.

`config/bounds/PROJECT.yaml` is generated, and people write `config/bounds/PROJECT.manual.yaml`. A manual bound wins
over the generated bound of the same metric of the same cell. `results update_bounds` replaces the generated file. It
never changes a manual file, and refuses to replace a generated file that contains text that a person wrote.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

from toolbox.config import document
from toolbox.ground.model.bounds import Bound
from toolbox.ground.model.errors import ConfigurationError
from toolbox.ground.system import filesystem
from toolbox.records.results import bounds_parser
from toolbox.records.results.bounds_parser import CELL, CELLS, FIELDS, METRICS, Entry

Key = tuple[str, str]
"""The id of a cell, and a metric."""
_NEW_FILE_MODE: Final = 0o644  # the files are committed with the sources, so other users may read them
_HEADER: Final = """\
# Bounds of the metrics of {project}, by cell.
# `results update_bounds` writes this file whole. Write bounds of your own into {manual}: they win.
"""
_HEADER_LINES: Final = ("# Bounds of the metrics of ", "# `results update_bounds` writes ")
_LONGEST_KEY: Final = 1000  # YAML limits a key without a question mark to 1024 characters
_PLAIN: Final = re.compile("[a-zA-Z0-9][a-zA-Z0-9_+.=@/,-]*")
_NOT_TEXT: Final = re.compile(  # words that YAML 1.1 or 1.2 reads as a number, a date or a truth value
    "[0-9][0-9_.,-]*(e[-+]?[0-9_]+)?|0[box][0-9a-f_]+|y|n|yes|no|on|off|true|false|null|nan|inf|infinity", re.IGNORECASE
)


class Difference(NamedTuple):
    """A bound that an update changes.

    Args:
        before: the bound before the update; None if there was no bound.
    """

    cell: str
    name: str
    metric: str
    before: Bound | None
    after: Bound


@dataclass(frozen=True, slots=True)
class BoundsFiles:
    """The contents of the two files of bounds of a project.

    Args:
        path: the path of the generated file.
        text: the text of the generated file; empty if the file does not exist.
    """

    path: Path
    text: str
    generated: Mapping[Key, Entry]
    manual: Mapping[Key, Entry]

    @property
    def bounds(self) -> dict[Key, Bound]:
        """The bounds in force: a manual bound replaces a generated bound."""
        return _bounds({**self.generated, **self.manual})

    def update(self, entries: Sequence[Entry], *, dry_run: bool = False) -> list[Difference]:
        """Write generated bounds, and return the changed bounds, sorted by the names of cells and metrics.

        Bounds without a new entry stay, and entries for manual bounds are ignored. The file is written completely or
        not at all.

        Raises:
            ConfigurationError: the generated file has changed since it was read, or contains text that a person wrote.
            ValueError: two entries are for the same metric of the same cell.
            OSError: a file cannot be written.
        """
        new = _by_key(entries)
        if len(new) < len(entries):
            raise ValueError("a metric of a cell has two bounds, but may have only one")
        new = {key: entry for key, entry in new.items() if key not in self.manual}
        self._refuse_manual_text()
        if not dry_run:
            self._write(self._updated(new))
        before = _bounds(self.generated)
        return [
            Difference(entry.cell, entry.name, entry.metric, before.get(key), entry.bound)
            for key, entry in sorted(new.items(), key=lambda item: (item[1].name, item[1].metric, item[1].cell))
            if before.get(key) != entry.bound
        ]

    def _refuse_manual_text(self) -> None:
        """Refuse a generated file with a line that a person wrote: an update would remove the line."""
        generated = set(self._updated({}).splitlines())
        lines = [entry.line for entry in self.generated.values() if entry.is_manual]
        for number, line in enumerate(self.text.splitlines(), start=1):
            if line.strip() and line not in generated and not line.startswith(_HEADER_LINES):
                lines.append(number)
        if lines:
            raise ConfigurationError(
                f"{self.path}:{min(lines)}: `results update_bounds` did not write this line: move your own bounds and "
                f"comments to {manual_path(self.path).name}, and undo other changes"
            )

    def _updated(self, new: Mapping[Key, Entry]) -> str:
        """Return the text of the generated file with new bounds."""
        entries = {**self.generated, **new}.values()
        if not entries and not self.text:
            return ""
        names = {entry.cell: entry.name for entry in self.generated.values()}
        keys = _keys(names, _latest_names(new.values()))
        header = _HEADER.format(project=self.path.stem, manual=manual_path(self.path).name)
        return "\n".join([f"{header}{CELLS}:{'' if entries else ' {}'}", *_rendered(entries, keys), ""])

    def _write(self, text: str) -> None:
        """Write the generated file if it changes."""
        if _read(self.path) != self.text:
            raise ConfigurationError(f"{self.path} was changed during this update: run the command again")
        if text != self.text:
            mode = stat.S_IMODE(self.path.stat().st_mode) if self.path.exists() else _NEW_FILE_MODE
            self.path.parent.mkdir(parents=True, exist_ok=True)
            filesystem.write_pieces(self.path.resolve(), [text.encode()], durable=True, mode=mode)


def manual_path(path: Path) -> Path:
    """Return the path of the manual file beside a generated file."""
    return path.with_suffix(".manual.yaml")


def load(path: Path) -> BoundsFiles:
    """Read the two files of bounds. A file that does not exist has no bounds.

    Args:
        path: the path of the generated file.

    Raises:
        ConfigurationError: a file is wrong; the message names the line and the expected value.
    """
    text, manual = _read(path), manual_path(path)
    return BoundsFiles(
        path,
        text,
        _by_key(bounds_parser.parse(text, path)),
        _by_key(bounds_parser.parse(_read(manual), manual)),
    )


def read(path: Path) -> dict[Key, Bound]:
    """Return the bounds in force. The argument and the errors are those of `load`."""
    return load(path).bounds


def _by_key(entries: Sequence[Entry]) -> dict[Key, Entry]:
    return {(entry.cell, entry.metric): entry for entry in entries}


def _bounds(entries: Mapping[Key, Entry]) -> dict[Key, Bound]:
    return {key: entry.bound for key, entry in entries.items()}


def _read(path: Path) -> str:
    return document.read_text(path, what="the file of bounds").removeprefix("\ufeff") if path.exists() else ""


def _latest_names(entries: Iterable[Entry]) -> dict[str, str]:
    """Return the latest name of each cell, by id. Entries of removed metrics keep older names of their cells."""
    ordered = sorted(entries, key=lambda entry: (entry.bound.until.timestamp() if entry.bound.until else 0, entry.name))
    return {entry.cell: entry.name for entry in ordered}


def _keys(present: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    """Return the key of each cell, by id: the name of the cell. The id is appended if another cell has that name.

    Args:
        present: the keys in the file, by id.
        names: the names of the updated cells, by id.
    """
    used_keys = {key for identity, key in present.items() if identity not in names}
    keys = dict(present)
    for identity in sorted(names, key=lambda cell: (names[cell], present.get(cell) != names[cell], cell)):
        name = names[identity]
        keys[identity] = name if name not in used_keys else f"{name} ({identity})"
        used_keys.add(keys[identity])
    return keys


def _rendered(entries: Iterable[Entry], keys: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of the cells, in the order of their keys and metrics."""
    ordered = sorted(entries, key=lambda entry: (keys[entry.cell], entry.metric))
    for cell, metrics in groupby(ordered, key=lambda entry: entry.cell):
        yield from (_key(2, keys[cell]), f"    {CELL}: {_scalar(cell)}", f"    {METRICS}:")
        for entry in metrics:
            yield _key(6, entry.metric)
            values = ((name, getattr(entry.bound, name)) for name in FIELDS)
            yield from (f"        {name}: {_value(value)}" for name, value in values if value is not None)


def _key(column: int, text: str) -> str:
    indent, key = " " * column, _scalar(text)
    return f"{indent}{key}:" if len(key) <= _LONGEST_KEY else f"{indent}? {key}\n{indent}:"


def _value(value: float | str | datetime) -> str:
    """Return a value as YAML."""
    if isinstance(value, str):
        return _scalar(value)
    if isinstance(value, datetime):
        return value.isoformat()
    text = repr(value)
    return text if "." in text else text.replace("e", ".0e")  # YAML 1.1 reads 1e-05 as text


def _scalar(text: str) -> str:
    """Return text as YAML on one line, in quotes if YAML could read the text as another type."""
    if _PLAIN.fullmatch(text) and not _NOT_TEXT.fullmatch(text):
        return text
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    return char if char.isprintable() else f"\\U{ord(char):08x}"
