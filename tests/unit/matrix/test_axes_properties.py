"""The combinations of random axes equal those of a second, plain implementation of the rules."""

import datetime as dt
import itertools
import json
import re
from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.matrix.conftest import matrix
from toolbox.matrix.axes import Combination, expand, matches, unmatched
from toolbox.matrix.axis_values import canonical
from toolbox.matrix.matrix_block import MatrixBlock

DAY = dt.date(2026, 1, 2)
MIDNIGHT = dt.datetime(2026, 1, 2)  # noqa: DTZ001  # as YAML reads it
NEW = "new"
AXES = ["a", "b", "c.d", "e.d"]
VALUES = [0, 1, 1.0, True, "1", "true", None, "null", DAY, MIDNIGHT, "2026-01-02", [1], {"k": 1}]
LABELS = {repr(value): label for value, label in [(1, "1"), (1.0, "1.0"), (True, "true"), (None, "null")]}
LABELS |= {repr(0): "0", repr(DAY): "2026-01-02"}

Row = dict[str, Any]


# The plain implementation. It compares values and their types by `repr`, which is independent of the tested code.


def values_of(block: MatrixBlock, axis: str) -> list[Any]:
    """Return the values of an axis in order."""
    written = block.axes[axis]
    return list(written.values()) if isinstance(written, dict) else written


def label_of(block: MatrixBlock, axis: str, value: Any) -> str | None:
    """Return the label of a value in a name; None if this implementation does not know it."""
    written = block.axes[axis]
    given = {repr(own): label for label, own in written.items()} if isinstance(written, dict) else {}
    return given.get(repr(value)) or LABELS.get(repr(value)) or (value if isinstance(value, str) else None)


def is_meant(block: MatrixBlock, axis: str, value: Any, pattern: Any) -> bool:
    """Return whether a pattern matches a value, the value's label, or contains one of them in a list."""
    items = [pattern, *pattern] if isinstance(pattern, list) else [pattern]
    label = label_of(block, axis, value)
    return any(repr(item) == repr(value) or (isinstance(item, str) and item == label) for item in items)


def has(block: MatrixBlock, row: Row, when: Row) -> bool:
    """Return whether a row matches a condition."""
    return all(is_meant(block, axis, row[axis], pattern) for axis, pattern in when.items())


def rows_of(block: MatrixBlock, group: Iterable[str]) -> list[Row]:
    """Return the rows of axes that advance together."""
    columns = [values_of(block, axis) for axis in group]
    return [dict(zip(group, row, strict=True)) for row in zip(*columns, strict=True)]


def is_row(block: MatrixBlock, row: Row, group: Iterable[str]) -> bool:
    """Return whether a row contains a row of a group."""
    return any(all(repr(row[axis]) == repr(own[axis]) for axis in group) for own in rows_of(block, group))


def product(columns: dict[str, list[Any]]) -> list[Row]:
    """Return the product of columns as rows."""
    return [dict(zip(columns, row, strict=True)) for row in itertools.product(*columns.values())]


def alternatives(block: MatrixBlock, axis: str, pattern: Any) -> list[Any]:
    """Return the values that an entry of `include` selects on an axis."""
    own = values_of(block, axis)
    is_value = repr(pattern) in map(repr, own)
    found = []
    for item in pattern if isinstance(pattern, list) and not is_value else [pattern]:
        labelled = [value for value in own if isinstance(item, str) and label_of(block, axis, value) == item]
        found += labelled + [value for value in own if repr(value) == repr(item)] or [item]
    return found


def included(block: MatrixBlock, entry: Row) -> list[Row] | None:
    """Return the rows that an entry of `include` adds; None if the entry is an error."""
    named = {axis: alternatives(block, axis, pattern) for axis, pattern in entry.items()}
    rows = product({axis: named.get(axis, values_of(block, axis)) for axis in block.axes})
    for group in block.zip:
        of_group = [row for row in rows if is_row(block, row, group)]
        known = all(repr(value) in map(repr, values_of(block, axis)) for axis in group for value in named.get(axis, []))
        if of_group and known:
            rows = of_group
        elif not all(axis in named for axis in group):
            return None
    return rows


def combinations(block: MatrixBlock) -> list[list[Row]] | None:
    """Return the rows of the product and those of each entry of `include`; None if an entry is an error."""
    rows = product({axis: values_of(block, axis) for axis in block.axes})
    rows = [row for row in rows if all(is_row(block, row, group) for group in block.zip)]
    parts = [[row for row in rows if not any(has(block, row, entry) for entry in block.exclude)]]
    for entry in block.include:
        added = included(block, entry)
        if added is None:
            return None
        there = {repr(row) for part in parts for row in part}
        parts.append(list({repr(row): row for row in added if repr(row) not in there}.values()))
    return parts


# Random matrices


def labelled(values: list[Any]) -> dict[str, Any]:
    """Return values with labels, one of which looks like another value."""
    return dict(zip(["tiny", "1", "large"], values, strict=False))


