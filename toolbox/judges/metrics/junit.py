"""Reads a metric from JUnit files: the seconds of all test cases or of one, or a number of test cases.

If no test case was executed, or the duration of one is unknown, there is no metric: a sum without this test case would
look like an improvement.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from toolbox.ground.model import patterns
from toolbox.ground.model.cases import CaseOutcome
from toolbox.ground.model.nearest import did_you_mean
from toolbox.records.runs import junit_files
from toolbox.records.runs.evidence_files import RelativeGlob

_MAX_SUGGESTED: Final = 2000  # test cases among which similar names are searched
_ALSO_SKIPPED: Final = ("tests", "skipped")  # what can be measured if all test cases were skipped


class Source(BaseModel):
    """The JUnit files, and what to measure.

    Args:
        glob: the pattern of the files.
        measure: `seconds`, the number of all `tests`, or the number of test cases with an outcome.
        case: the name of one test case as `SUITE.NAME`, or a pattern that matches one test case; None for all. With
            `case`, only `seconds` can be measured.
    """

    model_config = ConfigDict(extra="forbid")

    glob: RelativeGlob
    measure: Literal["seconds", "tests", "passed", "flaky", "failed", "error", "skipped"] = "seconds"
    case: str | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _one_case_has_only_seconds(self) -> Self:
        if self.case is not None and self.measure != "seconds":
            raise ValueError("with `case`, only `measure: seconds` is possible")
        return self

    def read(self, directory: Path) -> float:
        """Return the number.

        Raises:
            ValueError: the files cannot be read, no test case was executed, no test case or several match `case`, or a
                duration is unknown.
        """
        if self.case is not None:
            return self._of_case(directory, self.case)
        report = junit_files.report(directory, self.glob, ())
        if not report.total or (not report.executed and self.measure not in _ALSO_SKIPPED):
            raise ValueError(f"no test case was executed in the files that match {self.glob} ({report})")
        match self.measure:
            case "seconds":
                if report.seconds is None:
                    raise ValueError(self._lacking_seconds(directory))
                return report.seconds
            case "tests":
                return float(report.total)
        return float(report.counts.get(CaseOutcome(self.measure), 0))

    def _lacking_seconds(self, directory: Path) -> str:
        """Return why the sum of the durations is unknown."""
        titles = [case.title for case in junit_files.read(directory, self.glob) if case.lacks_seconds]
        more = f" (and {len(titles) - 1} more)" if len(titles) > 1 else ""
        return f"the test case {titles[0]}{more} has no usable duration"

    def _of_case(self, directory: Path, name: str) -> float:
        cases = list(junit_files.read(directory, self.glob))
        matches = patterns.matching(name, cases, lambda case: (case.title,))
        if len(matches) != 1:
            hint = did_you_mean(name, [case.title for case in (matches or cases)[:_MAX_SUGGESTED]], label="test cases")
            raise ValueError(f"{len(matches)} test cases match `{name}`, but exactly 1 must match: {hint}")
        (only,) = matches
        if only.outcome is CaseOutcome.SKIPPED:
            raise ValueError(f"the test case {only.title} was skipped")
        if only.seconds is None:
            raise ValueError(f"the test case {only.title} has no usable duration")
        return only.seconds
