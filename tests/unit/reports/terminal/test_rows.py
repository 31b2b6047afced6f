"""Rows of results are printed as a table, as JSON, or as CSV."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from toolbox.ground.model.foreign_text import csv_cell
from toolbox.reports.terminal import rows
from toolbox.reports.terminal.rows import Row

ROW: Row = {
    "cell": "x=a",
    "verdict": "passed",
    "value": 1.23456789,
    "revision": "c0ffee" * 6 + "abcd+",
    "cells": {"passed": 2, "failed": 1},
    "started": datetime(2026, 3, 1, 2, tzinfo=UTC),
    "counts": False,
    "empty": None,
}
COLUMNS = tuple(ROW)


def shown(found: list[Row]) -> str:
    console = Console(file=io.StringIO(), width=200)
    rows.show(found, COLUMNS, console, empty="there is nothing")
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_rows_are_printed_as_a_table() -> None:
    text = shown([ROW])
    assert "1.2346" in text
    assert "2 passed, 1 failed" in text
    assert "c0ffeec0ffee+" in text


def test_columns_that_are_empty_everywhere_are_left_out() -> None:
    assert "empty" not in shown([ROW])


def test_without_rows_a_message_is_printed() -> None:
    assert shown([]) == "there is nothing\n"


def test_json_has_all_values_unchanged() -> None:
    (found,) = json.loads(rows.dump([ROW], COLUMNS, "json"))
    assert found == {**ROW, "started": "2026-03-01T02:00:00+00:00"}


def test_json_has_null_for_a_number_that_is_not_finite_and_keeps_the_others() -> None:
    row: Row = {"a": float("inf"), "b": [1.5, float("nan")], "c": {"d": float("-inf"), "e": 1e300}, "f": 2}
    assert json.loads(rows.dump([row], list(row), "json")) == [
        {"a": None, "b": [1.5, None], "c": {"d": None, "e": 1e300}, "f": 2}
    ]


def test_csv_without_rows_has_a_header() -> None:
    assert rows.dump([], ["a", "b"], "csv") == "a,b"


@given(st.text(st.characters(exclude_characters="\r", exclude_categories=["Cs"])))
def test_csv_preserves_any_text(text: str) -> None:
    dumped = rows.dump([{"a": text, "b": 1.5}], ["a", "b"], "csv")
    assert list(csv.DictReader(io.StringIO(dumped, newline=""))) == [{"a": csv_cell(text), "b": "1.5"}]


@pytest.mark.parametrize(
    "text",
    ["=1+1", "+cmd|' /C calc'!A0", "-cmd", "@SUM(1)", "\t=1", "\r=1", "\n=1", "-", "\uff1d1", '=HYPERLINK("http://x")'],
)
def test_no_text_in_csv_is_a_formula(text: str) -> None:
    (row,) = list(csv.reader(io.StringIO(rows.dump([{"a": text}], ["a"], "csv"), newline="")))[1:]
    assert row == ["'" + text.replace("\r", "\n")]
    heading, _ = csv.reader(io.StringIO(rows.dump([{text: 1}], [text], "csv"), newline=""))
    assert heading == row


@pytest.mark.parametrize("value", [-1, -1.5, -1e-9, "-1.5", "+3", 0, None, True, "a=b", "", "x-y"])
def test_numbers_and_other_texts_in_csv_stay_as_they_are(value: object) -> None:
    assert "'" not in rows.dump([{"a": value}], ["a"], "csv")


@pytest.mark.parametrize("text", ["\x1b[31mred\x1b[0m", "[bold]markup[/bold]", "two\nlines"])
def test_foreign_text_controls_no_terminal(text: str) -> None:
    found = shown([{"cell": text}])
    assert "\x1b" not in found
    assert found.count("\n") == 2
