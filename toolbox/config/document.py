"""A YAML document that records the file and line of each value, and every change to a value.

Locations are stored by slot (a container and a key), not by path, because YAML anchors and presets can put the same
container at several paths. When a preset assigns a mapping, the field and the preset share the mapping, and a later
change through either path changes both. TOPSAIL does the same, and its configurations rely on this.

`configuration` builds a document from the layers of a configuration. This module does not resolve references.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import logging
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any, Final

import yaml

from toolbox.config import paths
from toolbox.config.paths import Path
from toolbox.ground.model import yaml_scalars
from toolbox.ground.model.errors import ConfigurationError
from toolbox.ground.model.yaml_scalars import AmbiguousScalar

log = logging.getLogger(__name__)

ONCE: Final = {"once": True}
"""Marks a record of the log that the command line prints once, although a command may read a file several times."""

_DEEPEST: Final = 100  # mappings and lists inside one another
_LIBYAML_DEPTH: Final = "exceeded maximum nesting depth"  # libyaml 0.2.6 and later, before it returns the first event


@dataclass(frozen=True, slots=True)
class Location:
    """A line of a file. Lines count from 1. Line 0 means that the value is from a flag or `set_config`, not a file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the value of one field.

    Args:
        replaced_location: where the old value is written.
        layer: the source of the change: `preset NAME`, `override file F`, `--overrides` or `set_config`.
        location: where the new value is written; None if it is not in a file.
        slot: the id of the container, and the key.
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
    """The locations of the keys of a container. The reference to the container keeps its id from being reused."""

    container: dict[Any, Any] | list[Any]
    lines: dict[Hashable, Location]


