"""Values of a configuration as text."""

import datetime as dt
import math
from typing import Any

import pytest
import yaml

from toolbox.model.text import as_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("True", "True"),
        (True, "true"),
        (False, "false"),
        (None, "null"),
        (8, "8"),
        (0.5, "0.5"),
        (math.inf, ".inf"),
        (-math.inf, "-.inf"),
        (math.nan, ".nan"),
        (dt.date(2027, 1, 31), "2027-01-31"),
        ([1, True, "a"], '[1, true, "a"]'),
        ({"on": None, dt.date(2027, 1, 31): [dt.date(2027, 2, 1)]}, '{"on": null, "2027-01-31": ["2027-02-01"]}'),
    ],
)
def test_a_value_becomes_the_text_that_yaml_has_for_it(value: Any, text: str) -> None:
    assert as_text(value) == text


@pytest.mark.parametrize("value", [True, None, 8, 0.5, math.inf, dt.date(2027, 1, 31), [1, "a", None], {"a": [True]}])
def test_yaml_reads_the_text_of_a_value_back(value: Any) -> None:
    assert yaml.safe_load(as_text(value)) == value
