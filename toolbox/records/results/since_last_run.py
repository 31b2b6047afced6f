"""The changes since the last run: what newly fails, newly passes, fails as before or is flaky, and metrics that moved.

`run_comparison` compares a run with the store when the run ends, and `write` freezes the comparison in the run
directory. So a report that is written again later still compares the run with the run before it, and an archived run
keeps its comparison. `read` validates the file, because a run directory may come from another machine.
"""

from __future__ import annotations

import heapq
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Self

from toolbox.ground.model.cases import FAIL_ON, CaseOutcome
from toolbox.ground.model.text import counted, truncate
from toolbox.ground.model.verdicts import UNEXPECTED, Verdict
from toolbox.ground.system import filesystem
from toolbox.records.results.flaky_and_moved import FlakyCell, LostMetric, MetricChange
from toolbox.records.runs.layout import RunDirectory

MAX_LISTED: Final = 1000  # changes of cells, and changes of test cases; all are counted
_MAX_BYTES: Final = 16 << 20
_LONGEST_REASON: Final = 500
_GOOD: Final = frozenset({Verdict.PASSED, Verdict.XFAILED})
_METRIC_WORDS: Final = ("worse", "changed", "better")


class Kind(StrEnum):
    """How the result of a cell or of a test case changed.

    OTHER_FAILURE: it failed before and fails now, with another verdict or another cause.
    KNOWN_FAILURE: it fails as before. This is not a change.
    """

    NEWLY_FAILING = "newly failing"
    NEWLY_PASSING = "newly passing"
    OTHER_FAILURE = "failing for another cause"
    KNOWN_FAILURE = "failing as before"


CHANGES: Final = (Kind.NEWLY_FAILING, Kind.NEWLY_PASSING, Kind.OTHER_FAILURE)
"""The kinds that are changes, in the order of reports."""


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
        cells: the changes of cells, at most `MAX_LISTED`. Cells that newly fail are first.
        tests: the changes of test cases, with the same limit and order.
        cell_counts: the number of all changes of cells, by kind.
        test_counts: the number of all changes of test cases, by kind.
        known: the cells and test cases that fail as before, at most `MAX_LISTED` of each.
        flaky: the cells whose results may be random, at most `MAX_LISTED`.
        metrics: the metrics that moved, those that became worse first; at most `MAX_LISTED`.
        flaky_count: the number of all flaky cells.
        metric_counts: the number of all metrics that moved, by how they moved.
        lost: the metrics of the baseline that are unknown in cells that passed, at most `MAX_LISTED`.
        lost_count: the number of all such metrics.
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
    known: Sequence[VerdictChange] = ()
    flaky: Sequence[FlakyCell] = ()
    metrics: Sequence[MetricChange] = ()
    flaky_count: int = 0
    metric_counts: Mapping[str, int] = field(default_factory=dict)
    lost: Sequence[LostMetric] = ()
    lost_count: int = 0

    @classmethod
    def of(
        cls, cells: Iterable[VerdictChange], tests: Iterable[VerdictChange], run: str, started: datetime, **numbers: Any
    ) -> Self:
        """Return the comparison with these changes, in the order in which reports show them.

        The changes may be very many: only those that are listed are kept in memory.
        """
        of_cells, of_tests = Counter[Kind](), Counter[Kind]()
        some_cells = heapq.nsmallest(MAX_LISTED, _counting(cells, of_cells), key=_rank)
        some_tests = heapq.nsmallest(MAX_LISTED, _counting(tests, of_tests), key=_rank)
        return cls(
            run=run,
            started=started,
            cells=[change for change in some_cells if change.kind is not Kind.KNOWN_FAILURE],
            tests=[change for change in some_tests if change.kind is not Kind.KNOWN_FAILURE],
            cell_counts=of_cells,
            test_counts=of_tests,
            known=tuple(change for change in (*some_cells, *some_tests) if change.kind is Kind.KNOWN_FAILURE),
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
        known = tuple(change for part in parts for change in part.known)[: 2 * MAX_LISTED]
        flaky = [cell for part in parts for cell in part.flaky]
        metrics = [change for part in parts for change in part.metrics]
        lost = [metric for part in parts for metric in part.lost]
        combined = replace(listed, cell_counts=of_cells, test_counts=of_tests, known=known)
        return combined.with_findings(flaky, metrics, lost)

    def with_findings(
        self, flaky: Sequence[FlakyCell], metrics: Sequence[MetricChange], lost: Sequence[LostMetric] = ()
    ) -> Self:
        """Return the comparison with the flaky cells, the metrics that moved, and the metrics that are lost."""
        return replace(
            self,
            flaky=tuple(flaky[:MAX_LISTED]),
            metrics=tuple(metrics[:MAX_LISTED]),
            flaky_count=len(flaky),
            metric_counts=Counter(change.word for change in metrics),
            lost=tuple(lost[:MAX_LISTED]),
            lost_count=len(lost),
        )

    @property
    def has_changes(self) -> bool:
        """Whether the result of a cell or of a test case changed."""
        return any(counts.get(kind) for kind in CHANGES for counts in (self.cell_counts, self.test_counts))

    @property
    def has_news(self) -> bool:
        """Whether something changed, or a cell is new or gone."""
        return self.has_changes or bool(self.new or self.gone)

    @property
    def is_notable(self) -> bool:
        """Whether there is news, or a cell is flaky, or a metric moved or is lost."""
        return self.has_news or bool(self.flaky_count or self.lost_count or any(self.metric_counts.values()))

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

    @property
    def remarks(self) -> str:
        """What else a reader must know to judge the failures: `3 cells failing as before; 1 flaky cell`."""
        known = ((self.cell_counts, "cell"), (self.test_counts, "test"))
        parts = [text for counts, noun in known for text in _counted(counts, noun, [Kind.KNOWN_FAILURE])]
        parts += [counted(self.flaky_count, "flaky cell")] if self.flaky_count else []
        moved = [(self.metric_counts.get(word, 0), word) for word in _METRIC_WORDS]
        parts += [f"{counted(count, 'metric')} {word}" for count, word in moved if count]
        parts += [f"{counted(self.lost_count, 'metric')} of the baseline unknown"] if self.lost_count else []
        return "; ".join(parts)

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
            "known": [_change_json(change) for change in self.known],
            "flaky": [asdict(cell) for cell in self.flaky],
            "metrics": [change.as_json() for change in self.metrics],
            "flaky_count": self.flaky_count,
            "metric_counts": dict(self.metric_counts),
            "lost": [asdict(metric) for metric in self.lost],
            "lost_count": self.lost_count,
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
            cells=[_change(each) for each in content["cells"][:MAX_LISTED]],
            tests=[_change(each) for each in content["tests"][:MAX_LISTED]],
            cell_counts={Kind(kind): int(count) for kind, count in content["cell_counts"].items()},
            test_counts={Kind(kind): int(count) for kind, count in content["test_counts"].items()},
            known=tuple(_change(each) for each in content["known"][: 2 * MAX_LISTED]),
            flaky=tuple(FlakyCell.from_json(each) for each in content["flaky"][:MAX_LISTED]),
            metrics=tuple(MetricChange.from_json(each) for each in content["metrics"][:MAX_LISTED]),
            flaky_count=int(content["flaky_count"]),
            metric_counts={str(word): int(count) for word, count in content["metric_counts"].items()},
            lost=tuple(LostMetric.from_json(each) for each in content["lost"][:MAX_LISTED]),
            lost_count=int(content["lost_count"]),
        )