def patterns() -> st.SearchStrategy[Any]:
    """Return a strategy for the patterns of an axis."""
    plain = st.sampled_from([*VALUES, NEW, "tiny", "large"])
    return st.one_of(plain, st.lists(plain, min_size=1, max_size=2))


@st.composite
def matrices(draw: st.DrawFn) -> MatrixBlock:
    """Draw a matrix with small axes, some of which advance together."""
    axes: dict[str, Any] = {}
    length = draw(st.integers(1, 3))
    together = draw(st.sampled_from([[], ["a", "c.d"], ["e.d", "a"], ["b", "e.d", "c.d"]]))
    for axis in draw(st.permutations(AXES)):
        least, most = (length, length) if axis in together else (1, 3)
        values = draw(st.lists(st.sampled_from(VALUES), min_size=least, max_size=most, unique_by=repr))
        axes[axis] = draw(st.sampled_from([values, labelled(values)]))
    entries = st.lists(st.dictionaries(st.sampled_from(AXES), patterns(), min_size=1), max_size=2)
    return matrix(axes, zip=[together] if together else [], include=draw(entries), exclude=draw(entries))


def check(block: MatrixBlock) -> list[Combination]:
    """Compare the combinations with those of the plain implementation, and return them."""
    parts = combinations(block)
    if parts is None:
        with pytest.raises(ValueError, match="are zipped"):
            expand(block)
        return []
    found = expand(block)
    rest = [repr(combination.settings) for combination in found]
    assert rest[: len(parts[0])] == [repr(row) for row in parts[0]]
    for part in parts:
        assert sorted(rest[: len(part)]) == sorted(map(repr, part))
        rest = rest[len(part) :]
    assert not rest
    return found


RANDOM = settings(deadline=None, derandomize=True, max_examples=80)


@RANDOM
@given(matrices())
def test_the_combinations_are_those_of_the_plain_implementation(block: MatrixBlock) -> None:
    for combination in check(block):
        shown = {axis: label_of(block, axis, value) for axis, value in combination.settings.items()}
        assert all(combination.labels[axis] == label for axis, label in shown.items() if label is not None)


@RANDOM
@given(matrices(), st.dictionaries(st.sampled_from(AXES), patterns()))
def test_conditions_select_the_same_combinations_as_the_plain_implementation(block: MatrixBlock, when: Row) -> None:
    for combination in check(block):
        assert matches(when, combination) == has(block, dict(combination.settings), when)


@RANDOM
@given(matrices())
def test_a_condition_without_a_match_is_noted(block: MatrixBlock) -> None:
    parts = combinations(block.model_copy(update={"exclude": [], "include": []}))
    assert parts is not None
    idle = [index for index, entry in enumerate(block.exclude) if not any(has(block, row, entry) for row in parts[0])]
    without = block.model_copy(update={"include": []})
    assert [note.split(" ")[0] for note in unmatched(without)] == [f"`matrix.exclude[{index}]`" for index in idle]


@RANDOM
@given(matrices())
def test_names_and_ids_of_combinations_are_unique(block: MatrixBlock) -> None:
    found = check(block)
    assert len({combination.name for combination in found}) == len(found)
    assert len({combination.id for combination in found}) == len(found)
    assert all(re.fullmatch(r"[^\s/]+", combination.name) for combination in found)


@RANDOM
@given(matrices(), st.randoms())
def test_the_order_of_the_axes_does_not_change_an_id(block: MatrixBlock, random: Random) -> None:
    shuffled = block.model_copy(update={"axes": dict(random.sample(list(block.axes.items()), len(block.axes)))})
    assert {one.id for one in check(block)} == {one.id for one in check(shuffled)}


SCALARS = [None, True, False, 0, 1, -1, 0.0, -0.0, 1.0, 1.5, "", "1", "1.0", "!date", "2026-01-02", DAY, MIDNIGHT]
KEYS = ["!date", "!!date", "!1", "1", 1, 1.5, True, None, DAY, "k"]
PLAIN = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=2),
    max_leaves=4,
)


def identity(value: Any) -> str:
    """Return a text that is equal for equal values with equal types, independent of the order of keys."""
    if isinstance(value, dict):
        return f"{{{sorted((repr(key), identity(item)) for key, item in value.items())}}}"
    return f"[{[identity(item) for item in value]}]" if isinstance(value, list) else repr(value)


@settings(deadline=None, derandomize=True, max_examples=400)
@given(PLAIN, PLAIN)
@example({"!date": "2026-01-02"}, DAY)
@example({1: "x"}, {"1": "x"})
@example({"!1": "x"}, {1: "x"})
@example({"a": 1, "b": 2}, {"b": 2, "a": 1})
def test_the_canonical_json_is_equal_only_for_equal_values(one: Any, other: Any) -> None:
    assert (canonical(one) == canonical(other)) == (identity(one) == identity(other))
    json.loads(canonical(one))