@dataclass(slots=True)
class Document:
    """The values of a configuration with their locations and changes.

    Args:
        source: the name of the file or of the flag, for messages.
        marks: the locations in each container, by the id of the container.
        ambiguous: the unquoted scalars that a person may have meant as text.
        accepts_null: tells whether a field may be added to the file with the value null, for hints.
        unaddable: tells why a missing field cannot be added to the file alone; empty if it can, for hints.
    """

    root: dict[Any, Any]
    source: str
    marks: dict[int, _Marks] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    ambiguous: tuple[AmbiguousScalar, ...] = ()
    accepts_null: Callable[[Path], bool] = lambda _: True
    unaddable: Callable[[Path], str] = lambda _: ""

    def find(self, path: Path) -> Any:
        """Return the value at a path with unresolved references, or raise a `PathError`."""
        return [self.root, *(value for _, _, value in self._walk(path))][-1]

    def set(self, path: Path, value: object, *, layer: str, location: Location | None) -> None:
        """Replace the value of an existing field. A mapping is replaced as a whole, not merged.

        Raises:
            PathError: the field does not exist, or the path is `$`.
        """
        if not path:
            raise paths.PathError("`$` is the whole document: name a field", source=self.source)
        *_, (container, key, replaced) = self._walk_to_set(path)
        marks = self.marks.setdefault(id(container), _Marks(container, {}))
        slot = (id(container), key)
        after, before = copy.deepcopy(value), copy.deepcopy(replaced)
        self.changes.append(Change(path, after, before, marks.lines.get(key), layer, location, slot))
        container[key] = value
        marks.lines[key] = location or Location(layer, 0)

    def add(self, path: Path, value: object, *, layer: str, location: Location | None) -> None:
        """Add an entry to an existing mapping, or replace it. The replaced value of a new entry is null.

        Raises:
            PathError: there is no mapping that could contain the entry.
        """
        container = self.find(path[:-1])
        try:
            self.find(path)
        except paths.PathError:
            if isinstance(container, dict):
                container[path[-1]] = None
        self.set(path, value, layer=layer, location=location)

    def overlaid(self, values: Mapping[Path, object], extra: Mapping[str, object]) -> Document:
        """Return a copy of the document with new values for some existing fields, and with new top-level fields.

        Only the containers along the paths are copied, because a matrix makes such a copy for each of its cells.

        Args:
            values: the new values by path.
            extra: the new top-level fields.

        Raises:
            PathError: a field of `values` does not exist.
        """
        changed = dataclasses.replace(self, root={**self.root, **extra})
        for path, value in values.items():
            *parents, (_, last, _) = self._walk_to_set(path)
            container: Any = changed.root
            for _, key, _ in parents:
                container[key] = copy.copy(container[key])
                container = container[key]
            container[last] = value
        return changed

    def slots(self, path: Path) -> list[tuple[int, Hashable]]:
        """Return the slots along a path, each as the id of the container and the key."""
        return [(id(container), key) for container, key, _ in self._walk(path)]

    def location(self, path: Path) -> Location | None:
        """Return the location of the value at a path, or of the nearest enclosing field that has a location."""
        location: Location | None = None
        for container, key, _ in self._walk_existing(path):
            marks = self.marks.get(id(container))
            location = (marks.lines.get(key) if marks else None) or location
        return location

    def where(self, path: Path) -> str:
        """Return `file:line` of the value at a path, or only the file if the line is unknown."""
        return str(self.location(path) or self.source)

    def ambiguous_lines(self) -> list[str]:
        """Return a line for each scalar in `ambiguous`, with its place and its quoted form."""
        return [f"{position(self.source, scalar.line, scalar.column)}: {scalar}" for scalar in self.ambiguous]

    def copy(self) -> Document:
        """Return a deep copy. Containers at several paths in this document are also shared in the copy."""
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
        return dataclasses.replace(self, root=root, marks=marks, changes=changes)

    def _walk(self, path: Path) -> Iterator[tuple[Any, Hashable, Any]]:
        container: Any = self.root
        for depth, name in enumerate(path):
            try:
                key, value = paths.child(container, name)
            except KeyError:
                raise paths.missing(path, depth, container, source=self.source) from None
            yield container, key, value
            container = value

    def _walk_to_set(self, path: Path) -> Iterator[tuple[Any, Hashable, Any]]:
        """Walk to a field that will be set. If the field is missing, the error tells how to add it to the file."""
        try:
            yield from self._walk(path)
        except paths.PathError as error:
            values = [self.root, *(value for _, _, value in self._walk_existing(path))]
            missing = path[len(values) - 1 :]
            if values[-1] is None and all(isinstance(key, str) for key in missing):
                whole = f"{paths.render(path[: -len(missing)])}: {{{_placeholder(missing, 'VALUE')}}}"
                message = f"{error.detail}\n  set the whole field, as in `{whole}`"
                raise paths.PathError(message, source=self.source) from None
            if not isinstance(values[-1], dict) or isinstance(missing[0], int):
                raise
            hint = self.unaddable(path) or self._hint(path, len(values) - 1)
            raise paths.PathError(
                f"{error.detail}\n  only existing fields can be set: {hint}", source=self.source
            ) from None

    def _hint(self, path: Path, depth: int) -> str:
        """Return how to add a missing field to the file.

        Args:
            depth: how many keys of the path exist.
        """
        value = "null" if self.accepts_null(path) else "VALUE"
        if not any(isinstance(key, int) for key in path):
            return f"add the field to {self.source}, as in `{_placeholder(path, value)}`"
        missing = tuple(itertools.takewhile(lambda key: isinstance(key, str), path[depth:]))
        value = value if len(missing) == len(path) - depth else "VALUE"
        parent = f"`{paths.render(path[:depth])}` in {self.where(path[:depth])}" if depth else self.source
        return f"add `{_placeholder(missing, value)}` to {parent}"

    def _walk_existing(self, path: Path) -> Iterator[tuple[Any, Hashable, Any]]:
        try:
            yield from self._walk(path)
        except paths.PathError:
            return


def _placeholder(path: Path, value: str) -> str:
    """Return the YAML text of a path with a value: `a: {b: null}`."""
    *around, last = path
    text = f"{last}: {value}"
    for key in reversed(around):
        text = f"{key}: {{{text}}}"
    return text


