"""A YAML document that knows the file and the line of each of its values, and each change made to it.

The place of a value belongs to its slot (a container and a key in it), not to its path, because presets and
YAML anchors let one container stand at several paths: TOPSAIL assigns a preset's own mapping, so that a later
change inside it is seen in the preset too, and when the preset is applied again. Configurations written for it
rely on the outcome, and we keep it.

Who uses it: `configuration`, which puts the layers of one together in it. It does not resolve references.
"""

from __future__ import annotations

import copy
import dataclasses
import logging
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

import yaml

from toolbox.config import paths
from toolbox.config.paths import Path
from toolbox.model.errors import ConfigurationError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Location:
    """A line of a file. Lines count from 1; 0 is for what stands in no file: a flag, a call of `set_config`."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Change:
    """One field given another value.

    Args:
        layer: who did it: `preset NAME`, `override file F`, `--overrides`, `set_config`.
        location: where the new value is written, or None when no file says it.
        replaced: what was there, and `replaced_location` where that was written.
    """

    path: Path
    value: Any
    replaced: Any
    replaced_location: Location | None
    layer: str
    location: Location | None
    slot: tuple[int, Hashable]


@dataclass(slots=True)
class _Marks:
    """The line of each key of one container, and the container, so that its id stays its own."""

    container: dict[Any, Any] | list[Any]
    lines: dict[Hashable, Location]


@dataclass(slots=True)
class Document:
    """The values of a configuration while its layers are put together."""

    root: dict[Any, Any]
    source: str
    marks: dict[int, _Marks] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)

    def find(self, path: Path) -> Any:
        """Return the value at a path, as written.

        Raises:
            PathError: there is no such field.
        """
        return [self.root, *(value for _, _, value in self._walk(path))][-1]

    def set(self, path: Path, value: object, *, layer: str, location: Location | None) -> None:
        """Give an existing field another value: whole, mappings included.

        Raises:
            PathError: there is no such field, or it is the document itself.
        """
        if not path:
            raise paths.PathError("`$` is the whole document: name a field", source=self.source)
        *_, (container, key, replaced) = self._walk_to_existing(path)
        marks = self.marks.setdefault(id(container), _Marks(container, {}))
        slot = (id(container), key)
        given, before = copy.deepcopy(value), copy.deepcopy(replaced)
        self.changes.append(Change(path, given, before, marks.lines.get(key), layer, location, slot))
        container[key] = value
        marks.lines[key] = location or Location(layer, 0)

    def overlaid(self, values: Mapping[Path, object], extra: Mapping[str, object]) -> Document:
        """Return a document with other values in some existing fields, and new fields at its top.

        Only the containers on the way are copied: a matrix makes one of these for each of its cells.

        Raises:
            PathError: there is no such field.
        """
        changed = Document({**self.root, **extra}, self.source, self.marks, self.changes)
        for path, value in values.items():
            *way, (_, last, _) = self._walk_to_existing(path)
            container: Any = changed.root
            for _, key, _ in way:
                container[key] = copy.copy(container[key])
                container = container[key]
            container[last] = value
        return changed

    def slots(self, path: Path) -> list[tuple[int, Hashable]]:
        """Return the slots on the way to a path: (id of the container, key in it)."""
        return [(id(container), key) for container, key, _ in self._walk(path)]

    def location(self, path: Path) -> Location | None:
        """Return where the value at a path is written, or the nearest field around it that a file says."""
        found: Location | None = None
        for container, key, _ in self._walk_as_far_as_it_goes(path):
            marks = self.marks.get(id(container))
            found = (marks.lines.get(key) if marks else None) or found
        return found

    def where(self, path: Path) -> str:
        """Return `file:line` of a path, or the file where the line is not known."""
        return str(self.location(path) or self.source)

    def copy(self) -> Document:
        """Return a document that shares nothing with this one, and whose values share what they shared here."""
        memo: dict[int, Any] = {}
        root = copy.deepcopy(self.root, memo)
        marks = {}
        for identity, old in self.marks.items():
            container = memo.get(identity)
            if container is not None:
                marks[id(container)] = _Marks(container, dict(old.lines))
        changes = [
            dataclasses.replace(change, slot=(id(memo.get(change.slot[0])), change.slot[1])) for change in self.changes
        ]
        return Document(root, self.source, marks, changes)

    def _walk(self, path: Path) -> Iterator[tuple[Any, Hashable, Any]]:
        container: Any = self.root
        for depth, name in enumerate(path):
            try:
                key, value = paths.child(container, name)
            except KeyError:
                raise paths.missing(path, depth, container, source=self.source) from None
            yield container, key, value
            container = value

    def _walk_to_existing(self, path: Path) -> Iterator[tuple[Any, Hashable, Any]]:
        """Walk to a field that is about to be set; where it is missing, the error says how to make it."""
        try:
            yield from self._walk(path)
        except paths.PathError as error:
            found = [self.root, *(value for _, _, value in self._walk_as_far_as_it_goes(path))]
            if not isinstance(found[-1], dict):
                raise
            hint = f"only an existing field can be set: write a placeholder, `{_placeholder(path)}`, in {self.source}"
            raise paths.PathError(f"{error.detail}\n  {hint}", source=self.source) from None

    def _walk_as_far_as_it_goes(self, path: Path) -> Iterator[tuple[Any, Hashable, Any]]:
        try:
            yield from self._walk(path)
        except paths.PathError:
            return


def _placeholder(path: Path) -> str:
    """Return the YAML text of a field that has no value yet: `a: {b: null}`."""
    *around, last = path
    text = f"{last}: null"
    for key in reversed(around):
        text = f"{key}: {{{text}}}"
    return text


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # libyaml is optional
    """PyYAML's own safe loader, which also keeps the line of each value."""

    def __init__(self, stream: str, file: str) -> None:
        super().__init__(stream)
        self.file = file
        self.marks: dict[int, _Marks] = {}

    def mapping(self, node: yaml.MappingNode) -> Iterator[dict[Any, Any]]:
        """Construct a mapping in two steps, as PyYAML does, so that an anchor can refer to itself."""
        data: dict[Any, Any] = {}
        yield data
        self._warn_of_duplicates(node)
        data.update(self.construct_mapping(node))
        lines: dict[Hashable, Location] = {self.construct_object(key): self._location(key) for key, _ in node.value}
        self.marks[id(data)] = _Marks(data, lines)

    def sequence(self, node: yaml.SequenceNode) -> Iterator[list[Any]]:
        """Construct a list in two steps."""
        data: list[Any] = []
        yield data
        data.extend(self.construct_sequence(node))
        self.marks[id(data)] = _Marks(data, {index: self._location(item) for index, item in enumerate(node.value)})

    def moment(self, node: yaml.ScalarNode) -> object:
        """Construct a date or a time; PyYAML takes `2026-13-40` for one, and fails on it."""
        try:
            return self.construct_yaml_timestamp(node)
        except ValueError as error:
            raise yaml.constructor.ConstructorError(
                None, None, f"{node.value} is not a date: {error}", node.start_mark
            ) from None

    def _location(self, node: yaml.Node) -> Location:
        return Location(self.file, node.start_mark.line + 1)

    def _warn_of_duplicates(self, node: yaml.MappingNode) -> None:
        seen: dict[str, int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                line = key.start_mark.line + 1
                if key.value in seen:
                    log.warning(
                        "%s:%d: `%s` was already given in line %d, the last one counts",
                        self.file, line, key.value, seen[key.value],
                    )  # fmt: skip
                seen[key.value] = line


_Loader.add_constructor("tag:yaml.org,2002:map", _Loader.mapping)
_Loader.add_constructor("tag:yaml.org,2002:seq", _Loader.sequence)
_Loader.add_constructor("tag:yaml.org,2002:timestamp", _Loader.moment)


def read_text(file: FilePath, *, what: str) -> str:
    """Return the text of a file that a person named.

    Raises:
        ConfigurationError: it cannot be read, or it is not UTF-8.
    """
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigurationError(f"{what} {file} does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{what} {file} cannot be read: {error}") from None


def load(file: FilePath, *, what: str = "the configuration file") -> Document:
    """Read a YAML file whose top is a mapping.

    Raises:
        ConfigurationError: the file cannot be read, is not YAML, or is not a mapping.
    """
    return parse(read_text(file, what=what), source=_named(file))


def _named(file: FilePath) -> str:
    """Return the name of a file as messages give it: from the working directory on, where it is in there."""
    here = FilePath.cwd()
    return str(file.relative_to(here) if file.is_absolute() and file.is_relative_to(here) else file)


def parse(text: str, *, source: str) -> Document:
    """Return the document that a YAML text writes. `source` is the name of the file in messages.

    Raises:
        ConfigurationError: the text is not YAML, or not a mapping.
    """
    try:
        loader = _Loader(text, source)
        root = loader.get_single_data()
    except yaml.YAMLError as error:
        raise ConfigurationError(_yaml_fault(error, source)) from None
    if not isinstance(root, dict):
        kind = "empty" if root is None else f"a {type(root).__name__}"
        raise ConfigurationError(f"{source}: the document is {kind}, a mapping was expected")
    _refuse_a_cycle(root, source, ())
    return Document(root, source, loader.marks)


def _refuse_a_cycle(value: object, source: str, around: tuple[int, ...]) -> None:
    """Refuse an anchor that holds itself, which YAML can write and nothing here could end to read."""
    if isinstance(value, dict | list):
        if id(value) in around:
            raise ConfigurationError(f"{source}: broken YAML: an anchor (&) contains an alias (*) of itself")
        for item in value.values() if isinstance(value, dict) else value:
            _refuse_a_cycle(item, source, (*around, id(value)))


def _yaml_fault(error: yaml.YAMLError, source: str) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        context = f" ({error.context})" if error.context else ""
        return f"{source}:{mark.line + 1}:{mark.column + 1}: broken YAML: {error.problem}{context}"
    return f"{source}: broken YAML: {error}"
