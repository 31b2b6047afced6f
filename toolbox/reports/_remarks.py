"""The remarks of reports: on steps that did not fail the run, and on failures that have nothing in common."""

from __future__ import annotations

from typing import Final

from toolbox.ground.model.events import StepKind
from toolbox.ground.model.text import truncate, without_middle
from toolbox.ground.model.verdicts import UNEXPECTED, Verdict
from toolbox.records.runs import attribution
from toolbox.records.runs.run_state import RunState, StepState

NOTHING_IN_COMMON: Final = "No condition on the axes separates the cells that failed from the others."
_FEWEST_CELLS: Final = 4  # for fewer cells no remark is needed
_MAX_LINES: Final = 8
_LONGEST: Final = 400  # characters of a line


def of(summary: RunState) -> list[StepState]:
    """Return the steps with a remark: failures that do not count, then cells that passed with a message."""
    steps = [step for step in summary.steps.values() if step.kind in {StepKind.CELL, StepKind.COMMAND}]
    uncounted_failures = [step for step in steps if not step.counts and step.has_failed]
    passed = [step for step in summary.cells if step.verdict is Verdict.PASSED and step.message.strip()]
    return uncounted_failures + passed


def is_quarantined_failure(step: StepState) -> bool:
    """Return whether a step is a cell in quarantine that did not pass."""
    return step.kind is StepKind.CELL and not step.counts and step.has_failed


def text(step: StepState) -> str:
    """Return the remark on a step, short enough for a list."""
    lines = [truncate(line, _LONGEST) for line in step.message.splitlines()]
    return "\n".join(without_middle([*lines, *uncounted(step)], _MAX_LINES))


def uncounted(step: StepState) -> list[str]:
    """Return the line that says that a step does not count; no line if the message of the step says so."""
    return ["the verdict does not count"] if not step.counts and "does not count" not in step.message else []


def has_nothing_in_common(summary: RunState) -> bool:
    """Return whether several cells failed, others passed, and no condition separates them."""
    cells = [step for step in summary.cells if step.counts and step.labels]
    failed = [step for step in cells if step.verdict in UNEXPECTED]
    has_passed = any(step.verdict is Verdict.PASSED for step in cells)
    is_large = len(cells) >= _FEWEST_CELLS and len(failed) >= attribution.FEWEST_FAILED
    return is_large and has_passed and not summary.attribution
