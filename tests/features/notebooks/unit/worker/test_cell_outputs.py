"""Outputs are counted and merged while they arrive."""

from __future__ import annotations

from typing import Any

import pytest

from toolbox.features.notebooks.worker.cell_outputs import MIN_BYTES, OutputBudget, StreamMerger, TooMuchOutputError


def stream(text: str) -> dict[str, Any]:
    return {"msg_type": "stream", "content": {"name": "stdout", "text": text}}


def display(value: str, **fields: Any) -> dict[str, Any]:
    return {"msg_type": "display_data", "content": {"data": {"text/plain": value}}} | fields


def test_a_stream_that_exceeds_the_limit_keeps_its_first_part() -> None:
    budget = OutputBudget(100)
    budget.charge(stream("x" * 58))
    last = stream("y" * 1000)
    with pytest.raises(TooMuchOutputError):
        budget.charge(last)
    assert last["content"]["text"] == "y" * 39


def test_nothing_is_kept_after_the_limit() -> None:
    budget = OutputBudget(10)
    for text in ("x" * 100, "y"):
        message = stream(text)
        with pytest.raises(TooMuchOutputError):
            budget.charge(message)
    assert message["content"]["text"] == ""


def test_the_size_is_the_size_in_the_file() -> None:
    budget = OutputBudget(1000)
    with pytest.raises(TooMuchOutputError):
        budget.charge(stream("\x1b" * 200))  # \u001b in JSON
    budget = OutputBudget(1000)
    with pytest.raises(TooMuchOutputError):
        budget.charge(stream("\n" * 100))


@pytest.mark.parametrize(
    "message",
    [display("x"), display("y", buffers=[memoryview(b"x")]), {"msg_type": "comm_msg", "content": {}}],
)
def test_a_small_output_counts_as_a_whole_one(message: dict[str, Any]) -> None:
    budget = OutputBudget(10 * MIN_BYTES)
    for _ in range(9):
        budget.charge(message)
    with pytest.raises(TooMuchOutputError):
        budget.charge(message)


def test_texts_of_a_stream_become_one_output_in_their_order() -> None:
    merger, outputs = StreamMerger(), list[Any]()
    for number in range(1000):
        merger.add(outputs, "stdout", f"{number}\n")
        merger.add(outputs, "stderr", "e")
    merger.flush()
    assert [(output.name, len(output.text.splitlines())) for output in outputs] == [("stdout", 1000), ("stderr", 1)]
    assert outputs[0].text == "".join(f"{number}\n" for number in range(1000))


def test_a_new_cell_has_outputs_of_its_own() -> None:
    merger, first, second = StreamMerger(), list[Any](), list[Any]()
    merger.add(first, "stdout", "first")
    merger.start_cell()
    merger.add(second, "stdout", "second")
    merger.flush()
    assert (first[0].text, second[0].text) == ("first", "second")
