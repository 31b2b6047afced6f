"""Runs a shell check or a Python check at a place. docs/notebook_checks.md describes the protocol.

What a check prints is data from a target: it is parsed, cleaned and limited here.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from .execution_place import Ended, Place, PlaceError
from .failure_texts import last_line, one_line
from .notebook_results import Fault, TestKind, TestOutcome, TestResult
from .notebook_settings import CheckSettings

SKIPPED: Final = 77  # the exit status of a skipped test in Automake and Meson
_PARTS: Final = ("checked", "expected", "found", "message")
_PLACE_FAULTS: Final = frozenset({Fault.SERVER, Fault.INTERNAL, Fault.ENVIRONMENT})
_MAX_RESULTS: Final = 1000
_NO_ENVIRONMENT: Final = re.compile(r"^#.*\bNeeds no environment\b", re.MULTILINE)
_HARNESS: Final = Path(__file__).with_name("python_check_harness.py")


def kind(check: CheckSettings) -> TestKind:
    """Return the kind of a check, which the suffix of its file determines."""
    return TestKind.SHELL if check.file.endswith(".sh") else TestKind.PYTHON


def needs_no_environment(check: CheckSettings, sources: Path) -> bool:
    """Return whether a shell check says in a comment that it does not use the environment of the runtime."""
    try:
        source = (sources / check.file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return kind(check) is TestKind.SHELL and bool(_NO_ENVIRONMENT.search(source))


def run(check: CheckSettings, sources: Path, promises: Mapping[str, Any], place: Place) -> list[TestResult]:
    """Run a check and return its results: one for a shell check, at least one for a Python check.

    Args:
        sources: the directory to which `check.file` is relative.
    """
    started, clock = time.time(), time.monotonic()
    empty = TestResult(kind(check), check.name, TestOutcome.PASSED, started, 0.0)
    if check.skip is not None:
        return [replace(empty, outcome=TestOutcome.SKIPPED, message=one_line(check.skip))]
    try:
        source = (sources / check.file).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        return [_ended(empty, Fault.INTERNAL, f"the file {check.file} cannot be read: {error.strerror}")]
    try:
        if empty.kind is TestKind.SHELL:
            ended = place.shell(source, variables(promises), timeout=check.timeout)
            results = [_shell_result(empty, ended, check.timeout)]
        else:
            marker = secrets.token_hex(16)
            ended = place.python(python_program(source, check.file, promises, marker), timeout=check.timeout)
            results = _python_results(empty, ended, marker, check.timeout)
    except PlaceError as error:
        results = [_ended(empty, error.fault, str(error))]
    return [replace(result, seconds=time.monotonic() - clock) for result in _with_unique_names(results)]


def variables(promises: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment variables that tell a shell check what is promised.

    A list becomes one line per entry, and a mapping becomes one line per key with the key, a space and the value.
    """
    return {f"PROMISE_{key.upper()}": _text(value) for key, value in promises.items() if value is not None}


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return "\n".join(f"{key} {_text(entry)}".strip() for key, entry in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "\n".join(_text(entry) for entry in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def python_program(source: str, file: str, promises: Mapping[str, Any], marker: str) -> str:
    """Return the program that executes a Python check."""
    arguments = ", ".join(map(ascii, (source, file, json.dumps(dict(promises)), marker)))
    return f"{_HARNESS.read_text(encoding='utf-8')}\n\nmain({arguments})\n"


def _shell_result(empty: TestResult, ended: Ended, timeout: float) -> TestResult:
    parts: dict[str, list[str]] = {name: [] for name in _PARTS}
    for line in ended.stdout.splitlines():
        name, colon, text = line.partition(":")
        if colon and name in parts:
            parts[name].append(text.strip())
    result = _with_parts(empty, {name: "; ".join(lines) for name, lines in parts.items()})
    if ended.fault is not None or ended.status not in (0, 1, SKIPPED):
        return _unfinished(result, ended, timeout)
    outcome = {0: TestOutcome.PASSED, 1: TestOutcome.FAILED, SKIPPED: TestOutcome.SKIPPED}[ended.status or 0]
    return _judged(result, outcome)


def _with_parts(result: TestResult, parts: Mapping[str, str]) -> TestResult:
    checked, expected, found, message = (one_line(parts.get(name, "")) for name in _PARTS)
    return replace(result, checked=checked or result.checked, expected=expected, found=found, message=message)


def _judged(result: TestResult, outcome: TestOutcome) -> TestResult:
    """Return a result with the outcome that the check determined, and with a message if the check did not pass."""
    if outcome is TestOutcome.PASSED:
        return replace(result, outcome=outcome, message="")
    default = result.found
    if outcome is TestOutcome.FAILED and result.expected:
        default = f"expected {result.expected}, found {result.found or 'nothing'}"
    message = result.message or one_line(default) or "the check gave no reason"
    return replace(
        result, outcome=outcome, message=message, fault=Fault.EXPECTATION if outcome is TestOutcome.FAILED else None
    )


def _unfinished(result: TestResult, ended: Ended, timeout: float) -> TestResult:
    """Return the result of a check that did not determine an outcome."""
    if ended.fault is Fault.TIMEOUT:
        return _ended(result, Fault.TIMEOUT, ended.message or f"the check did not end within {timeout:g} s")
    if ended.fault is not None:
        return _ended(result, ended.fault, ended.message)
    detail = last_line(ended.stderr)
    return _error(result, f"the check ended with status {ended.status}" + (f": {detail}" if detail else ""))


def _ended(result: TestResult, fault: Fault, message: str) -> TestResult:
    """Return the result of a check that could not be started, or that was ended because of a fault."""
    outcome = TestOutcome.ERROR if fault in _PLACE_FAULTS else TestOutcome.FAILED
    return replace(result, outcome=outcome, fault=fault, message=one_line(message))


def _error(result: TestResult, message: str) -> TestResult:
    """Return the result of a check that is broken."""
    return replace(result, outcome=TestOutcome.ERROR, fault=Fault.CODE, message=one_line(message))


@dataclass
class _HarnessOutput:
    """The records that the harness printed.

    Args:
        results: the first results.
        left_out: the number of further results.
        end: how the check ended; None if the harness did not print its last record.
    """

    checked: str = ""
    results: list[dict[str, str]] = field(default_factory=list)
    end: dict[str, Any] | None = None
    left_out: int = 0

    @classmethod
    def read(cls, stdout: str, marker: str) -> _HarnessOutput:
        """Read the records, and ignore everything else that the check printed."""
        output = cls()
        complete = stdout[: stdout.rfind("\n") + 1]  # the last line may have been cut when the check was ended
        for line in complete.splitlines():
            if not line.startswith(marker):
                continue
            record = json.loads(line[len(marker) :])
            if "result" in record and len(output.results) < _MAX_RESULTS:
                output.results.append({name: str(text) for name, text in record["result"].items()})
            elif "result" in record:
                output.left_out += 1
            output.checked = record.get("checked", output.checked)
            output.end = record.get("end", output.end)
        return output


def _python_results(empty: TestResult, ended: Ended, marker: str, timeout: float) -> list[TestResult]:
    try:
        output = _HarnessOutput.read(ended.stdout, marker)
    except (AttributeError, TypeError, ValueError) as error:
        return [_error(empty, f"the results of the check are damaged: {error}")]
    empty = replace(empty, checked=one_line(output.checked))
    results = [_python_result(empty, record) for record in output.results]
    if output.left_out:
        count = len(results) + output.left_out
        results.append(_error(empty, f"the check has {count} results, and at most {_MAX_RESULTS} are read"))
    if ended.fault is not None or output.end is None:
        return [*results, _unfinished(empty, ended, timeout)]
    if "failed" in output.end:
        return [*results, _judged(replace(empty, message=one_line(str(output.end["failed"]))), TestOutcome.FAILED)]
    if "error" in output.end:
        return [*results, _error(empty, str(output.end["error"]))]
    return results or [_error(empty, "the function `check` returned no result")]


def _python_result(empty: TestResult, record: Mapping[str, str]) -> TestResult:
    name = one_line(record.get("name", ""), 200)
    result = _with_parts(replace(empty, name=f"{empty.name}:{name}" if name else empty.name), record)
    try:
        outcome = TestOutcome(record.get("outcome", ""))
    except ValueError:
        return _error(result, "a result of the check has no valid `outcome`")
    if outcome is TestOutcome.ERROR:
        return _error(result, result.message or result.found or "the check gave no reason")
    return _judged(result, outcome)


def _with_unique_names(results: Sequence[TestResult]) -> list[TestResult]:
    """Return the results with unique names: each repeated name gets a number."""
    seen: dict[str, int] = {}
    unique = []
    for result in results:
        seen[result.name] = number = seen.get(result.name, 0) + 1
        unique.append(result if number == 1 else replace(result, name=f"{result.name} ({number})"))
    return unique
