"""Changes to a YAML text that leave every other byte of it alone: comments, order, quotes, keys of its readers.

A library that loads a document and writes it again moves a comment away from what it is about when a key is added
in front of it, and writes numbers and spaces its own way. Here the marks of the nodes that PyYAML composes say where
new text belongs. `bounds_file` uses this, and reads the result again: anchors and aliases are not seen here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, TypeAlias

import yaml
from yaml.resolver import Resolver

Tree: TypeAlias = "Mapping[str, str | Tree]"
"""What is added: keys are texts, values are written as YAML already (see `scalar`)."""

_resolve: Callable[..., Any] = Resolver().resolve
_COMMENT = re.compile("( *)#.*\n")
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+.=@/")


def scalar(text: str, *, in_flow: bool = True) -> str:
    """Return a text as YAML on one line, in quotes where a reader could take it for something else than text.

    Args:
        in_flow: whether it may stand in braces, where a comma has a meaning.
    """
    plain = _PLAIN if in_flow else _PLAIN | {","}
    if text[:1].isalnum() and set(text) <= plain and not _is_more_than_text(text):
        return text
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    return char if char.isprintable() else f"\\U{ord(char):08x}"


def _is_more_than_text(text: str) -> bool:
    """Tell whether a reader of YAML 1.1 or 1.2 finds a number here, a date, or a yes."""
    try:
        float(text)
    except ValueError:
        return bool(_resolve(yaml.ScalarNode, text, (True, False)) != "tag:yaml.org,2002:str")
    return True


@dataclass(frozen=True, slots=True)
class _Edit:
    """What is written instead of a piece of the text; of those at one place the deepest comes first."""

    begin: int
    end: int
    depth: float
    written: str


@dataclass(slots=True)
class Edits:
    """Changes to a text, collected first and then made together.

    Args:
        text: it ends with a line break, where it is not empty. The nodes that are named are composed from it.
        step: how much further in a mapping is than the key that it belongs to.
    """

    text: str
    step: int = 2
    _edits: list[_Edit] = field(default_factory=list)

    def replace(self, node: yaml.Node, written: str) -> None:
        """Write another scalar in the place of this one."""
        begin, end = node.start_mark.index, node.end_mark.index
        is_missing = begin == end and self.text[begin - 1] == ":"
        self._edits.append(_Edit(begin, end, math.inf, f" {written}" if is_missing else written))

    def put(self, parent: yaml.MappingNode | None, name: str, tree: Tree) -> None:
        """Add to the mapping that a parent has under this name, in the order of the alphabet; make it if need be.

        Args:
            parent: it has some keys; None stands for a text that has nothing but comments.
        """
        tree = dict(sorted(tree.items()))
        if parent is None:
            self._add_lines(len(self.text), 0, {name: tree})
            return
        for key, value in parent.value:
            if key.value == name and isinstance(value, yaml.MappingNode) and value.value:
                self.insert(value, tree, str)
                return
            if key.value == name:
                self._fill(parent, key, value, tree)
                return
        self._insert_behind(parent, len(parent.value) - 1, {name: tree})

    def insert(self, mapping: yaml.MappingNode, tree: Tree, order: Callable[[str], Any]) -> None:
        """Add keys to a mapping that has some, each behind the one there that is the last before it in this order."""
        there = [(order(key.value), index) for index, (key, _) in enumerate(mapping.value)]

        def behind(name: str) -> int:
            return max((one for one in there if one[0] < order(name)), default=(None, -1))[1]

        for index, names in groupby(sorted(tree, key=order), key=behind):
            self._insert_behind(mapping, index, {name: tree[name] for name in names})

    def result(self) -> str:
        """Return the changed text."""
        parts, at = [], 0
        for edit in sorted(self._edits, key=lambda edit: (edit.begin, edit.end, -edit.depth)):
            parts += [self.text[at : edit.begin], edit.written]
            at = edit.end
        return "".join([*parts, self.text[at:]])

    def _fill(self, parent: yaml.MappingNode, key: yaml.Node, nothing: yaml.Node, tree: Tree) -> None:
        """Give a key that has nothing, or an empty mapping, this one."""
        begin, end, column = nothing.start_mark.index, nothing.end_mark.index, key.start_mark.column
        bare = len(self.text[:begin].rstrip(" "))
        if parent.flow_style:
            self._edits.append(_Edit(bare, end, math.inf, f" {_flow(tree, key.end_mark.column + 3)}"))
        else:
            self._edits.append(_Edit(bare, end, math.inf, ""))
            self._add_lines(self._line_after(end, column), column + self.step, tree)

    def _insert_behind(self, mapping: yaml.MappingNode, index: int, tree: Tree) -> None:
        first = mapping.value[0][0].start_mark
        if not mapping.flow_style:
            place = self._line_before(first.index) if index < 0 else self._end_of(mapping, index)
            self._add_lines(place, first.column, tree)
            return
        written, gap = _pairs(tree, first.column), _gap(first.column)
        place = first.index if index < 0 else mapping.value[index][1].end_mark.index
        self._edits.append(_Edit(place, place, first.column, f"{written}{gap}" if index < 0 else f"{gap}{written}"))

    def _add_lines(self, place: int, column: int, tree: Tree) -> None:
        self._edits.append(_Edit(place, place, column, self._block(tree, column)))

    def _end_of(self, mapping: yaml.MappingNode, index: int) -> int:
        """Return where the line behind a pair of a mapping begins."""
        key, value = mapping.value[index]
        return self._line_after(max(_end(key), _end(value)), key.start_mark.column)

    def _line_before(self, index: int) -> int:
        """Return where the line of this place begins, or the first of the comments above it."""
        begin = self.text.rfind("\n", 0, index) + 1
        while begin:
            above = self.text.rfind("\n", 0, begin - 1) + 1
            if self.text[above:begin].strip() and not self.text[above:begin].lstrip().startswith("#"):
                break
            begin = above
        return begin

    def _line_after(self, index: int, column: int) -> int:
        """Return where the line behind this place begins, and behind comments that are further in than a column."""
        begin = index if self.text[index - 1] == "\n" else self.text.index("\n", index) + 1
        while comment := _COMMENT.match(self.text, begin):
            if len(comment[1]) <= column:
                break
            begin = comment.end()
        return begin

    def _block(self, tree: Tree, column: int) -> str:
        lines = []
        for key, value in tree.items():
            below = f" {value}\n" if isinstance(value, str) else f"\n{self._block(value, column + self.step)}"
            lines.append(f"{' ' * column}{scalar(key, in_flow=False)}:{below}")
        return "".join(lines)


def _end(node: yaml.Node) -> int:
    """Return where a node ends; the end mark of a block is where the next one begins, behind all comments."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return max(map(_end, last)) if isinstance(last, tuple) else _end(last)
    return int(node.end_mark.index)


def _gap(column: int) -> str:
    """Return what is between two pairs in braces: a pair a line, below the first one."""
    return f",\n{' ' * column}"


def _pairs(tree: Tree, column: int) -> str:
    return _gap(column).join(_pair(key, value, column) for key, value in tree.items())


def _pair(key: str, value: str | Tree, column: int) -> str:
    name = scalar(key)
    return f"{name}: {value if isinstance(value, str) else _flow(value, column + len(name) + 3)}"


def _flow(tree: Tree, column: int) -> str:
    return f"{{{_pairs(tree, column)}}}"
