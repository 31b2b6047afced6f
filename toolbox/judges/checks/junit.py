"""Judges an attempt by the test cases of its JUnit files. Each test case becomes a row of the cell.

No file, an empty or a broken file, and too few test cases fail the check. A suite whose test cases were all skipped has
tested nothing, so skipped test cases do not count for `min_tests`.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from toolbox.ground.model.cases import FAIL_ON, CaseOutcome, CaseReport, CaseResult
from toolbox.ground.model.evidence import Evidence, Judgement
from toolbox.ground.model.text import counted, duration, truncate
from toolbox.records.runs import junit_files
from toolbox.records.runs.evidence_files import RelativeGlob

_MAX_NAMED: Final = 3  # failures that the message names


class Check(BaseModel):
    """The JUnit files, and what their test cases must show.

    Args:
        glob: the pattern of the files.
        fail_on: the outcomes of test cases that fail the check.
        min_tests: the smallest number of test cases that must have been executed.
    """

    model_config = ConfigDict(extra="forbid")

    glob: RelativeGlob
    fail_on: Annotated[list[CaseOutcome], Field(min_length=1)] = list(FAIL_ON)
    min_tests: int = Field(default=1, ge=1)

    def judge(self, evidence: Evidence) -> Judgement:
        """Read the files, and judge their test cases."""
        try:
            report = junit_files.report(evidence.directory, self.glob, self.fail_on)
        except junit_files.JUnitFault as fault:
            return Judgement(False, str(fault), fault.file, fault.line)
        if report.failed:
            return Judgement(False, _failures(report), cases=report)
        if report.executed < self.min_tests:
            message = f"{counted(report.executed, 'test')} ran ({report}), but at least {self.min_tests} must run"
            return Judgement(False, message, cases=report)
        took = "" if report.seconds is None else f", in {duration(report.seconds)}"
        return Judgement(True, f"{report}{took}", cases=report)

    def finished(self, evidence: Evidence) -> CaseReport | None:
        """Return the test cases that finished before the suite was ended; None if no test case finished."""
        try:
            report = junit_files.report(evidence.directory, self.glob, self.fail_on, is_partial=True)
        except junit_files.JUnitFault:
            return None
        return report if report.total else None


def _failures(report: CaseReport) -> str:
    head = f"{report.failed} of {counted(report.total, 'test')} did not pass ({report})"
    named = [_named(case) for case in report.failures[:_MAX_NAMED]]
    more = report.failed - len(named)
    return "\n".join([head, *named, *([f"and {more} more"] if more > 0 else [])])


def _named(case: CaseResult) -> str:
    return truncate(f"{case.title}: {case.message or case.outcome}")
