"""The outputs of a cell are compared as nbval does."""

from __future__ import annotations

from typing import Any

import pytest
from nbformat.v4 import new_code_cell, new_output

from toolbox.features.notebooks.worker import output_comparison
from toolbox.features.notebooks.worker.output_comparison import Comparison, Mismatch


def stream(text: str, name: str = "stdout") -> Any:
    return new_output("stream", name=name, text=text)


def display(**data: Any) -> Any:
    return new_output("display_data", data={key.replace("_", "/", 1): value for key, value in data.items()})


def result(**data: Any) -> Any:
    return new_output("execute_result", data=display(**data).data, execution_count=1)


def error(name: str, value: str, traceback: str = "") -> Any:
    return new_output("error", ename=name, evalue=value, traceback=[traceback])


def compared(expected: list[Any], found: list[Any]) -> Mismatch | None:
    found_mismatches = output_comparison.mismatches([Comparison(1, expected, found)], ())
    return found_mismatches[0] if found_mismatches else None


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        ([], []),
        ([stream("a\n"), stream("b\n")], [stream("a\nb\n")]),
        ([stream("a"), stream("x", "stderr"), stream("b")], [stream("x", "stderr"), stream("ab")]),
        ([stream("text  \n\n")], [stream("text")]),
        ([stream("\x1b[31mred\x1b[0m")], [stream("red")]),
        ([stream(" 10%\r 50%\r100%\n")], [stream("100%\n")]),
        ([stream("a\r\nb")], [stream("a\nb")]),
        ([display(image_png="AAAA", text_plain="<Figure>")], [display(image_png="BBBB", text_plain="<Figure>")]),
        ([result(text_plain="1")], [display(text_plain="1")]),
        ([display(application_json={"a": 1, "b": 2})], [display(application_json={"b": 2, "a": 1})]),
        ([error("E", "message", "File a")], [error("E", "message", "File b")]),
        ([stream("")], []),
    ],
)
def test_outputs_that_only_vary_are_equal(expected: list[Any], found: list[Any]) -> None:
    assert compared(expected, found) is None


@pytest.mark.parametrize(
    ("expected", "found", "message"),
    [
        ([stream("a\nb")], [stream("a\nc")], "stdout differs in line 2: expected `b`, found `c`"),
        ([stream("a\nb")], [stream("a")], "stdout differs in line 2: expected `b`, found no such line"),
        ([stream("a")], [], "the expected stdout is missing"),
        ([], [stream("a", "stderr")], "the stderr is not expected"),
        ([display(image_png="A")], [display(image_jpeg="A")], "the expected image/png of output 1 is missing"),
        ([display(image_png="A")], [], "the expected image/png of output 1 is missing"),
        ([result(text_plain="1")], [result(text_plain="2")], "text/plain of output 1 differs in line 1"),
        ([display(application_json=[1])], [display(application_json=[2])], "application/json of output 1 differs"),
        ([error("E", "a")], [error("E", "b")], "exception differs in line 1: expected `E: a`, found `E: b`"),
        ([display(text_plain="1")], [display(text_plain="1")] * 2, "the text/plain of output 2 is not expected"),
    ],
)
def test_a_difference_is_described(expected: list[Any], found: list[Any], message: str) -> None:
    mismatch = compared(expected, found)
    assert mismatch
    assert mismatch.message.startswith(message)


def test_a_difference_shows_a_short_unified_diff() -> None:
    lines = [f"line {number}\n" for number in range(10_000)]
    mismatch = compared([stream("".join(lines))], [stream("".join([*lines[:5000], "other\n", *lines[5001:]]))])
    assert mismatch
    assert mismatch.diff.splitlines()[:7] == [
        "--- expected stdout",
        "+++ found stdout",
        "@@ -1,5 +1,5 @@",
        " line 4998",
        " line 4999",
        "-line 5000",
        "+other",
    ]
    assert len(mismatch.diff) < 1000
    assert mismatch.expected.startswith("line 4998\nline 4999\nline 5000\n")
    assert mismatch.found.startswith("line 4998\nline 4999\nother\n")


def test_texts_without_a_common_line_take_little_time() -> None:
    mismatch = compared([stream("a\n" * 100_000)], [stream("b\n" * 100_000)])
    assert mismatch
    assert len(mismatch.diff) < 1000


def test_a_long_line_is_abridged() -> None:
    mismatch = compared([stream("a" * 100_000)], [stream("b" * 100_000)])
    assert mismatch
    assert len(mismatch.diff) < 1000
    assert len(mismatch.message) < 300


@pytest.mark.parametrize(
    ("tags", "all_cells", "is_compared"),
    [
        ([], False, False),
        ([], True, True),
        (["nbval-check-output"], False, True),
        (["nbval-ignore-output"], True, False),
        (["nbval-check-output", "nbval-ignore-output"], True, False),
    ],
)
def test_tags_decide_what_is_compared(tags: list[str], all_cells: bool, is_compared: bool) -> None:
    cell = new_code_cell(metadata={"tags": tags})
    assert output_comparison.is_compared(cell, all_cells=all_cells) is is_compared