class _Loader(yaml_scalars.FastLoader):  # type: ignore[misc]
    """PyYAML's safe loader, which also records the line of each value."""

    def __init__(self, stream: str, file: str) -> None:
        super().__init__(stream)
        self.file = file
        self.marks: dict[int, _Marks] = {}

    def mapping(self, node: yaml.MappingNode) -> Iterator[dict[Any, Any]]:
        """Construct a mapping. The empty mapping is yielded first, so that an alias inside can refer to the mapping."""
        data: dict[Any, Any] = {}
        yield data
        self._warn_of_duplicates(node)
        data.update(self.construct_mapping(node))
        lines: dict[Hashable, Location] = {self.construct_object(key): self._location(key) for key, _ in node.value}
        self.marks[id(data)] = _Marks(data, lines)

    def sequence(self, node: yaml.SequenceNode) -> Iterator[list[Any]]:
        """Construct a list in the same two steps as a mapping."""
        data: list[Any] = []
        yield data
        data.extend(self.construct_sequence(node))
        self.marks[id(data)] = _Marks(data, {index: self._location(item) for index, item in enumerate(node.value)})

    def timestamp(self, node: yaml.ScalarNode) -> object:
        """Construct a date or a time. For `2026-13-40`, PyYAML raises a `ValueError`, which becomes a YAML error."""
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
                    place = position(self.file, line, key.start_mark.index + 1)
                    earlier = "set" if is_flag(self.file) else f"in line {seen[key.value]}"
                    message = "%s: `%s` is already %s: the last value is used"
                    log.warning(message, place, key.value, earlier, extra=ONCE)
                seen[key.value] = line


yaml_scalars.read_exponents(_Loader)
_Loader.add_constructor("tag:yaml.org,2002:map", _Loader.mapping)
_Loader.add_constructor("tag:yaml.org,2002:seq", _Loader.sequence)
_Loader.add_constructor("tag:yaml.org,2002:timestamp", _Loader.timestamp)


def read_text(file: FilePath, *, what: str) -> str:
    """Return the text of a file.

    Args:
        what: the kind of the file, for messages, such as `the configuration file`.

    Raises:
        ConfigurationError: the file cannot be read, or is not UTF-8.
    """
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigurationError(f"{what} {file} does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{what} {file} cannot be read: {error}") from None


def load(file: FilePath, *, what: str = "the configuration file") -> Document:
    """Read a YAML file that contains a mapping.

    Raises:
        ConfigurationError: the file cannot be read, or is not a mapping in YAML.
    """
    return parse(read_text(file, what=what), source=_short_name(file))


def _short_name(file: FilePath) -> str:
    """Return the name of a file for messages: relative to the working directory if the file is inside it."""
    directory = FilePath.cwd()
    return str(file.relative_to(directory) if file.is_absolute() and file.is_relative_to(directory) else file)


def parse(text: str, *, source: str) -> Document:
    """Parse a YAML text that contains a mapping. `source` is the name of the file for messages.

    Raises:
        ConfigurationError: the text is not YAML, or not a mapping.
    """
    root, marks, ambiguous = _parse(text, source)
    if not isinstance(root, dict):
        raise ConfigurationError(f"{source}: the document must be a mapping, not {_kind(root)}")
    _refuse_cycle(root, source, ())
    return Document(root, source, marks, ambiguous=ambiguous)


def parse_list(text: str, *, source: str, field: str, most_values: int) -> Document:
    """Parse a YAML text that contains a list, or a mapping whose values are the items of the list.

    Args:
        field: the field of the document that becomes the list.
        most_values: how many values the list may contain. A value counts at each place to which an alias puts it.

    Raises:
        ConfigurationError: the text is not YAML, is neither a list nor a mapping, or has too many values.
    """
    _refuse_depth(text, source)
    root, marks, ambiguous = _parse(text, source)
    if not isinstance(root, list | dict):
        raise ConfigurationError(f"{source}: the document must be a list, not {_kind(root)}")
    if sum(1 for _ in itertools.islice(_values(root), most_values + 1)) > most_values:
        raise ConfigurationError(f"{source}: the document has more than {most_values:,} values")
    if isinstance(root, dict):
        _refuse_repeated_keys(text, source)
        items = list(root.values())
        lines = marks[id(root)].lines
        marks[id(items)] = _Marks(items, {index: lines[key] for index, key in enumerate(root) if key in lines})
        root = items
    return Document({field: root}, source, marks, ambiguous=ambiguous)


