"""A comparison of answers with a cell on an unknown axis is an error of the plan."""

import pytest

from tests.unit.matrix.conftest import Planned
from tests.unit.matrix.conftest import planned as planned  # noqa: PLC0414  # re-exports the fixture
from toolbox.ground.model.errors import ConfigurationError


def test_a_comparison_with_a_cell_on_an_unknown_axis_is_an_error(planned: Planned) -> None:
    with pytest.raises(ConfigurationError, match="check `same_answers`: no axis `z`"):
        planned({"axes": {"x": ["a"]}, "checks": [{"check": "same_answers", "to": {"z": 1}}]})
