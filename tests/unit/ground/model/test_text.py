"""Values, durations and long texts are rendered for messages."""

import datetime as dt
import math
from typing import Any

import pytest
import yaml

from toolbox.ground.model.text import abbreviated, as_text, duration, truncate, without_middle


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
def test_a_value_is_rendered_as_in_yaml(value: Any, text: str) -> None:
    assert as_text(value) == text


@pytest.mark.parametrize("value", [True, None, 8, 0.5, math.inf, dt.date(2027, 1, 31), [1, "a", None], {"a": [True]}])
def test_yaml_reads_the_text_of_a_value_back(value: Any) -> None:
    assert yaml.safe_load(as_text(value)) == value


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, ""), (0.04, "0.0 s"), (59.9, "59.9 s"), (125, "2 min 5 s"), (3700, "1 h 1 min")]
)
def test_durations_have_readable_units(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59, "59 s"), (59.6, "1 min 0 s"), (90, "1 min 30 s"), (5400, "1 h 30 min"), (-0.6, "0 s")],
)
def test_an_estimate_has_no_fractions(seconds: float, text: str) -> None:
    assert duration(seconds, digits=0) == text


def test_a_truncated_text_has_the_maximum_length() -> None:
    assert truncate("x" * 160) == "x" * 160
    assert truncate("x" * 161) == "x" * 157 + "..."
    assert truncate("abcdef", 5) == "ab..."
    assert abbreviated("abcdef", longest=6) == "'ab..."


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (dt.date(2026, 11, 21), "2026-11-21"),
        (dt.datetime(2026, 11, 21, 8, tzinfo=dt.UTC), "2026-11-21T08:00:00+00:00"),
        ("null", "'null'"),
    ],
)
def test_a_value_in_a_message_is_written_as_in_yaml(value: object, text: str) -> None:
    assert abbreviated(value) == text


def test_the_middle_of_many_lines_is_left_out() -> None:
    assert without_middle("abcd", 4) == "abcd"
    assert without_middle(list("abcdef"), 4) == ["a", "b", "... 2 lines ...", "e", "f"]
