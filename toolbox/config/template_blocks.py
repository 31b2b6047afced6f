"""Selects the block of one command from the template of command arguments, before anything is rendered.

`toolbox.config.command_args` calls this module, so that a broken block breaks its own command alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Final

from jinja2 import nodes

# A block begins at the start of a line; its key is text, or made by an expression.
_BLOCK = re.compile(r"[^\s#\-})\].]")
_KEY = re.compile(r"(?P<key>[^\s#:{\[\"'-][^\n#]*?|\"[^\"\n]+\"|'[^'\n]+'):(?=\s|$)")


class Selection:
    """Selects the block of one key from a template, by the lines that begin a key.

    Args:
        tree: the template.
        wanted: the key to keep; None to keep the blocks whose keys an expression makes.
    """

    def __init__(self, tree: nodes.Template, wanted: str | None) -> None:
        self.keys: list[str] = []
        self._wanted = wanted
        self._is_wanted = True  # what stands before the first key belongs to every block
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
                if _does_something(selected := self._descend(node)):
                    yield selected
            elif self._is_wanted or isinstance(node, _DEFINITIONS):
                yield node

    def _descend(self, node: nodes.Node) -> nodes.Node:
        fields = dict(node.iter_fields())
        for name in ("body", "elif_", "else_"):
            if isinstance(fields.get(name), list):
                # An `elif` stays also when it is empty: it keeps the `else` from its turn.
                select = self._select if name != "elif_" else partial(map, self._descend)
                fields[name] = list(select(fields[name]))
        return type(node)(*(fields[name] for name in node.fields), lineno=node.lineno)

    def _select_output(self, output: nodes.Output) -> Iterator[nodes.Expr]:
        for index, child in enumerate(output.nodes):
            if not isinstance(child, nodes.TemplateData):
                if self._at_line_start and _ends_a_key(output.nodes[index + 1 :]):
                    self._is_wanted = self._wanted is None
                self._at_line_start = False
                if self._is_wanted:
                    yield child
                continue
            for line in child.data.splitlines(keepends=True):
                if self._at_line_start and _BLOCK.match(line):
                    self._begin_block(line)
                self._at_line_start = line.endswith("\n")
                # The line breaks stay, so that a line of what is rendered is a line of the template.
                if self._is_wanted or self._at_line_start:
                    yield nodes.TemplateData(line if self._is_wanted else "\n", lineno=child.lineno)

    def _begin_block(self, line: str) -> None:
        match = _KEY.match(line)
        key = match["key"].strip("\"'") if match else None
        if key is not None:
            self.keys.append(key)
        self._is_wanted = key == self._wanted


_DEFINITIONS: Final = (nodes.Assign, nodes.AssignBlock, nodes.Macro, nodes.Import, nodes.FromImport)


def _ends_a_key(rest: list[nodes.Expr]) -> bool:
    """Tell whether what follows an expression in its line makes it a key."""
    text = "".join(node.data if isinstance(node, nodes.TemplateData) else "?" for node in rest)
    return re.search(r":(?=\s|$)", text.partition("\n")[0]) is not None


def _does_something(node: nodes.Node) -> bool:
    """Tell whether a statement writes text, or is a condition that defines names for what comes after it."""
    if isinstance(node, nodes.If) and any(node.find(kind) for kind in _DEFINITIONS):
        return True
    written = (child for output in node.find_all(nodes.Output) for child in output.nodes)
    return any(not isinstance(child, nodes.TemplateData) or child.data.strip() for child in written)
