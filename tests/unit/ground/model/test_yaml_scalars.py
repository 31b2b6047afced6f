"""Unquoted scalars of YAML: exponents are numbers, and scalars that may be meant as text are found."""

from __future__ import annotations

import math
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from toolbox.ground.model import yaml_scalars
from toolbox.ground.model.yaml_scalars import Loader, ambiguous_in


def read(text: str) -> Any:
    """Return the value of a YAML text."""
    return yaml.load(text, Loader=Loader)  # a safe loader


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[("1e-4", 0.0001), ("1E5", 100000.0), ("-1.5e4", -15000.0), (".5e3", 500.0), ("+.5", 0.5), ("-.5", -0.5)],
        *[("1.e5", 100000.0), ("1_000e1", 10000.0), ("e5", "e5"), ("1e", "1e"), ("1e5x", "1e5x"), ("1e-", "1e-")],
        *[("'1e-4'", "1e-4"), ('"1e-4"', "1e-4"), ("-e5", "-e5"), (".e5", ".e5"), ("1e5.0", "1e5.0")],
    ],
)
def test_an_exponent_needs_no_dot(text: str, value: object) -> None:
    assert read(text) == value
    assert type(read(text)) is type(value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_of_json_is_the_same_number_in_yaml(value: float) -> None:
    assert read(repr(value)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[("1:30", "90"), ("1:1", "61"), ("190:20:30", "685230"), ("1:30.5", "90.5")],
        *[("0123", "83"), ("-012", "-10"), ("00", "0"), ("07", "7"), ("01.50", "1.5"), ("08.15", "8.15")],
        *[("yes", "true"), ("No", "false"), ("ON", "true"), ("off", "false")],
        *[("3.10", "3.1"), ("1.20", "1.2"), ("22.10", "22.1")],
        *[("12_4", "124"), ("2024_10", "202410"), ("1_00", "100")],
        *[("12345e6", "12345000000.0"), ("1e999", ".inf"), ("123e4567", ".inf")],
        *[("2026-11-21", "a date"), ("2026-11-21T01:02:03Z", "a date"), ("2026-11-21 10:00:00", "a date")],
    ],
)
def test_a_scalar_that_may_be_text_is_shown_with_its_quoted_form(text: str, value: str) -> None:
    (scalar,) = ambiguous_in(f"a: [1, {text}]")
    assert str(scalar).startswith(f'`{text}` is read as {value}: write "{text}" for the text')
    assert scalar.keys == ("a", 1)


@pytest.mark.parametrize(
    "text",
    [
        *[
            "1",
            "0",
            "-0",
            "1.0",
            "0.50",
            "0.10",
            "-0.10",
            "3.1",
            "3.00",
            "100.00",
            "2.500",
            "1e3",
            "1e-4",
            "10e6",
            "128e9",
        ],
        *[
            "100_000",
            "1_000_000.5",
            "0x1F",
            "0b11",
            "089",
            "true",
            "False",
            "null",
            "~",
            ".inf",
            ".nan",
            "3.10.1",
            "v3.10",
        ],
        *["'3.10'", '"on"', "'1:30'", '"2026-11-21"', "!!str 3.10", "|\n  3.10", "1:60", "y", "n", "2026-13"],
    ],
)
def test_a_clear_scalar_gives_no_warning(text: str) -> None:
    assert ambiguous_in(f"a: {text}") == []


def test_a_key_is_a_scalar_too() -> None:
    key, value = ambiguous_in("{8: {on: no}}")
    assert (key.text, key.is_key, key.keys) == ("on", True, (8, "True"))
    assert (value.text, value.is_key, value.column) == ("no", False, 10)


@pytest.mark.parametrize(
    "text",
    [
        "a: [3.10]",
        "{3.10: a}",
        "cuda_version: 3.10",
        "tags: {base: 3.10}",
        "matrix.axes.n: 3.10",
        "imageTag: 3.10",
        "3.10",
    ],
)
def test_a_number_that_may_be_a_version_by_its_place_is_found(text: str) -> None:
    assert [scalar.text for scalar in ambiguous_in(text)] == ["3.10"]


@pytest.mark.parametrize("key", ["price", "gpu_hour", "percentage", "loss_scale", "seconds", "cargo", "matrix.timeout"])
def test_a_number_below_another_key_is_no_version(key: str) -> None:
    assert ambiguous_in(f"{key}: 1.20") == []


def test_a_scalar_behind_aliases_is_found_once() -> None:
    text = "a: &x {python: 3.10}\nb: *x\nc: {<<: *x}\ntag: &y 3.20\ne: *y\n"
    assert [(scalar.text, scalar.line) for scalar in ambiguous_in(text)] == [("3.10", 1), ("3.20", 4)]


def test_a_container_that_contains_itself_is_read_once() -> None:
    loader = Loader("&a [3.10, *a]")
    assert len(list(yaml_scalars.ambiguous(loader.get_single_node(), loader))) == 1


def test_nothing_is_found_in_an_empty_document() -> None:
    assert ambiguous_in("") == []


@pytest.mark.parametrize("text", ["0" + "7" * 6000, "1" + ":30" * 6000, "1_" * 3000 + "1"])
def test_a_long_number_has_a_short_warning(text: str) -> None:
    (scalar,) = ambiguous_in(f"a: {text}")
    assert len(str(scalar)) < 250


def test_an_infinite_number_is_a_number() -> None:
    assert read(".inf") == math.inf
