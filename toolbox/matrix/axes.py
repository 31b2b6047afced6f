"""Expands the axes of the block `matrix` into the combinations to test, without any input or output.

`planner` makes a cell from each combination, and applies `skip`, `xfail`, `settings` and `checks` to the cell.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from toolbox.ground.model.text import abbreviated, as_text
from toolbox.matrix.axis_values import canonical, canonical_object, path_of
from toolbox.matrix.matrix_block import MatrixBlock

MOST: Final = 100_000  # combinations of one matrix: more are probably a mistake, and would fill the memory
_LONGEST_LABEL: Final = 40
_WITHOUT_AXES: Final = "default"


class IncludeError(ValueError):
    """An entry of `include` is wrong; `path` is the path of the entry in the configuration."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"`{path}`: {message}")
        self.path = path


@dataclass(frozen=True, slots=True)
class Combination:
    """One value for each axis.

    Args:
        settings: the values by axis, in the order of the axes.
        labels: the text that the name shows for each value, by axis.
        id: 12 hex digits, computed from the settings. The order of the axes does not matter; 1, 1.0 and "1" differ.
        name: `model=small,batch=8`, without white space, control characters and `/`. Names in a plan are unique: if
            two names would be equal (1 and "1" look alike), `,id=` and the beginning of the id are appended to both.
            A matrix without axes has one combination, with the name `default`.
    """

    settings: Mapping[str, Any]
    labels: Mapping[str, str]
    id: str
    name: str


def expand(block: MatrixBlock) -> list[Combination]:
    """Return the product of the axes without the matches of `exclude`, plus the combinations of `include`.

    The last axis varies fastest; the axes of a `zip` group vary together, at the position of the first axis of the
    group. An entry of `include` names some axes, each with a value, a label, or a list of these; the value need not be
    on the axis. All other axes take all their values. A combination that exists already is not added again.

    Raises:
        IncludeError: an entry of `include` names some axes of a `zip` group with values that do not occur together in
            the group.
        ValueError: the axes have more than `MOST` combinations.
    """
    space = _Space(block)
    return space.combinations(space.rows())


def matches(when: Mapping[str, Any], combination: Combination) -> bool:
    """Return whether a combination matches `when`, which has a value, a label, or a list of these for some axes.

    Values are compared with their types: 8 does not match 8.0. The text "8" matches the number 8, whose label is "8".
    """
    return all(
        axis in combination.settings
        and _Pattern.of(pattern).takes(canonical(combination.settings[axis]), combination.labels[axis])
        for axis, pattern in when.items()
    )


def unmatched(block: MatrixBlock) -> list[str]:
    """Return a note on each entry of `exclude`, `skip`, `xfail` and other lists that matches no combination.

    Such an entry is not an error, because a preset may have shortened an axis.

    Raises:
        ValueError: an entry of `include` is wrong, or the axes have too many combinations.
    """
    space = _Space(block)
    product, rows = list(space.product()), space.rows()
    whens = [(f"exclude[{index}]", when, product) for index, when in enumerate(block.exclude)]
    for name, entries in (
        ("skip", block.skip),
        ("xfail", block.xfail),
        ("quarantine", block.quarantine),
        ("settings", block.settings),
        ("owners", block.owners),
    ):
        whens += [(f"{name}[{index}]", entry.when, rows) for index, entry in enumerate(entries)]
    whens += [(f"checks[{index}]", check.get("when") or {}, rows) for index, check in enumerate(block.checks)]
    whens += [(f"metrics.{name}", metric.get("when") or {}, rows) for name, metric in block.metrics.items()]
    return [
        f"`matrix.{path}` matches no combination: {abbreviated(when)}"
        for path, when, candidates in whens
        if not any(map(space.selector(when), candidates))
    ]


@dataclass(frozen=True, slots=True)
class _Choice:
    """A value of an axis. Two choices are equal if the canonical JSON of their values is equal.

    Args:
        part: the part of the name of a combination that shows this value: `batch=8`.
    """

    key: str
    value: Any = field(compare=False)
    label: str = field(compare=False)
    part: str = field(compare=False)


_Row = tuple[_Choice, ...]


@dataclass(frozen=True, slots=True)
class _Pattern:
    """The condition of `exclude` or `when` on one axis."""

    keys: frozenset[str]
    labels: frozenset[str]

    @classmethod
    def of(cls, pattern: object) -> _Pattern:
        """Parse a value, a label, or a list of these. A list also matches itself, because values may be lists."""
        items = [pattern, *(pattern if isinstance(pattern, list) else ())]
        return cls(frozenset(map(canonical, items)), frozenset(item for item in items if isinstance(item, str)))

    def takes(self, key: str, label: str) -> bool:
        """Return whether the pattern matches a value."""
        return key in self.keys or label in self.labels


