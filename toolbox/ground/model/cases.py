"""The test cases of a suite, as a workload reports them in JUnit files. A test case is a row below its cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from toolbox.ground.model.text import counted


class CaseOutcome(StrEnum):
    """How a test case ended.

    FLAKY: the test case passed after an execution that failed.
    FAILED: an assertion failed.
    ERROR: the test case could not be executed completely, for example because a fixture failed.
    """

    PASSED = "passed"
    FLAKY = "flaky"
    FAILED = "failed"
    ERROR = "error"
    SKIPPED = "skipped"


FAIL_ON: Final = (CaseOutcome.FAILED, CaseOutcome.ERROR)  # the outcomes that fail a suite by default


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The result of a test case.

    Args:
        suite: the class or module of the test case; empty if unknown.
        name: the name in the suite. If several test cases of a cell have the same suite and name, a number such as
            ` #2` distinguishes them.
        seconds: the duration; None if unknown.
        message: one line that says why the test case did not pass; a remark, or empty, if it passed.
        text: the full text of the failure, with a limited length.
    """

    suite: str
    name: str
    outcome: CaseOutcome
    seconds: float | None = None
    message: str = ""
    text: str = ""

    @property
    def title(self) -> str:
        """The suite and the name."""
        return f"{self.suite}.{self.name}" if self.suite else self.name

    @property
    def lacks_seconds(self) -> bool:
        """Whether the test case was executed, but its duration is unknown."""
        return self.seconds is None and self.outcome is not CaseOutcome.SKIPPED


@dataclass(frozen=True, slots=True)
class CaseReport:
    """The test cases of a cell, as a check has counted them.

    Args:
        glob: the pattern of the JUnit files, relative to the directory of the attempt.
        counts: the number of test cases with each outcome.
        fail_on: the outcomes that fail the check.
        seconds: the sum of the durations of all test cases; None if the duration of an executed test case is unknown.
        failures: the first test cases that fail the check, without their texts.
        is_partial: whether the suite did not end by itself, so that there are only the test cases that finished.
        remarks: the number of test cases that passed with a remark; 0 if the check failed.
    """

    glob: str
    counts: Mapping[CaseOutcome, int]
    fail_on: Sequence[CaseOutcome] = FAIL_ON
    seconds: float | None = 0.0
    failures: Sequence[CaseResult] = field(default=())
    is_partial: bool = False
    remarks: int = 0

    @property
    def total(self) -> int:
        """The number of test cases."""
        return sum(self.counts.values())

    @property
    def executed(self) -> int:
        """The number of test cases that were not skipped."""
        return self.total - self.counts.get(CaseOutcome.SKIPPED, 0)

    @property
    def failed(self) -> int:
        """The number of test cases that fail the check."""
        return sum(self.counts.get(outcome, 0) for outcome in self.fail_on)

    @property
    def with_remarks(self) -> str:
        """The number of test cases with each outcome, and of those that passed with a remark."""
        return f"{self}; {counted(self.remarks, 'case')} passed with a remark" if self.remarks else str(self)

    def __str__(self) -> str:
        """Return the number of test cases with each outcome: `118 passed, 2 failed`."""
        return counts_text([self])


def counts_text(reports: Sequence[CaseReport]) -> str:
    """Return how many test cases of all reports have each outcome: `118 passed, 2 failed`."""
    counts = {outcome: sum(report.counts.get(outcome, 0) for report in reports) for outcome in CaseOutcome}
    return ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count) or "no tests"
