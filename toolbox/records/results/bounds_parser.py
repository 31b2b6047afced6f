"""Parses the YAML text of a file of bounds. Error messages name the file and line of the mistake."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

import yaml

from toolbox.ground.model.bounds import Bound, Method
from toolbox.ground.model.errors import ConfigurationError
from toolbox.ground.model.nearest import did_you_mean
from toolbox.ground.model.text import abbreviated
from toolbox.ground.model.yaml_scalars import FastLoader

CELLS: Final = "cells"
CELL: Final = "cell"
METRICS: Final = "metrics"
FIELDS: Final = (
    *("lower", "upper", "mean", "unit", "samples", "noise_samples", "method", "confidence"),
    *("minimum_detectable_change", "since", "until"),
    *("accepted_since", "accepted_by", "accepted_reason", "accepted_at"),
)
_GUARDED: Final = ("lower", "upper", "mean", "unit", "samples", "method", "confidence", "since", "until")
_NEAR: Final = 0.8  # least similarity (difflib) of a misspelling: 0.89 for `lowr` and `lower`, 0.75 for `low`
_NUMBER: Final = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
_COUNT: Final = re.compile(r"[1-9][0-9]{0,17}")
_NOTHING: Final = ("", "~", "null", "Null", "NULL")
_Pairs = dict[str, tuple[yaml.ScalarNode, yaml.Node]]


class Entry(NamedTuple):
    """The bounds of a metric of a cell.

    Args:
        name: the name of the cell, which may change; for an entry from a file, the key of the cell in the file.
        line: the line of the entry in the file; 0 for an entry that was not read from a file.
    """

    cell: str
    name: str
    metric: str
    bound: Bound
    line: int = 0

    @property
    def is_manual(self) -> bool:
        """Whether a person wrote these bounds."""
        return self.bound.samples is None or self.bound.method is Method.MANUAL


def parse(text: str, file: Path) -> list[Entry]:
    """Return the bounds in the text of a file, one entry per metric of a cell.

    Raises:
        ConfigurationError: the text is wrong; the message names the line and the expected value.
    """
    try:
        root = yaml.compose(text, Loader=FastLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigurationError(f"{file}{line}: broken YAML: {getattr(error, 'problem', None) or error}") from None
    return [] if root is None else _Reader(file).read(root)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Converts YAML nodes to entries. The argument `at` of its methods is the path of the node in messages."""

    file: Path

    def read(self, root: yaml.Node) -> list[Entry]:
        top = self._pairs(root, "the document")
        self._refuse_slips(top, (CELLS,), "the document")
        _, node = top.get(CELLS, (None, None))
        entries: list[Entry] = []
        first: dict[str, yaml.ScalarNode] = {}
        for name, (key, cell) in self._pairs(node, f"`{CELLS}`").items():
            identity, metrics = self._cell(f"{CELLS}.{name}", key, cell)
            if identity in first:
                line = first[identity].start_mark.line + 1
                self._fail(cell, f"the cell {identity} is also in line {line}, as {first[identity].value}")
            first[identity] = key
            for metric, (metric_key, metric_node) in metrics.items():
                bound = self._metric(f"{CELLS}.{name}.{METRICS}.{metric}", metric_key, metric_node)
                entries.append(Entry(identity, name, metric, bound, metric_key.start_mark.line + 1))
        return entries

    def _cell(self, at: str, key: yaml.ScalarNode, node: yaml.Node) -> tuple[str, _Pairs]:
        """Return the id of a cell, and the nodes of its metrics."""
        pairs = self._pairs(node, f"`{at}`")
        self._refuse_slips(pairs, (CELL, METRICS), f"`{at}`")
        if CELL not in pairs:
            self._fail(key, f"`{at}` has no `{CELL}`: write the id of the cell (`project plan` shows the ids)")
        identity = self._text(pairs[CELL][1], f"`{at}.{CELL}`")
        if not identity:
            self._fail(
                pairs[CELL][1], f"`{at}.{CELL}` is empty: write the id of the cell (`project plan` shows the ids)"
            )
        _, metrics = pairs.get(METRICS, (None, None))
        return identity, self._pairs(metrics, f"`{at}.{METRICS}`")

    def _refuse_slips(self, pairs: _Pairs, expected: Sequence[str], at: str) -> None:
        """Refuse a key that looks like a misspelt key: its bounds would be ignored without a message."""
        missing = [name for name in expected if name not in pairs]
        for name, (key, _) in pairs.items():
            if name not in expected and (near := get_close_matches(name, missing, 1, _NEAR)):
                self._fail(
                    key,
                    f"{at} has an unknown key `{name}`: did you mean `{near[0]}`? If the key is your own, rename it",
                )

    def _metric(self, at: str, key: yaml.ScalarNode, node: yaml.Node) -> Bound:
        pairs = self._pairs(node, f"`{at}`")
        self._refuse_slips(pairs, _GUARDED, f"`{at}`")
        values = {name: value for name, (_, value) in pairs.items()}

        def read(name: str, kind: Callable[[yaml.Node, str], Any]) -> Any:
            value = values.get(name)
            return None if value is None or _is_nothing(value) else kind(value, f"`{at}.{name}`")

        bound = Bound(
            **{name: read(name, self._number) for name in ("lower", "upper", "mean", "minimum_detectable_change")},
            **{name: read(name, self._count) for name in ("samples", "noise_samples")},
            **{name: read(name, self._text) for name in ("unit", "accepted_by", "accepted_reason")},
            **{name: read(name, self._time) for name in ("since", "until", "accepted_since", "accepted_at")},
            method=read("method", self._method) or Method.MANUAL,
            confidence=read("confidence", self._confidence),
        )
        if bound.lower is None and bound.upper is None:
            self._fail(key, f"`{at}` has no bounds: set `lower`, `upper` or both")
        if bound.lower is not None and bound.upper is not None and bound.lower > bound.upper:
            message = f"the lower bound {bound.lower:g} is above the upper bound {bound.upper:g}"
            self._fail(values["lower"], f"`{at}`: {message}")
        return bound

    def _pairs(self, node: yaml.Node | None, at: str) -> _Pairs:
        """Return the pairs of a mapping; an empty value has no pairs."""
        if node is None or _is_nothing(node):
            return {}
        if not isinstance(node, yaml.MappingNode):
            self._fail(node, f"{at} must be a mapping, not {_kind(node)}")
        pairs: _Pairs = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._fail(key, f"each key of {at} must be a name, not {_kind(key)}")
            if key.value in pairs:
                line = pairs[key.value][0].start_mark.line + 1
                self._fail(key, f"`{key.value}` is given twice in {at}, first in line {line}: delete one of the two")
            pairs[key.value] = key, value
        return pairs

    def _text(self, node: yaml.Node, at: str) -> str:
        if not isinstance(node, yaml.ScalarNode):
            self._fail(node, f"{at} must be a string, not {_kind(node)}")
        return str(node.value)

    def _number(self, node: yaml.Node, at: str) -> float:
        if not (_is_plain(node) and _NUMBER.fullmatch(node.value) and math.isfinite(float(node.value))):
            self._fail(node, f"{at} must be a finite number without quotes, not {_kind(node)}")
        return float(node.value)

    def _count(self, node: yaml.Node, at: str) -> int:
        if not (_is_plain(node) and _COUNT.fullmatch(node.value)):
            self._fail(node, f"{at} must be a whole number above 0 without quotes, not {_kind(node)}")
        return int(node.value)

    def _confidence(self, node: yaml.Node, at: str) -> float:
        confidence = self._number(node, at)
        if not 0 < confidence < 1:
            self._fail(node, f"{at} must be above 0 and below 1, not {node.value}")
        return confidence

    def _method(self, node: yaml.Node, at: str) -> Method:
        name = self._text(node, at)
        if name not in list(Method):
            self._fail(node, f"{at} is not a method: {did_you_mean(name, Method, label='methods')}")
        return Method(name)

    def _time(self, node: yaml.Node, at: str) -> datetime:
        try:
            time = datetime.fromisoformat(self._text(node, at))
        except ValueError:
            time = None
        if time is None or time.tzinfo is None:
            self._fail(node, f"{at} must be a time with its zone, as in 2026-10-21T02:00:00+00:00, not {_kind(node)}")
        return time

    def _fail(self, node: yaml.Node, message: str) -> NoReturn:
        raise ConfigurationError(f"{self.file}:{node.start_mark.line + 1}: {message}")


def _is_plain(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and not node.style


def _is_nothing(node: yaml.Node) -> bool:
    return _is_plain(node) and node.value in _NOTHING


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        return abbreviated(node.value)
    return "a mapping" if isinstance(node, yaml.MappingNode) else "a list"
