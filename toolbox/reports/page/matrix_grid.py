"""Arranges the cells of a run in a grid of two axes. The script of the page can choose other axes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from toolbox.ground.model.foreign_text import clean
from toolbox.matrix.axes import short_names
from toolbox.reports.page.step_details import StepCard

MAX_BOXES: Final = 10_000
_MAX_LABELLED: Final = 12  # if a box has more cells, the cells are shown only by their symbols


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of the matrix.

    Args:
        key: the name in the plan.
        name: the name on the page.
        places: the position of each label, in the order of the plan.
    """

    key: str
    name: str
    places: Mapping[str, int]

    @property
    def values(self) -> list[str]:
        """The labels, in the order of the plan."""
        return list(self.places)


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of boxes. Each box contains the cells with the same labels on the two axes of the table.

    Args:
        rows: the index of the axis whose labels are the rows.
        columns: the index of the axis whose labels are the columns; None if there is only one column.
        boxes: each cell of a box with a text that distinguishes it from the other cells of the box; the text is empty
            if the box has too many cells.
    """

    axes: Sequence[Axis]
    rows: int
    columns: int | None
    boxes: Sequence[Sequence[Sequence[tuple[StepCard, str]]]]


def make(cells: Sequence[StepCard]) -> Grid | None:
    """Return the grid of the first two axes with several labels; None if no cell has an axis."""
    axes = _axes(cells)
    if not axes:
        return None
    rows, columns = _first_choice(axes)
    across = len(axes[columns].values) if columns is not None else 1
    boxes: list[list[list[tuple[StepCard, str]]]] = [[[] for _ in range(across)] for _ in axes[rows].values]
    other_axes = [index for index, axis in enumerate(axes) if index not in {rows, columns} and len(axis.values) > 1]
    for cell in cells:
        places = _places(cell, axes)
        down, column = places[rows], places[columns] if columns is not None else 0
        if min(down, column) >= 0:
            text = ", ".join(axes[index].values[places[index]] for index in other_axes if places[index] >= 0)
            boxes[down][column].append((cell, text or cell.mark.word))
    for box in itertools.chain.from_iterable(boxes):
        if len(box) > _MAX_LABELLED:
            box[:] = [(cell, "") for cell, _ in box]
    return Grid(axes, rows, columns, boxes)


def data(cells: Sequence[StepCard], grid: Grid | None) -> dict[str, Any]:
    """Return the data with which the script arranges the cells by other axes and filters them."""
    axes = grid.axes if grid is not None else ()
    return {
        "axes": [{"name": axis.name, "values": axis.values} for axis in axes],
        "chosen": [grid.rows, grid.columns] if grid is not None else [None, None],
        "labelled": _MAX_LABELLED,
        "boxes": MAX_BOXES,
        "marks": {cell.mark.key: [cell.mark.symbol, cell.mark.word] for cell in cells},
        "cells": [
            [cell.anchor, clean(cell.step.name), cell.mark.key, _places(cell, axes), _link(cell)] for cell in cells
        ],
    }


def _axes(cells: Sequence[StepCard]) -> list[Axis]:
    labels: dict[str, dict[str, int]] = {}
    for cell in cells:
        for axis, label in cell.step.labels.items():
            places = labels.setdefault(str(axis), {})
            places.setdefault(clean(str(label)), len(places))
    return [Axis(name, clean(short), labels[name]) for name, short in short_names(labels).items()]


def _places(cell: StepCard, axes: Sequence[Axis]) -> list[int]:
    """Return the index of the cell's label on each axis; -1 for an axis without a label of the cell."""
    return [axis.places.get(clean(str(cell.step.labels.get(axis.key))), -1) for axis in axes]


def _link(cell: StepCard) -> list[Any] | None:
    """Return the name and the address of the link beside a cell, whether it shows a failure, and its title."""
    if (link := cell.link) is None:
        return None
    return [clean(link.name), clean(link.href), link.mark.is_bad, clean(link.title)]


def _first_choice(axes: Sequence[Axis]) -> tuple[int, int | None]:
    """Return the first two axes with several labels whose table is not too large; one axis and None if all are."""
    varying = [index for index, axis in enumerate(axes) if len(axis.values) > 1] or [0]
    for rows, columns in itertools.combinations(varying, 2):
        if len(axes[rows].values) * len(axes[columns].values) <= MAX_BOXES:
            return rows, columns
    return varying[0], None
