"""The changes since the last run: the cells and test cases that newly fail or newly pass.

`earlier_results` compares a run with the store when the run ends, and `write` freezes the comparison in the run
directory. So a report that is written again later still compares the run with the run before it, and an archived run
keeps its comparison. `read` validates the file, because a run directory may come from another machine.
"""

from __future__ import annotations

import heapq
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Self

from toolbox.model.cases import FAIL_ON, CaseOutcome
from toolbox.model.text import counted
from toolbox.model.verdicts import UNEXPECTED, Verdict
from toolbox.runs.layout import RunDirectory
from toolbox.system import filesystem

MOST_LISTED: Final = 1000  # changes of cells, and changes of test cases; all are counted
_MOST_BYTES: Final = 16 << 20
_GOOD: Final = frozenset({Verdict.PASSED, Verdict.XFAILED})


class Kind(StrEnum):
    """How the result of a cell or of a test case changed.

    OTHER_FAILURE: it failed before and fails now, with another verdict or another cause.
    """

    NEWLY_FAILING = "newly failing"
    NEWLY_PASSING = "newly passing"
    OTHER_FAILURE = "failing for another cause"


@dataclass(frozen=True, slots=True)
class VerdictChange:
    """A change of the result of a cell, or of a test case of a cell.

    Args:
        cell: the id of the cell.
        name: the name of the cell.
        test: the title of the test case; empty for a change of the cell itself.
        before: the verdict, or the outcome of the test case, in the earlier run.
        cause: the cause of the verdict; empty for a test case.
        message: why the test case fails now; empty for a cell, because the journal has its message.
        run: the earlier run.
    """

    kind: Kind
    cell: str
    name: str
    before: str
    after: str
    run: str
    test: str = ""
    before_cause: str = ""
    cause: str = ""
    message: str = ""

    def __str__(self) -> str:
        """Return the earlier and the present result: `passed → failed (product)`."""
        results = ((self.before, self.before_cause), (self.after, self.cause))
        return " → ".join(f"{result} ({cause})" if cause else result for result, cause in results)


