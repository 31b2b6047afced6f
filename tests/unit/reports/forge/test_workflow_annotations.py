"""Annotations are commands to a runner: one line each, and no text ends or begins a command."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.reports.forge.test_github import HOSTILE, cell, summary
from toolbox.ground.model.verdicts import Verdict
from toolbox.records.runs.run_state import State
from toolbox.reports.forge import workflow_annotations


def test_a_failure_is_an_error_with_its_cause() -> None:
    failed = cell("model=small,batch=8", Verdict.FAILED, "the loss is nan\nin stdout.log:2", 1)
    assert workflow_annotations.lines(summary(cell("a"), failed)) == [
        "::error title=failed (check)%3A model=small%2Cbatch=8::the loss is nan%0Ain stdout.log:2"
    ]


def test_a_run_that_passed_has_no_annotations() -> None:
    assert workflow_annotations.lines(summary(cell("a"))) == []


def test_a_failure_that_does_not_count_is_a_warning() -> None:
    (line,) = workflow_annotations.lines(summary(cell("a", Verdict.FAILED, "flaky", counts=False)))[-1:]
    assert line.startswith("::warning title=failed (check)%3A a::flaky")


def test_at_most_ten_failures_are_annotated() -> None:
    lines = workflow_annotations.lines(summary(*(cell(f"c{n}", Verdict.FAILED, "x", n) for n in range(25))))
    assert len(lines) == 10
    assert lines[-1] == "::error title=and 16 more failures::see the summary of the step"


def test_a_run_that_was_killed_has_an_error() -> None:
    (line,) = workflow_annotations.lines(replace(summary(cell("a")), finished=None, state=State.DEAD))
    assert line == "::error title=training did not end::the run was killed, or is still running"


@pytest.mark.parametrize("text", [HOSTILE, "a\n::add-mask::x", "a\r\n::stop-commands::x", "%0A::error::x", "a::b,c:d"])
def test_hostile_text_stays_inside_its_annotation(text: str) -> None:
    (line,) = workflow_annotations.lines(summary(cell(text, Verdict.FAILED, text, 1)))
    assert "\n" not in line
    assert "\r" not in line
    assert "\x1b" not in line
    properties, _, message = line.removeprefix("::error title=").partition("::")
    assert not {",", ":"} & set(properties)
    assert "%0A" in message or "\n" not in text.strip()
