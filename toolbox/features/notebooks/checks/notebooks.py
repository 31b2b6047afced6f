"""Judges the tests of a runtime: shell checks, Python checks and notebooks. Each test becomes a row of the cell.

The notebook worker executes the tests that `src/settings.json` names, and writes their results to
`files/results.jsonl`. The check compares the results with the settings, and writes them to a JUnit file in the
directory of the attempt, from which reports and the store read them. `result_records.py` of
`toolbox/features/notebooks/` reads the file.

The check fails if a test has no result, if the settings do not name the test of a result, or if all tests were skipped.
The reason of a failed test determines the cause: `timeout` for a time limit, `infrastructure` for a server that does
not answer, `internal` for a broken worker, and `product` for everything else.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from toolbox.features.notebooks import requested_tests, result_cases, result_records
from toolbox.features.notebooks.requested_tests import RequestedTest
from toolbox.features.notebooks.worker.notebook_results import TestKind, TestResult
from toolbox.ground.model.cases import FAIL_ON, CaseOutcome, CaseReport, CaseResult
from toolbox.ground.model.evidence import Evidence, Judgement, worst_cause
from toolbox.ground.model.text import counted, first_of, truncate
from toolbox.ground.model.verdicts import Cause
from toolbox.records.runs import junit_files
from toolbox.records.runs.evidence_files import RecordFault, RelativeFile

RESULTS: Final = "notebooks.junit.xml"
"""The file of the results in the directory of the attempt."""
_MAX_NAMED: Final = 3  # reasons in the message, and tests with the same reason
_MAX_ENVIRONMENTS: Final = 10
_REPEATED: Final = re.compile(r" \(\d{1,5}\)$")
_Key = tuple[TestKind, str]  # of a test, and of a result


class Check(BaseModel):
    """The files of the worker.

    Args:
        file: the results.
        settings: the settings of the worker, which name the tests.
        min_tests: the smallest number of tests that must have been executed.
    """

    model_config = ConfigDict(extra="forbid")

    file: RelativeFile = result_records.RESULTS_FILE
    settings: RelativeFile = requested_tests.SETTINGS_FILE
    min_tests: int = Field(default=1, ge=1)

    def judge(self, evidence: Evidence) -> Judgement:
        """Compare the results with the settings, and write the test cases."""
        return self._judge(evidence, is_partial=False)

    def finished(self, evidence: Evidence) -> CaseReport | None:
        """Return the tests that had ended when the workload was ended; None if there are none."""
        return self._judge(evidence, is_partial=True).cases

    def _judge(self, evidence: Evidence, *, is_partial: bool) -> Judgement:
        directory = evidence.directory
        try:
            results = _Results(requested_tests.read(evidence, self.settings))
            results.read(directory, self.file, is_partial=is_partial)
        except ValueError as error:
            line = getattr(error, "line", None)
            reason = ": ".join(filter(None, [truncate(str(error)), _end_of_worker(directory)]))
            return Judgement(False, reason, self.file if line is not None else "", line)
        if not is_partial:
            results.add_missing(_end_of_worker(directory))
        cases = results.cases
        if not cases:
            return Judgement(False, f"{self.settings} names no test")
        try:
            junit_files.write(directory / RESULTS, cases)
        except OSError as error:  # for example, the disk of this machine is full
            return Judgement(False, f"{RESULTS} cannot be written: {error.strerror}", cause=Cause.INFRASTRUCTURE)
        report = replace(junit_files.report(directory, RESULTS, FAIL_ON, is_partial=is_partial), is_partial=is_partial)
        return self._judgement(report, results)

    def _judgement(self, report: CaseReport, results: _Results) -> Judgement:
        faults = [truncate(str(fault)) for fault in results.faults]
        if report.failed:
            summary = f"{report.failed} of {counted(report.total, 'test')} did not pass ({report})"
            lines = [*first_of(results.reasons, _MAX_NAMED), summary, *faults[:1]]
            return Judgement(False, "\n".join(lines), cases=report, cause=results.cause)
        if faults:
            fault = results.faults[0]
            is_shown = fault.line is not None
            return Judgement(False, faults[0], self.file if is_shown else "", fault.line, cases=report)
        if results.executed < self.min_tests:
            reason = next((case.message for case in results.cases if case.outcome is CaseOutcome.SKIPPED), "")
            executed = f"{counted(results.executed, 'test')} executed ({report})"
            lines = [f"{executed}, but at least {self.min_tests} must be executed", truncate(reason)]
            return Judgement(False, "\n".join(filter(None, lines)), cases=report)
        return Judgement(True, str(report), cases=report)


def _end_of_worker(directory: Path) -> str:
    """Return the reason that the worker reported for ending early; empty if there is none."""
    try:
        return result_cases.one_line(result_records.read_report(directory).fault)
    except RecordFault:
        return ""


class _Results:
    """The results of the tests of one attempt.

    Args:
        faults: the faults of the results file. Tests that did not pass are not among them.
    """

    def __init__(self, requested: list[RequestedTest]) -> None:
        self._requested: dict[_Key, RequestedTest] = {(test.kind, test.name): test for test in requested}
        self._cases: dict[_Key, CaseResult] = {}
        self._causes: dict[_Key, Cause | None] = {}
        self._tests: dict[_Key, _Key | None] = {}  # the requested test of each case; None for an environment
        self.faults: list[RecordFault] = []

    def read(self, directory: Path, file: str, *, is_partial: bool) -> None:
        """Read all results of a file.

        Raises:
            RecordFault: the file cannot be read.
        """
        try:
            for number, result in enumerate(result_records.read(directory, file), start=1):
                if isinstance(result, RecordFault):
                    self.faults.append(result)
                elif not self._add(result):
                    title = truncate(repr(result.title))
                    text = f"{file}:{number} is the result of {title}, which the settings do not name"
                    self.faults.append(RecordFault(text, number))
        except RecordFault as fault:
            if is_partial:
                return
            if not self._cases:
                raise
            self.faults.append(fault)

    def add_missing(self, reason: str) -> None:
        """Add a case for each test without a result.

        Args:
            reason: why the worker ended early; empty if unknown.
        """
        message = truncate(f"there is no result: {reason}" if reason else "there is no result")
        tests = set(self._tests.values())
        for key in [key for key in self._requested if key not in tests]:
            self._cases[key] = CaseResult(key[0].value, key[1], CaseOutcome.ERROR, message=message)
            self._tests[key] = key

    @property
    def cases(self) -> list[CaseResult]:
        """The cases: the environments, then the tests in the order of the settings."""
        positions = {key: position for position, key in enumerate([None, *self._requested])}
        return [self._cases[key] for key in sorted(self._cases, key=lambda key: positions[self._tests[key]])]

    @property
    def failures(self) -> list[CaseResult]:
        """The tests that did not pass. Tests with the cause of the cell are first."""
        failed = [key for key, case in self._cases.items() if case.outcome in FAIL_ON]
        return [self._cases[key] for key in sorted(failed, key=lambda key: self._causes.get(key) is not self.cause)]

    @property
    def reasons(self) -> list[str]:
        """Why tests did not pass. Tests with the same reason, such as a kernel that does not exist, share a line."""
        titles: dict[str, list[str]] = {}
        for case in self.failures:
            titles.setdefault(case.message, []).append(case.title)
        return [truncate(f"{', '.join(first_of(names, _MAX_NAMED))}: {why}") for why, names in titles.items()]

    @property
    def cause(self) -> Cause | None:
        """The worst cause of the tests that did not pass; None if none of them has a cause."""
        return worst_cause(self._causes.values())

    @property
    def executed(self) -> int:
        """The number of tests that were executed, without the environments."""
        return sum(
            self._tests[key] is not None and case.outcome is not CaseOutcome.SKIPPED
            for key, case in self._cases.items()
        )

    def _add(self, result: TestResult) -> bool:
        """Add a result. Return False if the settings do not name its test."""
        key = (result.kind, result.name)
        test = self._test_of(result)
        if test is None and not self._is_environment(result):
            return False
        case = result_cases.case(result)
        manual = self._requested[test].manual if test is not None else None
        if manual is not None:
            case = _manual_case(case, manual)
        if key in self._cases:
            case = replace(case, outcome=CaseOutcome.ERROR, message="the test has several results")
        self._cases[key], self._causes[key], self._tests[key] = case, result_cases.cause(result), test
        return True

    def _test_of(self, result: TestResult) -> _Key | None:
        """Return the requested test of a result; None if there is none.

        A check can have several results. Their names are `CHECK:NAME`, with ` (2)` after a repeated name.
        """
        names = [result.name]
        if result.kind is not TestKind.NOTEBOOK:
            whole = _REPEATED.sub("", result.name)
            names += [whole, whole.partition(":")[0]]
        return next(((result.kind, name) for name in names if (result.kind, name) in self._requested), None)

    def _is_environment(self, result: TestResult) -> bool:
        """Return whether a result belongs to an environment. The worker may install several environments."""
        names = {name for kind, name in self._cases if kind is TestKind.ENVIRONMENT}
        is_new = result.name not in names
        return result.kind is TestKind.ENVIRONMENT and not (is_new and len(names) >= _MAX_ENVIRONMENTS)


def _manual_case(case: CaseResult, reason: str) -> CaseResult:
    """Return the case of a notebook that the worker had to skip, because a person must do something first."""
    if case.outcome is CaseOutcome.SKIPPED:
        return replace(case, message=f"manual: {result_cases.one_line(reason)}")
    return replace(case, outcome=CaseOutcome.ERROR, message="is manual, but was executed")
