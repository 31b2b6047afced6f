"""Makes the tables of the test cases of cells: counts, failures, the slowest test cases, and all test cases.

The page contains a limited number of test cases. The script shows all test cases of a cell page by page.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from toolbox.ground.model.cases import CaseOutcome, CaseResult
from toolbox.ground.model.foreign_text import clean
from toolbox.records.runs import step_cases
from toolbox.records.runs.run_state import StepState
from toolbox.records.runs.step_cases import StepCases
from toolbox.reports._web_page import Mark

_MAX_ROWS: Final = 20_000  # test cases on a page
_MAX_FAILURES: Final = 50  # failures of a cell
_MAX_SLOWEST: Final = 10
_SHORTEST: Final = 0.1  # seconds; a faster test case is not slow
_FEWEST_FOR_SLOWEST: Final = 20  # with fewer test cases, the table of all test cases is enough
_MAX_TEXT: Final = 400_000  # characters of failures on a page
MARKS: Final[Mapping[CaseOutcome, Mark]] = {
    CaseOutcome.PASSED: Mark("passed", "\u2713", "passed"),
    CaseOutcome.FLAKY: Mark("xpassed", "\u2248", "flaky"),
    CaseOutcome.FAILED: Mark("failed", "\u2717", "failed", is_bad=True),
    CaseOutcome.ERROR: Mark("error", "!", "error", is_bad=True),
    CaseOutcome.SKIPPED: Mark("skipped", "\u2013", "skipped"),
}


@dataclass(frozen=True, slots=True)
class CaseTable:
    """The test cases of a cell.

    Args:
        counts: the mark of each outcome with the number of test cases, failures first.
        seconds: the sum of the durations of all test cases; None if unknown.
        failures: the first failures, each with its mark.
        more_failures: the number of other failures.
        slowest: the slowest test cases, each with its mark.
        rows: all test cases for the script; None if the page has no room for them, or they are not known.
        is_complete: whether all test cases are known.
    """

    counts: Sequence[tuple[Mark, int]]
    seconds: float | None
    failures: Sequence[tuple[Mark, CaseResult]]
    more_failures: int
    slowest: Sequence[tuple[Mark, CaseResult]]
    rows: Mapping[str, Any] | None
    is_complete: bool

    @property
    def total(self) -> int:
        """The number of test cases."""
        return sum(count for _, count in self.counts)


@dataclass(slots=True)
class CaseTables:
    """Makes the tables of one page.

    Args:
        root: the run directory.
        withheld: files with a secret, relative to the root. They are not read.
        rows: how many more test cases the page may have.
        characters: how many more characters of failures the page may have.
    """

    root: Path
    withheld: Collection[str] = ()
    rows: int = _MAX_ROWS
    characters: int = _MAX_TEXT
    by_anchor: dict[str, Mapping[str, Any]] = field(default_factory=dict, init=False)

    def of(self, step: StepState, anchor: str) -> CaseTable | None:
        """Return the table of a cell; None if the cell has no test cases."""
        if not step.cases:
            return None
        if self.rows <= 0:
            counts = step_cases.counted(step)
            more = counts.failed - len(counts.failures)
            shown = self._shown(counts.failures)
            return CaseTable(_counts(counts), counts.seconds, shown, more, (), None, is_complete=True)
        cases = step_cases.read(self.root, step, self.withheld)
        assert cases is not None, "the step has test cases"
        failures = cases.failures[:_MAX_FAILURES]
        rows = _rows(cases.cases) if cases.is_complete and len(cases.cases) <= self.rows else None
        if rows is not None:
            self.by_anchor[anchor] = rows
        self.rows -= len(cases.cases)
        return CaseTable(
            _counts(cases),
            cases.seconds,
            self._shown(failures),
            cases.failed - len(failures),
            _slowest(cases.cases),
            rows,
            cases.is_complete,
        )

    def _shown(self, failures: Sequence[CaseResult]) -> list[tuple[Mark, CaseResult]]:
        """Return failures with their marks, but without their texts if the page has no room for the texts."""
        shown = []
        for case in failures:
            self.characters -= len(case.text)
            whole = (
                case
                if self.characters > 0
                else CaseResult(case.suite, case.name, case.outcome, case.seconds, case.message)
            )
            shown.append((MARKS[case.outcome], whole))
        return shown


def _counts(cases: StepCases) -> list[tuple[Mark, int]]:
    marked = [(MARKS[outcome], count) for outcome, count in cases.counts.items() if count]
    order = list(MARKS.values())
    return sorted(marked, key=lambda item: (not item[0].is_bad, order.index(item[0])))


def _slowest(cases: Sequence[CaseResult]) -> list[tuple[Mark, CaseResult]]:
    if len(cases) < _FEWEST_FOR_SLOWEST:
        return []
    timed = sorted(
        (case for case in cases if (case.seconds or 0.0) >= _SHORTEST), key=lambda case: -(case.seconds or 0.0)
    )
    return [(MARKS[case.outcome], case) for case in timed[:_MAX_SLOWEST]]


def _rows(cases: Sequence[CaseResult]) -> dict[str, Any]:
    """Return the test cases for the script: the names of the suites once, and one short list per test case."""
    suites = {suite: index for index, suite in enumerate(dict.fromkeys(case.suite for case in cases))}
    outcomes = list(MARKS)
    return {
        "suites": [clean(suite) for suite in suites],
        "rows": [[suites[case.suite], clean(case.name), outcomes.index(case.outcome), case.seconds] for case in cases],
    }


def marks() -> list[list[str]]:
    """Return the class, the symbol and the word of each outcome, for the script."""
    return [[mark.key, mark.symbol, mark.word] for mark in MARKS.values()]