@dataclass(frozen=True, slots=True)
class NotCompared:
    """A run that could not be compared with the baseline.

    Args:
        reason: why, as a part of a sentence: `the baseline has no earlier run of training`.
    """

    reason: str

    def __str__(self) -> str:
        return f"not compared with the baseline: {self.reason}"


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


def is_known_failure(before: tuple[str, str | None], after: tuple[str, str | None]) -> bool:
    """Return whether a cell fails with the same verdict and the same cause as before."""
    return before == after and Verdict(after[0]) in UNEXPECTED


def change_of_test(before: str, after: str) -> Kind | None:
    """Return how the outcome of a test case changed; None if it did not change.

    A test case that was skipped before and fails now newly fails. A test case that is skipped now has not passed.
    """
    if after in FAIL_ON:
        return None if before in FAIL_ON else Kind.NEWLY_FAILING
    return Kind.NEWLY_PASSING if before in FAIL_ON and after != CaseOutcome.SKIPPED else None


def write(directory: Path, comparison: SinceLastRun | NotCompared | None) -> None:
    """Write a comparison into the directory of its run. If there is no comparison, remove an earlier file."""
    file = RunDirectory(directory).since_last_run
    if comparison is None:
        file.unlink(missing_ok=True)
        return
    content = {"reason": comparison.reason} if isinstance(comparison, NotCompared) else comparison.as_json()
    filesystem.write_derived(file, lambda: json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def read(directory: Path) -> SinceLastRun | None:
    """Return the comparison of a run; None if there is none, or if the file is missing or damaged."""
    found = find(directory)
    return found if isinstance(found, SinceLastRun) else None


def find(directory: Path) -> SinceLastRun | NotCompared | None:
    """Return the comparison of a run, or why there is none; None if the file is missing or damaged."""
    file = RunDirectory(directory).since_last_run
    try:
        if filesystem.size(file) > _MAX_BYTES:
            return None
        content = filesystem.read_json(file)
        if "reason" in content:
            return NotCompared(truncate(str(content["reason"]), _LONGEST_REASON))
        return SinceLastRun.from_json(content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def _rank(change: VerdictChange) -> tuple[int, str, str]:
    return list(Kind).index(change.kind), change.name, change.test


def _counting(changes: Iterable[VerdictChange], counts: Counter[Kind]) -> Iterator[VerdictChange]:
    for change in changes:
        counts[change.kind] += 1
        yield change


def _counted(counts: Mapping[Kind, int], noun: str, kinds: Iterable[Kind] = CHANGES) -> list[str]:
    return [f"{counted(counts[kind], noun)} {kind}" for kind in kinds if counts.get(kind)]


def _change_json(change: VerdictChange) -> dict[str, str]:
    return {name: str(getattr(change, name)) for name in VerdictChange.__dataclass_fields__}


def _change(content: Mapping[str, Any]) -> VerdictChange:
    texts = {name: str(content[name]) for name in VerdictChange.__dataclass_fields__ if name != "kind"}
    return VerdictChange(kind=Kind(content["kind"]), **texts)