@dataclass(frozen=True, slots=True)
class SinceLastRun:
    """A run, compared with the latest earlier result of each of its cells.

    Args:
        run: the latest of the earlier runs.
        started: when this earlier run began.
        has_more_runs: whether some cells were compared with runs that are older than `run`.
        compared: the number of cells that have an earlier result.
        new: the number of cells without an earlier result.
        gone: the number of cells of the earlier run that are no longer in the matrix; None if unknown.
        cells: the changes of cells, at most `MOST_LISTED`. Cells that newly fail are first.
        tests: the changes of test cases, with the same limit and order.
        cell_counts: the number of all changes of cells, by kind.
        test_counts: the number of all changes of test cases, by kind.
    """

    run: str
    started: datetime
    has_more_runs: bool
    compared: int
    new: int
    gone: int | None
    cells: Sequence[VerdictChange]
    tests: Sequence[VerdictChange]
    cell_counts: Mapping[Kind, int]
    test_counts: Mapping[Kind, int]

    @classmethod
    def of(
        cls, cells: Iterable[VerdictChange], tests: Iterable[VerdictChange], run: str, started: datetime, **numbers: Any
    ) -> Self:
        """Return the comparison with these changes, in the order in which reports show them.

        The changes may be very many: only those that are listed are kept in memory.
        """
        of_cells, of_tests = Counter[Kind](), Counter[Kind]()
        return cls(
            run=run,
            started=started,
            cells=heapq.nsmallest(MOST_LISTED, _counting(cells, of_cells), key=_rank),
            tests=heapq.nsmallest(MOST_LISTED, _counting(tests, of_tests), key=_rank),
            cell_counts=of_cells,
            test_counts=of_tests,
            **numbers,
        )

    @classmethod
    def combined(cls, parts: Sequence[SinceLastRun]) -> Self | None:
        """Return the comparison of a run whose cells are those of several runs; None without comparisons."""
        if not parts:
            return None
        latest = max(parts, key=lambda part: part.started)
        of_cells, of_tests = Counter[Kind](), Counter[Kind]()
        for part in parts:
            of_cells.update(part.cell_counts)
            of_tests.update(part.test_counts)
        listed = cls.of(
            itertools.chain.from_iterable(part.cells for part in parts),
            itertools.chain.from_iterable(part.tests for part in parts),
            latest.run,
            latest.started,
            has_more_runs=any(part.has_more_runs or part.run != latest.run for part in parts),
            compared=sum(part.compared for part in parts),
            new=sum(part.new for part in parts),
            gone=None,
        )
        return replace(listed, cell_counts=of_cells, test_counts=of_tests)

    @property
    def has_changes(self) -> bool:
        """Whether the result of a cell or of a test case changed."""
        return any(self.cell_counts.values()) or any(self.test_counts.values())

    @property
    def has_news(self) -> bool:
        """Whether something changed, or a cell is new or gone."""
        return self.has_changes or bool(self.new or self.gone)

    @property
    def earlier(self) -> str:
        """The earlier run with its time: `the run 20261121-011343-x7k2 of 2026-11-21 01:13 UTC`."""
        moment = f"{self.started.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        others = " and earlier runs" if self.has_more_runs else ""
        return f"the run {self.run} of {moment}{others}"

    @property
    def tally(self) -> str:
        """The number of changes of each kind: `2 cells newly failing; 1 test newly passing`."""
        parts = [*_counted(self.cell_counts, "cell"), *_counted(self.test_counts, "test")]
        parts += [f"{counted(self.new, 'cell')} without an earlier result"] if self.new else []
        parts += [f"{counted(self.gone, 'cell')} not in the matrix any more"] if self.gone else []
        return "; ".join(parts) or "no verdict has changed"

    def newly_failing(self) -> set[str]:
        """Return the ids of the cells that newly fail, or that have a test case that newly fails."""
        return {change.cell for change in (*self.cells, *self.tests) if change.kind is Kind.NEWLY_FAILING}

    def as_json(self) -> dict[str, Any]:
        """Return the content of the file."""
        return {
            "run": self.run,
            "started": self.started.isoformat(),
            "has_more_runs": self.has_more_runs,
            "compared": self.compared,
            "new": self.new,
            "gone": self.gone,
            "cell_counts": dict(self.cell_counts),
            "test_counts": dict(self.test_counts),
            "cells": [_change_json(change) for change in self.cells],
            "tests": [_change_json(change) for change in self.tests],
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Return the comparison in the content of a file.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: the content is not a comparison.
        """
        started = datetime.fromisoformat(content["started"])
        gone = content["gone"]
        return cls(
            run=str(content["run"]),
            started=started if started.tzinfo is not None else started.replace(tzinfo=UTC),
            has_more_runs=bool(content["has_more_runs"]),
            compared=int(content["compared"]),
            new=int(content["new"]),
            gone=int(gone) if gone is not None else None,
            cells=[_change(each) for each in content["cells"][:MOST_LISTED]],
            tests=[_change(each) for each in content["tests"][:MOST_LISTED]],
            cell_counts={Kind(kind): int(count) for kind, count in content["cell_counts"].items()},
            test_counts={Kind(kind): int(count) for kind, count in content["test_counts"].items()},
        )


def change_of_cell(before: tuple[str, str | None], after: tuple[str, str | None]) -> Kind | None:
    """Return how the verdict of a cell changed; None if it did not change.

    A cell that fails as expected (`xfailed`) does not fail the run. But it newly passes only if its verdict becomes
    `passed`.

    Args:
        before: the verdict and the cause in the earlier run.
        after: the verdict and the cause now.
    """
    old, new = Verdict(before[0]), Verdict(after[0])
    if new in UNEXPECTED and old in _GOOD:
        return Kind.NEWLY_FAILING
    if new is Verdict.PASSED and old is not Verdict.PASSED and old in UNEXPECTED | _GOOD:
        return Kind.NEWLY_PASSING
    return Kind.OTHER_FAILURE if new in UNEXPECTED and old in UNEXPECTED and before != after else None


def change_of_test(before: str, after: str) -> Kind | None:
    """Return how the outcome of a test case changed; None if it did not change.

    A test case that was skipped before and fails now newly fails. A test case that is skipped now has not passed.
    """
    if after in FAIL_ON:
        return None if before in FAIL_ON else Kind.NEWLY_FAILING
    return Kind.NEWLY_PASSING if before in FAIL_ON and after != CaseOutcome.SKIPPED else None


def write(directory: Path, comparison: SinceLastRun | None) -> None:
    """Write a comparison into the directory of its run. If there is no comparison, remove an earlier file."""
    file = RunDirectory(directory).since_last_run
    if comparison is None:
        file.unlink(missing_ok=True)
        return
    filesystem.write_derived(file, lambda: json.dumps(comparison.as_json(), indent=1, ensure_ascii=False) + "\n")


def read(directory: Path) -> SinceLastRun | None:
    """Return the comparison of a run; None if the file is missing or damaged."""
    file = RunDirectory(directory).since_last_run
    try:
        if filesystem.size(file) > _MOST_BYTES:
            return None
        return SinceLastRun.from_json(filesystem.read_json(file))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def _rank(change: VerdictChange) -> tuple[int, str, str]:
    return list(Kind).index(change.kind), change.name, change.test


def _counting(changes: Iterable[VerdictChange], counts: Counter[Kind]) -> Iterator[VerdictChange]:
    for change in changes:
        counts[change.kind] += 1
        yield change


def _counted(counts: Mapping[Kind, int], noun: str) -> list[str]:
    return [f"{counted(counts[kind], noun)} {kind}" for kind in Kind if counts.get(kind)]


def _change_json(change: VerdictChange) -> dict[str, str]:
    return {name: str(getattr(change, name)) for name in VerdictChange.__dataclass_fields__}


def _change(content: Mapping[str, Any]) -> VerdictChange:
    texts = {name: str(content[name]) for name in VerdictChange.__dataclass_fields__ if name != "kind"}
    return VerdictChange(kind=Kind(content["kind"]), **texts)
