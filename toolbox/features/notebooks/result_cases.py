"""Converts a result of the notebook worker to a test case with a message, the text of the failure, and a cause.

Messages and texts contain what notebooks and checks printed. They are cleaned of terminal codes and truncated here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from toolbox.features.notebooks.worker.notebook_results import FailedCell, Fault, TestOutcome, TestResult
from toolbox.ground.model.cases import CaseOutcome, CaseResult
from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.text import truncate, without_middle
from toolbox.ground.model.verdicts import Cause

_LONGEST_MESSAGE: Final = 280
_MAX_SOURCE_LINES: Final = 20
_LONGEST_SOURCE: Final = 800
_LONGEST_TRACEBACK: Final = 2600  # so that the whole text stays below the 4000 characters of junit_files
_LONGEST_VALUE: Final = 1000  # of `expected` and of `found` of a check
_CAUSES: Final[Mapping[Fault, Cause]] = {
    Fault.TIMEOUT: Cause.TIMEOUT,
    Fault.SERVER: Cause.INFRASTRUCTURE,
    Fault.INTERNAL: Cause.INTERNAL,
}
_WORDS: Final[Mapping[Fault, str]] = {
    Fault.CODE: "a cell raised an exception",
    Fault.EXPECTATION: "found something other than expected",
    Fault.OUTPUT: "the outputs differ from the expected outputs",
    Fault.TIMEOUT: "exceeded its time limit",
    Fault.KERNEL_DIED: "the kernel died",
    Fault.OUT_OF_MEMORY: "ran out of memory",
    Fault.TOO_MUCH_OUTPUT: "wrote too much output",
    Fault.INVALID_NOTEBOOK: "the file is not a valid notebook",
    Fault.OLD_FORMAT: "the notebook has a format before version 4",
    Fault.NO_KERNEL: "the kernel cannot be started",
    Fault.ENVIRONMENT: "the requirements of the runtime cannot be installed",
    Fault.SERVER: "the Jupyter server or the package index does not answer",
    Fault.INTERNAL: "the notebook worker is broken",
}


def cause(result: TestResult) -> Cause | None:
    """Return the cause for which a test did not pass; None if it passed or was skipped."""
    if result.outcome in {TestOutcome.PASSED, TestOutcome.SKIPPED}:
        return None
    return _CAUSES.get(result.fault, Cause.PRODUCT) if result.fault is not None else Cause.PRODUCT


def case(result: TestResult) -> CaseResult:
    """Return the test case of a result."""
    outcome = CaseOutcome(result.outcome.value)
    message = "" if outcome is CaseOutcome.PASSED else truncate(_message(result), _LONGEST_MESSAGE)
    text = _text(result) if outcome in {CaseOutcome.FAILED, CaseOutcome.ERROR} else ""
    return CaseResult(result.kind.value, one_line(result.name), outcome, result.seconds, message, text)


def _message(result: TestResult) -> str:
    """Return why a test did not pass or was skipped, in one line."""
    reason = _reason(result)
    if result.fault is Fault.OUT_OF_MEMORY and "out of memory" not in reason.lower():
        return f"{reason} (out of memory)"  # so that exhausted memory is not mistaken for an error in the code
    return reason


def _reason(result: TestResult) -> str:
    failed_cell = result.notebook.failed_cell if result.notebook is not None else None
    message = one_line(result.message)
    if failed_cell is None:
        return message or _default_message(result)
    name = _cell_name(failed_cell)
    return (
        message
        if name in message
        else f"{name}: {message or one_line(failed_cell.exception) or _default_message(result)}"
    )


def _default_message(result: TestResult) -> str:
    if result.outcome is TestOutcome.SKIPPED:
        return "skipped without a reason"
    if result.fault in {Fault.EXPECTATION, None} and (result.expected or result.found):
        return f"expected {one_line(result.expected)}, found {one_line(result.found)}"
    return _WORDS[result.fault] if result.fault is not None else "failed without a reason"


def _text(result: TestResult) -> str:
    """Return the evidence of a failure as several lines."""
    failed_cell = result.notebook.failed_cell if result.notebook is not None else None
    has_diff = result.fault is Fault.OUTPUT and failed_cell is not None and bool(failed_cell.traceback)
    values = (("checked: ", result.checked), ("expected:", result.expected), ("found:   ", result.found))
    blocks = [
        f"{label} {_limited(clean(value), _LONGEST_VALUE)}"
        for label, value in values
        if value and not has_diff  # the diff shows the expected and the found output
    ]
    if failed_cell is not None:
        blocks += _cell_text(failed_cell, has_diff=has_diff)
    message = clean(result.message).strip()
    if message and len(message) > _LONGEST_MESSAGE:
        blocks.insert(0, _limited(message, _LONGEST_VALUE))
    return "\n".join(blocks)


def _cell_text(failed: FailedCell, *, has_diff: bool) -> list[str]:
    """Return the source of a cell, its exception, and the end of its traceback, or the beginning of a diff."""
    source = "\n".join(without_middle(clean(failed.source).strip("\n").splitlines(), _MAX_SOURCE_LINES))
    exception, traceback = clean(failed.exception).strip(), clean(failed.traceback).strip("\n")
    blocks = [f"{_cell_name(failed)}:", _limited(source, _LONGEST_SOURCE)] if source else []
    if exception:
        blocks += ["", _limited(exception, _LONGEST_MESSAGE)]
    if has_diff:
        blocks += ["", truncate(traceback, _LONGEST_TRACEBACK)]
    elif traceback:
        end = traceback if len(traceback) <= _LONGEST_TRACEBACK else f"...{traceback[-_LONGEST_TRACEBACK:]}"
        blocks += ["", end]
    return blocks


def _cell_name(failed: FailedCell) -> str:
    return f"code cell {failed.number}" if failed.number else "the cell with the parameters"


def one_line(text: str) -> str:
    """Return untrusted text as one line of printable characters."""
    line = " ".join(clean(text[: 8 * _LONGEST_MESSAGE]).split())
    return "".join(character if character.isprintable() else "\ufffd" for character in line)


def _limited(text: str, longest: int) -> str:
    return truncate(text.strip(), longest)
