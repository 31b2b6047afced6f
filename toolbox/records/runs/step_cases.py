"""Reads the test cases of a step for reports and for the store: from the JUnit files, or else from the journal.

The journal has the counts and the first failures; the files have all test cases. Files that are missing, were changed
or contain a secret are not read: then only the failures of the journal are known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Final

from toolbox.ground.model.cases import CaseOutcome, CaseReport, CaseResult
from toolbox.ground.system import redaction
from toolbox.records.runs import junit_files
from toolbox.records.runs.evidence_files import matching
from toolbox.records.runs.layout import RunDirectory
from toolbox.records.runs.run_state import StepState

_WITHOUT: Final = CaseReport("", {})


@dataclass(frozen=True, slots=True)
class StepCases:
    """The test cases of the latest attempt of a step.

    Args:
        counts: the number of test cases with each outcome.
        fail_on: the outcomes that fail the step.
        cases: the test cases, in the order of the files.
        seconds: the sum of the durations of all test cases; None if unknown.
        is_complete: whether `cases` has all test cases.
    """

    counts: Counter[CaseOutcome]
    fail_on: frozenset[CaseOutcome]
    cases: Sequence[CaseResult]
    seconds: float | None
    is_complete: bool

    @property
    def total(self) -> int:
        """The number of test cases."""
        return self.counts.total()

    @property
    def failed(self) -> int:
        """The number of test cases that fail the step."""
        return sum(self.counts[outcome] for outcome in self.fail_on)

    @property
    def failures(self) -> list[CaseResult]:
        """The known test cases that fail the step."""
        return [case for case in self.cases if case.outcome in self.fail_on]

    def __str__(self) -> str:
        """Return the number of test cases with each outcome: `118 passed, 2 failed`."""
        return str(replace(_WITHOUT, counts=self.counts))


def read(root: Path, step: StepState, withheld: Collection[str] = ()) -> StepCases | None:
    """Return the test cases of a step; None if the step has none.

    Args:
        root: the run directory.
        withheld: files with a secret, relative to the root, which are not read.
    """
    if not step.cases:
        return None
    cases: list[CaseResult] = []
    is_complete = True
    for report in step.cases:
        read_cases = _read(root, step, report, withheld)
        is_complete = is_complete and read_cases is not None
        cases += report.failures if read_cases is None else read_cases
    known = _numbered(cases) if len(step.cases) > 1 else cases
    return replace(counted(step), cases=known, is_complete=is_complete)


def counted(step: StepState) -> StepCases:
    """Return what the journal says about the test cases of a step: the counts and the first failures."""
    seconds = [report.seconds for report in step.cases]
    return StepCases(
        sum((Counter(report.counts) for report in step.cases), Counter()),
        frozenset(outcome for report in step.cases for outcome in report.fail_on),
        [case for report in step.cases for case in report.failures],
        None if None in seconds else sum(filter(None, seconds)),
        is_complete=False,
    )


def _read(root: Path, step: StepState, report: CaseReport, withheld: Collection[str]) -> list[CaseResult] | None:
    """Return the test cases of the files; None if a file cannot be read, or has changed since the check read it."""
    if not step.attempts:
        return None
    directory = RunDirectory(root).attempt(step.step, step.attempts[-1].attempt).path
    if ".." in PurePath(step.step, report.glob).parts or PurePath(report.glob).is_absolute():
        return None  # the journal of a run from elsewhere may name files outside the run
    files = matching(directory, report.glob)
    if not all(file.resolve().is_relative_to(root.resolve()) for file in files):
        return None
    if withheld and any(str(file.relative_to(root)) in withheld for file in files):
        return None
    try:
        cases = _masked(junit_files.read(directory, report.glob, is_partial=report.is_partial))
    except junit_files.JUnitFault:
        return None
    counts = Counter(case.outcome for case in cases)
    return cases if counts == Counter(report.counts) else None


def _masked(cases: Iterable[CaseResult]) -> list[CaseResult]:
    mask = redaction.current()
    if not mask.secrets():
        return list(cases)
    return [
        replace(case, suite=mask(case.suite), name=mask(case.name), message=mask(case.message), text=mask(case.text))
        for case in cases
    ]


def _numbered(cases: Sequence[CaseResult]) -> list[CaseResult]:
    """Return the test cases with numbers in the names that occur several times: two patterns may match one file."""
    seen: Counter[tuple[str, str]] = Counter()
    numbered = []
    for case in cases:
        seen[case.suite, case.name] += 1
        repeats = seen[case.suite, case.name]
        numbered.append(case if repeats == 1 else replace(case, name=f"{case.name} #{repeats}"))
    return numbered
