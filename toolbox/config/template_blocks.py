"""Selects the block of one command from a parsed command_args template.

`toolbox.config.command_args` renders only the selected block, so that a broken block breaks only its own command.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Final

from jinja2 import nodes

# A block begins at the start of a line. Its key is literal text, or the output of an expression.
_BLOCK = re.compile(r"[^\s#\-})\].]")
_KEY = re.compile(r"(?P<key>[^\s#:{\[\"'-][^\n#]*?|\"[^\"\n]+\"|'[^'\n]+'):(?=\s|$)")


class Selection:
    """Selects the block of one key from a template.

    Args:
        tree: the syntax tree of the template.
        key: the key of the block; None to select the blocks whose keys are the output of an expression.

    Attributes:
        tree: the syntax tree of the selected part of the template.
        keys: all literal keys of the template.
    """

    def __init__(self, tree: nodes.Template, key: str | None) -> None:
        self.keys: list[str] = []
        self._key = key
        self._is_selected = True  # text before the first key belongs to every block
        self._at_line_start = True
        self.tree = nodes.Template(list(self._select(tree.body)), lineno=1)
        if tree.environment is not None:
            self.tree.set_environment(tree.environment)

    def _select(self, body: list[nodes.Node]) -> Iterator[nodes.Node]:
        for node in body:
            if isinstance(node, nodes.Output):
                if children := list(self._select_output(node)):
                    yield nodes.Output(children, lineno=node.lineno)
            elif isinstance(node, nodes.If | nodes.For | nodes.With):
                if _has_effect(selected := self._descend(node)):
                    yield selected
            elif self._is_selected or isinstance(node, _DEFINITIONS):
                yield node

    def _descend(self, node: nodes.Node) -> nodes.Node:
        fields = dict(node.iter_fields())
        for name in ("body", "elif_", "else_"):
            if isinstance(fields.get(name), list):
                # An empty `elif` is kept, because without it the `else` branch could run.
                select = self._select if name != "elif_" else partial(map, self._descend)
                fields[name] = list(select(fields[name]))
        return type(node)(*(fields[name] for name in node.fields), lineno=node.lineno)

    def _select_output(self, output: nodes.Output) -> Iterator[nodes.Expr]:
        for index, child in enumerate(output.nodes):
            if not isinstance(child, nodes.TemplateData):
                if self._at_line_start and _ends_a_key(output.nodes[index + 1 :]):
                    self._is_selected = self._key is None
                self._at_line_start = False
                if self._is_selected:
                    yield child
                continue
            for line in child.data.splitlines(keepends=True):
                if self._at_line_start and _BLOCK.match(line):
                    self._begin_block(line)
                self._at_line_start = line.endswith("\n")
                # Line breaks are kept, so that line numbers of the rendered text are those of the template.
                if self._is_selected or self._at_line_start:
                    yield nodes.TemplateData(line if self._is_selected else "\n", lineno=child.lineno)

    def _begin_block(self, line: str) -> None:
        match = _KEY.match(line)
        key = match["key"].strip("\"'") if match else None
        if key is not None:
            self.keys.append(key)
        self._is_selected = key == self._key


_DEFINITIONS: Final = (nodes.Assign, nodes.AssignBlock, nodes.Macro, nodes.Import, nodes.FromImport)


def _ends_a_key(rest: list[nodes.Expr]) -> bool:
    """Tell whether an expression is part of a key, because the rest of its line contains a colon."""
    text = "".join(node.data if isinstance(node, nodes.TemplateData) else "?" for node in rest)
    return re.search(r":(?=\s|$)", text.partition("\n")[0]) is not None


def _has_effect(node: nodes.Node) -> bool:
    """Tell whether a statement outputs text, or is an `if` that defines names for later blocks."""
    if isinstance(node, nodes.If) and any(node.find(kind) for kind in _DEFINITIONS):
        return True
    written = (child for output in node.find_all(nodes.Output) for child in output.nodes)
    return any(not isinstance(child, nodes.TemplateData) or child.data.strip() for child in written)