def _parse(text: str, source: str) -> tuple[Any, dict[int, _Marks], tuple[AmbiguousScalar, ...]]:
    try:
        loader = _Loader(text, source)
        node = loader.get_single_node()
        ambiguous = tuple(yaml_scalars.ambiguous(node, loader))
        root = loader.construct_document(node) if node is not None else None
    except yaml.YAMLError as error:
        raise ConfigurationError(_yaml_fault(error, source)) from None
    except ValueError as error:  # Python limits the digits of an integer
        raise ConfigurationError(f"{source}: broken YAML: {error}") from None
    return root, loader.marks, ambiguous


def _refuse_repeated_keys(text: str, source: str) -> None:
    """Raise if a key of the outermost mapping is repeated, because all its values but the last one would be lost."""
    lines: dict[str, int] = {}
    root = yaml.compose(text, Loader=_Loader.__base__)
    for key, _ in root.value if isinstance(root, yaml.MappingNode) else ():
        line = key.start_mark.line + 1
        if isinstance(key, yaml.ScalarNode):
            if key.value in lines:
                raise ConfigurationError(f"{source}:{line}: `{key.value}` is already in line {lines[key.value]}")
            lines[key.value] = line


def _refuse_depth(text: str, source: str) -> None:
    """Raise if the text is nested so deep that libyaml would overflow the stack of the process."""
    depth = 0
    try:
        for event in yaml.parse(text, Loader=_Loader.__base__):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEEPEST:
                raise _too_deep(event.start_mark, source)
    except yaml.MarkedYAMLError as error:
        if error.problem == _LIBYAML_DEPTH:
            raise _too_deep(error.problem_mark, source) from None
        raise ConfigurationError(_yaml_fault(error, source)) from None
    except yaml.YAMLError as error:
        raise ConfigurationError(_yaml_fault(error, source)) from None


def _too_deep(mark: Any, source: str) -> ConfigurationError:
    where = f"{source}:{mark.line + 1}" if mark is not None else source
    return ConfigurationError(f"{where}: values are nested more than {_DEEPEST} deep")


def is_flag(source: str) -> bool:
    """Tell whether a text comes from a flag of a command line, and not from a file."""
    return source.startswith("--")


def position(source: str, line: int, column: int) -> str:
    """Return the place of a value for messages: `FILE:LINE`, or the column in the value of a flag, from 1."""
    return f"{source}, column {column}" if is_flag(source) else f"{source}:{line}"


def _kind(root: object) -> str:
    return "empty" if root is None else f"a {type(root).__name__}"


def _values(root: object) -> Iterator[object]:
    """Yield all values inside a value. The values of a container that contains itself never end."""
    stack: list[Iterator[object]] = [iter([root])]
    while stack:
        for value in stack[-1]:
            yield value
            if isinstance(value, dict | list):
                stack.append(iter(value.values() if isinstance(value, dict) else value))
                break
        else:
            stack.pop()


def _refuse_cycle(value: object, source: str, around: tuple[int, ...]) -> None:
    """Raise if a container contains itself through an alias, because code that walks the document would never end."""
    if isinstance(value, dict | list):
        if id(value) in around:
            raise ConfigurationError(f"{source}: broken YAML: an anchor (&) contains an alias (*) of itself")
        for item in value.values() if isinstance(value, dict) else value:
            _refuse_cycle(item, source, (*around, id(value)))


def _yaml_fault(error: yaml.YAMLError, source: str) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        context = f" ({error.context})" if error.context else ""
        place = f"{source}:{mark.line + 1}:{mark.column + 1}"
        if is_flag(source):
            place = position(source, mark.line + 1, mark.index + 1)
        return f"{place}: broken YAML: {error.problem}{context}"
    return f"{source}: broken YAML: {error}"
