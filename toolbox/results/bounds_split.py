"""Extracts the parts of a generated file of bounds that a person wrote, as text for the manual file.

Earlier versions kept generated and manual bounds in one file, and a person may edit the generated file by mistake.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import Final, NamedTuple

import yaml

from toolbox.model.yaml_scalars import FastLoader
from toolbox.results.bounds_parser import CELL, CELLS, FIELDS, LOCKED, METRICS

_GENERATED: Final = ("# Bounds of the metrics of ", "# `results update_bounds` writes ")
_HEADER: Final = """\
# Manual bounds. They win over the bounds in {file}, and no command changes this file.
# `results update_bounds` created it once, from the manual bounds and comments in {file}.
"""
_NOTES: Final = "# Lines of {file} with comments, or with keys that are not generated:\n"
_Pair = tuple[yaml.ScalarNode, yaml.Node]


class Written(NamedTuple):
    """The parts of a generated file that a person wrote.

    Args:
        line: the number of the first line that a person wrote.
        text: the text of a manual file with all these parts.
    """

    line: int
    text: str


def written_by_people(text: str, by_hand: Collection[tuple[str, str]], file: str) -> Written | None:
    """Return the parts of a generated file that a person wrote; None if the whole file is generated.

    Args:
        text: the text of the file, which `bounds_parser` has accepted.
        by_hand: the bounds that a person wrote, each as the key of its cell and its metric.
    """
    root = yaml.compose(text, Loader=FastLoader)
    notes = _lines_with_comments(text)
    top = _pairs(root)
    by_people = [key for key, _ in top if key.value != CELLS]
    for cells in [_pairs(value) for key, value in top if key.value == CELLS]:
        for name, cell in cells:
            for metrics in [_pairs(value) for key, value in _pairs(cell) if key.value == METRICS]:
                generated = [bound for metric, bound in metrics if (name.value, metric.value) not in by_hand]
                notes.update(line for bound in generated for line in _lines_of_own_keys(bound))
                metrics[:] = [pair for pair in metrics if (name.value, pair[0].value) in by_hand]
                by_people += [metric for metric, _ in metrics]
            fields = _pairs(cell)
            fields[:] = [(key, value) for key, value in fields if key.value != METRICS or _pairs(value)]
            by_people += [key for key, _ in fields if key.value not in (CELL, METRICS)]
        cells[:] = [(name, cell) for name, cell in cells if any(key.value != CELL for key, _ in _pairs(cell))]
    top[:] = [(key, value) for key, value in top if key.value != CELLS or _pairs(value)]
    if not by_people and not notes:
        return None
    parts = [_HEADER.format(file=file)]
    if by_people:
        parts.append(yaml.serialize(root, Dumper=_Dumper, allow_unicode=True, width=sys.maxsize))
    if notes:
        lines = text.splitlines()
        parts += [_NOTES.format(file=file), *(f"# {line + 1}: {lines[line]}\n" for line in sorted(notes))]
    return Written(min([*notes, *(key.start_mark.line for key in by_people)]) + 1, "".join(parts))


class _Dumper(yaml.SafeDumper):
    """Writes an empty value as `null`, because PyYAML would write it as an empty string within braces."""

    def serialize_node(self, node: yaml.Node, parent: yaml.Node | None, index: object) -> None:
        if node.tag == "tag:yaml.org,2002:null" and not node.value:
            node.value = "null"
        super().serialize_node(node, parent, index)


def _lines_with_comments(text: str) -> set[int]:
    """Return the numbers of the lines, from 0, with comments that are not generated."""
    for token in yaml.scan(text, Loader=FastLoader):
        begin, end = token.start_mark.index, token.end_mark.index
        if isinstance(token, yaml.ScalarToken) and "#" in text[begin:end]:
            text = f"{text[:begin]}{text[begin:end].replace('#', '_')}{text[end:]}"
    return {number for number, line in enumerate(text.splitlines()) if "#" in line and not line.startswith(_GENERATED)}


def _lines_of_own_keys(bound: yaml.Node) -> list[int]:
    """Return the numbers of the lines, from 0, with keys that a person added to a generated bound."""
    return [
        line
        for key, value in _pairs(bound)
        if key.value not in (*FIELDS, LOCKED)
        for line in range(key.start_mark.line, value.end_mark.line + (value.end_mark.column > 0))
    ]


def _pairs(node: yaml.Node | None) -> list[_Pair]:
    """Return the list of pairs inside a mapping node, which callers may change; an empty list for other nodes."""
    return node.value if isinstance(node, yaml.MappingNode) else []
