"""Finds the cell with which a check compares another cell, by the settings in which the two differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolbox.matrix.axes import Combination
from toolbox.matrix.specification import canonical


class Relations:
    """The cells of a matrix by their settings.

    Args:
        combinations: all combinations of the matrix, also those that do not run.
    """

    def __init__(self, combinations: Sequence[Combination]) -> None:
        self._combinations = combinations
        self._ids: dict[tuple[str, ...], Combination] | None = None
        self._labels: dict[tuple[str, str], str] = {}

    def other(self, settings: Mapping[str, Any], to: Mapping[str, Any]) -> Combination | None:
        """Return the combination that has the values or labels of `to` instead of its own; None if there is none."""
        if self._ids is None:  # most matrices have no relations
            self._ids = {self._key(found.settings): found for found in self._combinations}
            self._labels = {
                (axis, label): canonical(found.settings[axis])
                for found in self._combinations
                for axis, label in found.labels.items()
            }
        keys = {axis: canonical(value) for axis, value in settings.items()}
        for axis, value in to.items():
            keys[axis] = (
                self._labels.get((axis, value), canonical(value)) if isinstance(value, str) else canonical(value)
            )
        return self._ids.get(tuple(keys.values()))

    @staticmethod
    def _key(settings: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(canonical(value) for value in settings.values())
