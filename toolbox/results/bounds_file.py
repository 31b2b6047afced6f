"""The file of a project's bounds: `config/bounds/PROJECT.yaml`, written by `results update_bounds` and by people.

docs/bounds.md shows one. What a person added to it stays, byte for byte: comments, order, quotes, own keys, and
each bound that is `locked: true`.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

from toolbox.config import document
from toolbox.model.bounds import Bound
from toolbox.model.errors import ConfigurationError
from toolbox.results import bounds_nodes
from toolbox.results.bounds_nodes import CELL, CELLS, METRICS, BoundsNodes, MetricNode
from toolbox.results.yaml_edits import Edits, Tree, scalar

_FIELDS: Final = (
    *("lower", "upper", "mean", "unit", "samples", "noise_samples", "method", "confidence"),
    *("minimum_detectable_change", "since", "until"),
    *("accepted_since", "accepted_by", "accepted_reason", "accepted_at"),
)
_NEW_FILE_MODE: Final = 0o644  # it is kept with the sources
_HEADER: Final = """\
# Bounds of the metrics of {project}, by cell.
# `results update_bounds` writes them; your own keys and comments are kept, and each bound that is `locked: true`.
"""


class Entry(NamedTuple):
    """The bounds of a metric of a cell, which is known by its id; its name may change."""

    cell: str
    name: str
    metric: str
    bound: Bound


@dataclass(frozen=True, slots=True)
class Difference:
    """A bound that was changed.

    Args:
        cell: its id.
        name: of the cell.
        before: None where there was none.
    """

    cell: str
    name: str
    metric: str
    before: Bound | None
    after: Bound


def read(path: Path) -> dict[tuple[str, str], Bound]:
    """Return the bounds by the id of the cell and the metric. There are none where there is no file.

    Raises:
        ConfigurationError: something in the file is wrong; it names the line and what was expected.
    """
    return bounds_nodes.parse(_text(path), path).bounds()


def locked(path: Path) -> set[tuple[str, str]]:
    """Return the bounds that no update changes, by the id of the cell and the metric.

    Raises:
        ConfigurationError: something in the file is wrong; it names the line and what was expected.
    """
    cells = bounds_nodes.parse(_text(path), path).cells.values()
    return {(cell.id, name) for cell in cells for name, metric in cell.metrics.items() if metric.is_locked}


def update(path: Path, project: str, entries: Sequence[Entry]) -> list[Difference]:
    """Write bounds, and return what changed, in the order of the names of cells and metrics.

    Bounds that no entry is for stay. The file ends whole or as it was, and is not touched where nothing changes.

    Raises:
        ConfigurationError: something in the file is wrong, or written in a way that cannot be changed safely.
        ValueError: two entries are for one metric of one cell.
        OSError: the file cannot be written.
    """
    text = _text(path)
    nodes = bounds_nodes.parse(text, path)
    keys = {cell.id: cell.key.value for cell in nodes.cells.values()}
    new_keys = keys | _keys(nodes, _names(entries))
    differences = _differences(nodes, entries)
    if differences or new_keys != keys:
        after = _edited(text or _HEADER.format(project=project), nodes, new_keys, differences)
        _verify(after, path, nodes, new_keys, differences)
        _write(path, after)
    return differences


def _text(path: Path) -> str:
    return document.read_text(path, what="the file of bounds").removeprefix("\ufeff") if path.exists() else ""


def _names(entries: Sequence[Entry]) -> dict[str, str]:
    """Return the names of cells: a metric that a cell no longer has still calls it by its old one."""
    ordered = sorted(entries, key=lambda entry: (entry.bound.until.timestamp() if entry.bound.until else 0, entry.name))
    return {entry.cell: entry.name for entry in ordered}


def _keys(nodes: BoundsNodes, names: Mapping[str, str]) -> dict[str, str]:
    """Return the key of each of these cells: its name, with its id where another cell has that name."""
    now = {cell.id: cell.key.value for cell in nodes.cells.values()}
    taken = {key for identity, key in now.items() if identity not in names}
    keys: dict[str, str] = {}
    for identity in sorted(names, key=lambda cell: (names[cell], now.get(cell) != names[cell], cell)):
        name = names[identity]
        keys[identity] = name if name not in taken else f"{name} ({identity})"
        taken.add(keys[identity])
    return keys


def _differences(nodes: BoundsNodes, entries: Sequence[Entry]) -> list[Difference]:
    if len({(entry.cell, entry.metric) for entry in entries}) < len(entries):
        raise ValueError("one bound a metric of a cell was expected, some have two")
    found = []
    for entry in sorted(entries, key=lambda entry: (entry.name, entry.metric, entry.cell)):
        cell = nodes.cells.get(entry.cell)
        metric = cell.metrics.get(entry.metric) if cell else None
        before = metric.bound if metric else None
        if before != entry.bound and not (metric and metric.is_locked):
            found.append(Difference(entry.cell, entry.name, entry.metric, before, entry.bound))
    return found


def _edited(text: str, nodes: BoundsNodes, keys: Mapping[str, str], differences: Sequence[Difference]) -> str:
    """Return the text with these keys of its cells, and with what differs."""
    edits = Edits(text if text.endswith("\n") else f"{text}\n", nodes.step)
    for cell in nodes.cells.values():
        if keys[cell.id] != cell.key.value:
            edits.replace(cell.key, scalar(keys[cell.id], in_flow=nodes.is_in_flow))
    new: dict[str, dict[str, Tree]] = {}
    for difference in differences:
        if difference.before is None:
            new.setdefault(difference.cell, {})[difference.metric] = _tree(difference.after)
        else:
            _change(edits, nodes.cells[difference.cell].metrics[difference.metric], difference.after)
    for identity in new.keys() & nodes.cells.keys():
        edits.put(nodes.cells[identity].node, METRICS, new.pop(identity))
    if new:
        cells: dict[str, Tree] = {
            keys[cell]: {CELL: scalar(cell), METRICS: dict(sorted(new[cell].items()))} for cell in new
        }
        edits.put(nodes.root, CELLS, cells)
    return edits.result()


def _change(edits: Edits, metric: MetricNode, bound: Bound) -> None:
    """Write what is new in a bound: a value that has none any more becomes null, so that its comments stay."""
    for name, node in metric.values.items():
        if name in _FIELDS and getattr(metric.bound, name) != getattr(bound, name):
            edits.replace(node, _written(getattr(bound, name)))
    missing = {name: value for name, value in _tree(bound).items() if name not in metric.values}
    edits.insert(metric.node, missing, lambda name: _FIELDS.index(name) if name in _FIELDS else -1)


def _tree(bound: Bound) -> dict[str, str]:
    values = {name: getattr(bound, name) for name in _FIELDS}
    return {name: _written(value) for name, value in values.items() if value is not None}


def _written(value: float | str | datetime | None) -> str:
    """Return a value as YAML; null for one that is not there."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return scalar(value)
    if isinstance(value, datetime):
        return value.isoformat()
    text = repr(value)
    return text if "." in text else text.replace("e", ".0e")  # YAML 1.1 has no number 1e-05


def _verify(
    text: str, path: Path, nodes: BoundsNodes, keys: Mapping[str, str], differences: Sequence[Difference]
) -> None:
    """Raise where a text does not say what it should: an anchor, or another form that `yaml_edits` does not know."""
    wanted = nodes.bounds() | {(one.cell, one.metric): one.after for one in differences}
    try:
        found = bounds_nodes.parse(text, path)
    except ConfigurationError:
        found = BoundsNodes()
    names = {cell.id: cell.key.value for cell in found.cells.values()}
    if found.bounds() != wanted or names != keys:
        raise ConfigurationError(
            f"{path} cannot be changed safely as it is written: write out its anchors (&), aliases (*), tags (!) "
            "and keys with question marks (?)"
        )


def _write(path: Path, text: str) -> None:
    """Write the file whole or not at all, also through a link to it, and leave its mode as it is."""
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else _NEW_FILE_MODE
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".bounds.")
    new = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(text.encode())
            os.fchmod(stream.fileno(), mode)
            os.fsync(stream.fileno())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