class _Space:
    """The axes of a block, and the groups in which they vary. A row has one choice per axis, in the order of `axes`."""

    def __init__(self, block: MatrixBlock) -> None:
        self._block = block
        self._names = short_names(block.axes)
        self._axes = {axis: list(self._choices(axis, values)) for axis, values in block.axes.items()}
        group_of = {axis: tuple(group) for group in block.zip for axis in group}
        self._groups: dict[tuple[str, ...], list[_Row]] = {
            group: list(zip(*(self._axes[axis] for axis in group), strict=True))
            for group in (group_of.get(axis, (axis,)) for axis in self._axes)
        }

    def rows(self) -> list[_Row]:
        """Return the rows to test, each once."""
        excluded = [self.selector(when) for when in self._block.exclude]
        kept = (row for row in self.product() if not any(selects(row) for selects in excluded))
        added = (self._included(entry, f"matrix.include[{index}]") for index, entry in enumerate(self._block.include))
        return list(dict.fromkeys(itertools.chain(kept, *added)))

    def product(self, choices: Sequence[Sequence[_Row]] | None = None) -> Iterator[_Row]:
        """Yield every combination of one row per group.

        Args:
            choices: the rows of each group to combine; None for all rows.
        """
        choices = list(self._groups.values()) if choices is None else choices
        if (count := math.prod(map(len, choices))) > MOST:
            raise ValueError(
                f"the axes of the matrix have {count:,} combinations, more than {MOST:,}: make them shorter"
            )
        grouped = [axis for group in self._groups for axis in group]
        order = [grouped.index(axis) for axis in self._axes]
        for parts in itertools.product(*choices):
            row = tuple(itertools.chain.from_iterable(parts))
            yield tuple(row[index] for index in order)

    def selector(self, when: Mapping[str, Any]) -> Callable[[_Row], bool]:
        """Return a function that returns whether a row matches `when`."""
        axes = list(self._axes)
        patterns = [(axes.index(axis), _Pattern.of(pattern)) for axis, pattern in when.items()]
        return lambda row: all(pattern.takes(row[index].key, row[index].label) for index, pattern in patterns)

    def combinations(self, rows: Iterable[_Row]) -> list[Combination]:
        """Convert rows to combinations with unique names."""
        settings = [dict(zip(self._axes, row, strict=True)) for row in rows]
        ids = [_digest(canonical_object({axis: choice.key for axis, choice in row.items()}), 12) for row in settings]
        names = _unique([",".join(choice.part for choice in row.values()) or _WITHOUT_AXES for row in settings], ids)
        return [
            Combination(
                settings={axis: choice.value for axis, choice in row.items()},
                labels={axis: choice.label for axis, choice in row.items()},
                id=identity,
                name=name,
            )
            for row, identity, name in zip(settings, ids, names, strict=True)
        ]

    def _choices(self, axis: str, values: list[Any] | dict[str, Any]) -> Iterator[_Choice]:
        for item in values:
            yield self._choice(axis, values[item], item) if isinstance(values, dict) else self._choice(axis, item)

    def _choice(self, axis: str, value: object, label: str | None = None) -> _Choice:
        key = canonical(value)
        label = _label(axis, value, key) if label is None else label
        return _Choice(key, value, label, _clean(f"{self._names[axis]}={label}"))

    def _included(self, entry: Mapping[str, Any], path: str) -> Iterator[_Row]:
        named = {axis: self._alternatives(axis, pattern) for axis, pattern in entry.items()}
        return self.product([self._rows_of(group, named, path) for group in self._groups])

    def _alternatives(self, axis: str, pattern: Any) -> list[_Choice]:
        on_axis = self._axes[axis]
        is_list = isinstance(pattern, list) and self._choice(axis, pattern) not in on_axis
        alternatives: list[_Choice] = []
        for item in pattern if is_list else [pattern]:
            new = self._choice(axis, item)
            alternatives += [choice for choice in on_axis if choice == new or choice.label == item] or [new]
        return alternatives

    def _rows_of(self, group: tuple[str, ...], named: Mapping[str, list[_Choice]], path: str) -> list[_Row]:
        """Return the rows of a group that have the named choices; new rows only if all axes of the group are named."""
        named_axes = [axis for axis in group if axis in named]
        if not named_axes:
            return self._groups[group]
        conditions = [(group.index(axis), set(named[axis])) for axis in named_axes]
        rows = [row for row in self._groups[group] if all(row[index] in choices for index, choices in conditions)]
        is_new = any(choice not in self._axes[axis] for axis in named_axes for choice in named[axis])
        if len(group) > 1 and rows and not is_new:
            return rows
        if len(named_axes) == len(group):
            return list(itertools.product(*(named[axis] for axis in group)))
        values = ", ".join(f"{axis}={choice.label}" for axis in named_axes for choice in named[axis])
        raise IncludeError(
            path,
            f"{', '.join(group)} are zipped, and have no combination with {values}: "
            f"use the values of an existing combination, or give a value for each of these axes",
        )


def short_names(axes: Iterable[str]) -> dict[str, str]:
    """Return a short name for each axis: the last key of its path, or the whole path if two axes have the same key."""
    names = {axis: _last_key(axis) for axis in axes}
    counts = Counter(names.values())
    return {axis: name if counts[name] == 1 else axis for axis, name in names.items()}


def _last_key(axis: str) -> str:
    return str((path_of(axis) or (axis,))[-1])


def _label(axis: str, value: object, key: str) -> str:
    """Return the label of a value that has no label in the configuration."""
    if isinstance(value, dict) and isinstance(name := value.get("name"), str) and name:
        return name
    if not isinstance(value, dict | list) and len(text := as_text(value)) <= _LONGEST_LABEL:
        return text
    return f"{_last_key(axis)}-{_digest(key, 6)}"


def _clean(text: str) -> str:
    return "".join("_" if char in " /" or not char.isprintable() else char for char in text)


def _unique(names: list[str], ids: list[str]) -> list[str]:
    unique = names
    for digits in (6, 12):  # 6 digits may not be enough, because a label may look like `,id=` and digits
        counts = Counter(unique)
        unique = [
            f"{plain},id={identity[:digits]}" if counts[name] > 1 else name
            for plain, name, identity in zip(names, unique, ids, strict=True)
        ]
    return unique


def _digest(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:digits]
