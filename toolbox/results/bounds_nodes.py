"""What a file of bounds says, with the place of each of its parts: `bounds_file` reads and changes it by these."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NoReturn

import yaml

from toolbox.model.bounds import Bound, Method
from toolbox.model.errors import ConfigurationError
from toolbox.model.nearest import did_you_mean
from toolbox.model.text import shown

CELLS: Final = "cells"
CELL: Final = "cell"
METRICS: Final = "metrics"
LOCKED: Final = "locked"
_GUARDED: Final = ("lower", "upper", "mean", "unit", "samples", "method", "confidence", "since", "until", LOCKED)
_NEAR: Final = 0.8  # as difflib counts: `lowr` is 0.89 of `lower`, `low` 0.75
_NUMBER: Final = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
_COUNT: Final = re.compile(r"[1-9][0-9]{0,17}")
_NOTHING: Final = ("", "~", "null", "Null", "NULL")
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is optional


@dataclass(frozen=True, slots=True)
class MetricNode:
    """The bounds of a metric, and the nodes of what is written there, by key."""

    node: yaml.MappingNode
    values: Mapping[str, yaml.Node]
    bound: Bound
    is_locked: bool


@dataclass(frozen=True, slots=True)
class CellNode:
    """A cell, and its metrics by name."""

    key: yaml.ScalarNode
    node: yaml.MappingNode
    id: str
    metrics: Mapping[str, MetricNode]


@dataclass(frozen=True, slots=True)
class BoundsNodes:
    """A whole file: its cells by id.

    Args:
        root: None where the file says nothing.
        is_in_flow: whether the cells stand in braces.
    """

    root: yaml.MappingNode | None = None
    cells: Mapping[str, CellNode] = field(default_factory=dict)
    is_in_flow: bool = False

    @property
    def step(self) -> int:
        """How much further in its mappings are than the keys that they belong to."""
        first = next(iter(self.cells.values()), None)
        return max(2, first.key.start_mark.column) if first and not self.is_in_flow else 2

    def bounds(self) -> dict[tuple[str, str], Bound]:
        """Return the bounds by the id of the cell and the metric."""
        return {(cell.id, name): metric.bound for cell in self.cells.values() for name, metric in cell.metrics.items()}


def parse(text: str, file: Path) -> BoundsNodes:
    """Return what a file says.

    Raises:
        ConfigurationError: it is not what it should be, with the line and what was expected.
    """
    try:
        root = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigurationError(f"{file}{line}: broken YAML: {getattr(error, 'problem', None) or error}") from None
    return BoundsNodes() if root is None else _Reader(file).read(root)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads nodes; `at` is the name of one, as a message shows it."""

    file: Path

    def read(self, root: yaml.Node) -> BoundsNodes:
        top = self._pairs(root, "the document")
        self._refuse_slips(top, (CELLS,), "the document")
        _, node = top.get(CELLS, (None, None))
        cells: dict[str, CellNode] = {}
        for name, (cell_key, cell_node) in self._pairs(node, f"`{CELLS}`").items():
            cell = self._cell(name, cell_key, cell_node)
            if cell.id in cells:
                first = cells[cell.id].key
                self._fail(
                    cell.node, f"the cell {cell.id} is in line {first.start_mark.line + 1} already, as {first.value}"
                )
            cells[cell.id] = cell
        is_in_flow = isinstance(node, yaml.MappingNode) and bool(node.flow_style)
        return BoundsNodes(root if isinstance(root, yaml.MappingNode) and root.value else None, cells, is_in_flow)

    def _cell(self, name: str, key: yaml.ScalarNode, node: yaml.Node) -> CellNode:
        at = f"`{CELLS}.{name}`"
        found = self._pairs(node, at)
        self._refuse_slips(found, (CELL, METRICS), at)
        if CELL not in found:
            self._fail(key, f"{at} has no `{CELL}`: the id of the cell was expected, which `project plan` shows")
        assert isinstance(node, yaml.MappingNode)
        identity = self._text(found[CELL][1], f"`{CELLS}.{name}.{CELL}`")
        if not identity:
            self._fail(found[CELL][1], f"`{CELLS}.{name}.{CELL}` is empty, the id of the cell was expected")
        _, metrics_node = found.get(METRICS, (None, None))
        at = f"{CELLS}.{name}.{METRICS}"
        metrics = {
            metric: self._metric(f"{at}.{metric}", *pair)
            for metric, pair in self._pairs(metrics_node, f"`{at}`").items()
        }
        return CellNode(key, node, identity, metrics)

    def _refuse_slips(
        self, found: Mapping[str, tuple[yaml.ScalarNode, yaml.Node]], known: Sequence[str], at: str
    ) -> None:
        """Refuse a key that is nearly one of ours which is missing: a slip would turn the gate off in silence."""
        missing = [name for name in known if name not in found]
        for name, (key, _) in found.items():
            if name not in known and (near := get_close_matches(name, missing, 1, _NEAR)):
                self._fail(key, f"{at} has a key `{name}`: did you mean {near[0]}? Your own keys need other names")

    def _metric(self, at: str, key: yaml.ScalarNode, node: yaml.Node) -> MetricNode:
        pairs = self._pairs(node, f"`{at}`")
        self._refuse_slips(pairs, _GUARDED, f"`{at}`")
        values = {name: value for name, (_, value) in pairs.items()}

        def read(name: str, kind: Callable[[yaml.Node, str], Any]) -> Any:
            value = values.get(name)
            return None if value is None or _is_nothing(value) else kind(value, f"`{at}.{name}`")

        bound = Bound(
            lower=read("lower", self._number),
            upper=read("upper", self._number),
            mean=read("mean", self._number),
            samples=read("samples", self._count),
            method=read("method", self._method) or Method.MANUAL,
            unit=read("unit", self._text),
            confidence=read("confidence", self._confidence),
            since=read("since", self._time),
            until=read("until", self._time),
            noise_samples=read("noise_samples", self._count),
            minimum_detectable_change=read("minimum_detectable_change", self._number),
            accepted_since=read("accepted_since", self._time),
            accepted_by=read("accepted_by", self._text),
            accepted_reason=read("accepted_reason", self._text),
            accepted_at=read("accepted_at", self._time),
        )
        if bound.lower is None and bound.upper is None:
            self._fail(key, f"`{at}` has no bounds: `lower` or `upper` was expected")
        if bound.lower is not None and bound.upper is not None and bound.lower > bound.upper:
            self._fail(values["lower"], f"`{at}`: the lower bound {bound.lower:g} is above the upper {bound.upper:g}")
        assert isinstance(node, yaml.MappingNode)
        return MetricNode(node, values, bound, bool(read(LOCKED, self._switch)))

    def _pairs(self, node: yaml.Node | None, at: str) -> dict[str, tuple[yaml.ScalarNode, yaml.Node]]:
        """Return the pairs of a mapping, none where there is nothing."""
        if node is None or _is_nothing(node):
            return {}
        if not isinstance(node, yaml.MappingNode):
            self._fail(node, f"{at} is {_kind(node)}, a mapping was expected")
        pairs: dict[str, tuple[yaml.ScalarNode, yaml.Node]] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._fail(key, f"{at} has {_kind(key)} as a key, a name was expected")
            if key.value in pairs:
                line = pairs[key.value][0].start_mark.line + 1
                self._fail(key, f"`{key.value}` is given twice in {at}, first in line {line}: one was expected")
            pairs[key.value] = key, value
        return pairs

    def _text(self, node: yaml.Node, at: str) -> str:
        if not isinstance(node, yaml.ScalarNode):
            self._fail(node, f"{at} is {_kind(node)}, a text was expected")
        return str(node.value)

    def _number(self, node: yaml.Node, at: str) -> float:
        if not (_is_plain(node) and _NUMBER.fullmatch(node.value) and math.isfinite(float(node.value))):
            self._fail(node, f"{at} is {_kind(node)}, a finite number without quotes was expected")
        return float(node.value)

    def _count(self, node: yaml.Node, at: str) -> int:
        if not (_is_plain(node) and _COUNT.fullmatch(node.value)):
            self._fail(node, f"{at} is {_kind(node)}, a whole number above 0 without quotes was expected")
        return int(node.value)

    def _confidence(self, node: yaml.Node, at: str) -> float:
        confidence = self._number(node, at)
        if not 0 < confidence < 1:
            self._fail(node, f"{at} is {node.value}, a number between 0 and 1 was expected")
        return confidence

    def _method(self, node: yaml.Node, at: str) -> Method:
        name = self._text(node, at)
        if name not in list(Method):
            self._fail(node, f"{at} is no method: {did_you_mean(name, Method, what='methods')}")
        return Method(name)

    def _time(self, node: yaml.Node, at: str) -> datetime:
        try:
            time = datetime.fromisoformat(self._text(node, at))
        except ValueError:
            time = None
        if time is None or time.tzinfo is None:
            self._fail(node, f"{at} is {_kind(node)}, a time with its zone was expected: 2026-10-21T02:00:00+00:00")
        return time

    def _switch(self, node: yaml.Node, at: str) -> bool:
        if not _is_plain(node) or node.value.lower() not in ("true", "false"):
            self._fail(node, f"{at} is {_kind(node)}, true or false was expected")
        return bool(node.value.lower() == "true")

    def _fail(self, node: yaml.Node, message: str) -> NoReturn:
        raise ConfigurationError(f"{self.file}:{node.start_mark.line + 1}: {message}")


def _is_plain(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and not node.style


def _is_nothing(node: yaml.Node) -> bool:
    return _is_plain(node) and node.value in _NOTHING


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        return shown(node.value)
    return "a mapping" if isinstance(node, yaml.MappingNode) else "a list"
