"""A check compares a cell with the cell whose settings differ only by the values that the check names."""

from typing import Any

import pytest

from tests.unit.matrix.conftest import matrix
from toolbox.matrix import axes
from toolbox.matrix.relations import Relations

MATRIX = matrix(
    {"model": {"small": {"size": 1}, "large": {"size": 70}}, "batch": [8, "8", 8.0, None]},
    exclude=[{"model": "large", "batch": [None]}],
)
COMBINATIONS = {(found.labels["model"], repr(found.settings["batch"])): found for found in axes.expand(MATRIX)}


def other(batch: Any, to: dict[str, Any]) -> tuple[str, str] | None:
    """Return the combination with which a combination of the small model is compared; None if there is none."""
    found = Relations(list(COMBINATIONS.values())).other({"model": {"size": 1}, "batch": batch}, to)
    return next((key for key, value in COMBINATIONS.items() if value is found), None)


@pytest.mark.parametrize(
    ("batch", "to", "expected"),
    [
        (8, {"model": "large"}, ("large", "8")),
        (8, {"model": {"size": 70}}, ("large", "8")),
        (8, {"batch": 8.0}, ("small", "8.0")),
        (None, {"batch": 8}, ("small", "8")),
        (8, {"batch": None}, ("small", "None")),
        (8.0, {"model": "large", "batch": 8}, ("large", "8")),
        (8, {}, ("small", "8")),
        (8, {"model": "medium"}, None),
        (None, {"model": "large"}, None),
        (8, {"batch": 16}, None),
    ],
)
def test_the_other_cell_differs_only_by_the_given_values_or_labels(
    batch: Any, to: dict[str, Any], expected: tuple[str, str] | None
) -> None:
    assert other(batch, to) == expected


def test_the_order_of_settings_does_not_matter() -> None:
    found = axes.expand(matrix({"a": [1, 2], "b": [1, 2]}))
    assert Relations(found).other({"a": 1, "b": 2}, {"a": 2}) == found[3]
    assert Relations(found).other({"a": 1, "b": 2}, {"b": 1}) == found[0]
