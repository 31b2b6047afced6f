"""Finds the cell with which a check compares a cell, given the settings in which the two cells differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolbox.matrix.axes import Combination
from toolbox.matrix.axis_values import canonical


class Relations:
    """An index of the combinations of a matrix by their settings.

    Args:
        combinations: all combinations of the matrix, including those that are skipped or not selected.
    """

    def __init__(self, combinations: Sequence[Combination]) -> None:
        self._combinations = combinations
        self._by_settings: dict[tuple[str, ...], Combination] | None = None
        self._labels: dict[tuple[str, str], str] = {}  # the canonical value of each label, by axis and label

    def other(self, settings: Mapping[str, Any], to: Mapping[str, Any]) -> Combination | None:
        """Return the combination that differs from these settings only by the values in `to`; None if there is none.

        Args:
            to: a value or a label for each axis that differs.
        """
        if self._by_settings is None:  # built on first use, because most matrices have no relations
            self._by_settings = {self._key(each.settings): each for each in self._combinations}
            self._labels = {
                (axis, label): canonical(each.settings[axis])
                for each in self._combinations
                for axis, label in each.labels.items()
            }
        keys = {axis: canonical(value) for axis, value in settings.items()}
        for axis, value in to.items():
            keys[axis] = (
                self._labels.get((axis, value), canonical(value)) if isinstance(value, str) else canonical(value)
            )
        return self._by_settings.get(tuple(keys.values()))

    @staticmethod
    def _key(settings: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(canonical(value) for value in settings.values())
