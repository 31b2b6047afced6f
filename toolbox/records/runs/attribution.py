"""Finds the smallest conditions on axes that separate failed cells from passed cells.

Each group of cells with the same failure is compared with the passed cells. A condition consists of a term for each of
one to three axes. A term is a label, all labels but one (`model ≠ small`), or a range of numbers (`batch ≥ 32`). All
terms of a condition on three axes are labels.

A condition is exact if all failed cells meet it and no passed cell does. An exact condition on one axis or with labels
only is always reported. Any other exact condition is reported if its p-value is at most 10 %, and a condition that is
not exact if its p-value is at most 5 %. The p-value is that of Fisher's exact test, multiplied by the number of
conditions that were tried (Bonferroni).

Time and memory are about proportional to the number of cells. Therefore, only the largest groups are explained
separately, and the number of conditions on two axes with a complement or a range is limited. A matrix with a cell for
each combination of labels does not reach this limit.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from toolbox.ground.model.verdicts import UNEXPECTED, Verdict
from toolbox.records.runs import axis_terms
from toolbox.records.runs.axis_terms import Term

MAX_AXES: Final = 3
MAX_FINDINGS: Final = 5
COMPARED: Final = UNEXPECTED | {Verdict.PASSED}
"""The verdicts of cells that are compared: a cell with another verdict has not shown whether it works."""
FEWEST_FAILED: Final = 2  # each label of a single failed cell would be a condition for the failure
_MAX_LOG_P_VALUE: Final = math.log(0.05)
_MAX_LOG_P_VALUE_IF_EXACT: Final = math.log(0.1)  # so that 4 failures in a matrix of 12 cells are enough
_NEGLIGIBLE: Final = 1e-12
_MAX_GROUPS: Final = 20  # that are explained separately
# An axis has at most four terms per label: two axes with a cell for each pair of labels stay within this limit.
_MAX_PAIRS_PER_CELL: Final = 16
_MAX_PAIRS: Final = 160_000  # of terms on two axes, in a small matrix
_REPEATED: Final = 8  # counts with so many cells for each entry are kept for further searches


@dataclass(frozen=True, slots=True)
class Case:
    """A cell that has passed or failed.

    Args:
        labels: the label of each setting of the cell, by axis.
        failure: the signature of the failure, by which failed cells are grouped; ignored if the cell passed.
    """

    labels: Mapping[str, str]
    failed: bool
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """A condition under which cells fail. Failed cells with a signature other than `failure` are not counted.

    Args:
        condition: the label of each term, by axis. A cell meets the condition if it meets all terms.
        failed: the number of failed cells that meet the condition.
        cells: the number of cells that meet the condition.
        failed_elsewhere: the number of failed cells that do not meet the condition.
        cells_elsewhere: the number of cells that do not meet the condition.
        operators: the operator of each term, `≠`, `≥` or `≤`, by axis; an axis that is missing has the operator `=`.
        failure: the signature of the failures; empty if failures with all signatures were compared together.
    """

    condition: Mapping[str, str]
    failed: int
    cells: int
    failed_elsewhere: int
    cells_elsewhere: int
    operators: Mapping[str, str] = field(default_factory=dict)
    failure: str = ""

    def __str__(self) -> str:
        terms = (axis_terms.text(axis, self.operators.get(axis, "="), label) for axis, label in self.condition.items())
        counts = f"{self.failed} of {self.cells} failed; elsewhere {self.failed_elsewhere} of {self.cells_elsewhere}"
        signature = f" ({self.failure})" if self.failure else ""
        return f"{' and '.join(terms)}: {counts}{signature}"


_Row = tuple[str | None, ...]
_Counts = Mapping[_Row, int]


def attribute(cases: Sequence[Case]) -> list[Finding]:
    """Return the conditions that separate failed cells from passed cells.

    If one condition explains all failures, it is the only finding. Otherwise each group of failures with the same
    signature is explained separately, and then the groups without an explanation together. The result is empty if all
    cells failed, if fewer than two cells failed, or if the failures look random. If the same cells meet several
    conditions, the condition with the fewest and earliest axes is returned.
    """
    axes = list(dict.fromkeys(axis for case in cases for axis in case.labels))
    passed = [tuple(map(case.labels.get, axes)) for case in cases if not case.failed]
    search = _Search(axes, _Passed(passed), max(_MAX_PAIRS, _MAX_PAIRS_PER_CELL * len(cases)))
    groups: dict[str, list[_Row]] = defaultdict(list)
    for case in cases:
        if case.failed:
            groups[case.failure].append(tuple(map(case.labels.get, axes)))
    of_all = search.findings(list(itertools.chain.from_iterable(groups.values())))
    if len(groups) < 2 or (len(of_all) == 1 and not of_all[0].failed_elsewhere):  # noqa: PLR2004
        return of_all
    findings: list[Finding] = []
    unexplained: list[_Row] = []
    for number, (failure, rows) in enumerate(sorted(groups.items(), key=lambda group: -len(group[1]))):
        is_searched = number < _MAX_GROUPS and len(findings) < MAX_FINDINGS
        of_group = search.findings(rows, failure) if is_searched else []
        findings += of_group
        unexplained += [] if of_group else rows
    if len(findings) < MAX_FINDINGS:
        findings += search.findings(unexplained) if findings else of_all
    return findings[:MAX_FINDINGS]


@dataclass(frozen=True, slots=True)
class _Condition:
    """Terms for one to three axes, and how well they separate failed cells from passed cells.

    Args:
        indices: the index of the axis of each term.
        passed: the number of passed cells that meet the condition.
        is_fact: whether the condition is exact, and has one axis, only labels, or a p-value of at most 10 %.
        log_p_value: the logarithm of the p-value, which is multiplied by the number of conditions that were tried.
    """

    indices: tuple[int, ...]
    terms: tuple[Term, ...]
    passed: int
    is_fact: bool
    log_p_value: float

    def holds(self, row: _Row) -> bool:
        return all(row[index] in term.labels for index, term in zip(self.indices, self.terms, strict=True))


class _Passed:
    """Passed cells, and the number of them with each combination of labels, which several searches use."""

    def __init__(self, rows: Sequence[_Row], source: _Passed | None = None, removed: Sequence[_Row] = ()) -> None:
        """Create passed cells.

        Args:
            source: passed cells that contain these cells and the removed cells; None if there are no such cells.
        """
        self.rows = rows
        self.columns = list(zip(*rows, strict=True))
        self._source = source
        self._removed = list(zip(*removed, strict=True))
        self._counts: dict[tuple[int, ...], _Counts] = {}

    def counts(self, indices: tuple[int, ...]) -> _Counts:
        """Return the number of cells with each combination of labels of some axes."""
        if indices in self._counts:
            return self._counts[indices]
        counts = self._counted(indices)
        if len(counts) * _REPEATED <= len(self.rows):
            self._counts[indices] = counts
        return counts

    def without(self, condition: _Condition) -> _Passed:
        """Return the cells that do not meet a condition."""
        rows: dict[bool, list[_Row]] = {True: [], False: []}
        for row in self.rows:
            rows[condition.holds(row)].append(row)
        return _Passed(rows[False], self, rows[True]) if rows[True] else self

    def _counted(self, indices: tuple[int, ...]) -> _Counts:
        source = self._source and self._source._counts.get(indices)  # noqa: SLF001
        if not source:
            return _count(self.columns, indices)
        rest = Counter(source)
        rest.subtract(_count(self._removed, indices))
        return +rest


@dataclass(frozen=True, slots=True)
class _Search:
    """Looks for conditions that separate failed cells from passed cells.

    Args:
        most_pairs: the largest number of pairs of terms on two axes that are tried.
    """

    axes: Sequence[str]
    passed: _Passed
    most_pairs: int

    def findings(self, failed: Sequence[_Row], failure: str = "") -> list[Finding]:
        broad = self._cover(failed, pure=False)
        # Search also without conditions that passed cells meet: two causes together can look like one broad condition.
        narrow = self._cover(failed, pure=True) if any(condition.passed for condition in broad) else broad
        reported = [_reported(cover, failed) for cover in (narrow, broad)]
        return [self._finding(condition, failed, failure) for condition in min(reported, key=_total_log_p_value)]

    def _cover(self, failed: Sequence[_Row], *, pure: bool) -> list[_Condition]:
        """Return conditions that together explain the failed cells.

        Each condition is the best one for the failed cells that no earlier condition explains.

        Args:
            pure: use only conditions that no passed cell meets.
        """
        cover: list[_Condition] = []
        passed = self.passed
        while len(cover) < MAX_FINDINGS:
            best = _best(failed, passed, pure=pure, most_pairs=self.most_pairs)
            if best is None:
                break
            cover.append(best)
            if not _is_reliable(best) and any(condition.passed for condition in cover):
                break  # the conditions from here on are not reported
            failed = [row for row in failed if not best.holds(row)]
            passed = passed.without(best)
        return cover

    def _finding(self, condition: _Condition, failed: Sequence[_Row], failure: str) -> Finding:
        terms = {self.axes[index]: term for index, term in zip(condition.indices, condition.terms, strict=True)}
        failed_inside = sum(map(condition.holds, failed))
        inside = failed_inside + sum(map(condition.holds, self.passed.rows))
        return Finding(
            {axis: term.label for axis, term in terms.items()},
            failed_inside,
            inside,
            len(failed) - failed_inside,
            len(failed) + len(self.passed.rows) - inside,
            {axis: term.operator for axis, term in terms.items() if term.operator != "="},
            failure,
        )


def _reported(cover: Sequence[_Condition], failed: Sequence[_Row]) -> list[_Condition]:
    """Return the conditions of a cover that are facts or significant; all if they are significant only together."""
    is_pure = not any(condition.passed for condition in cover)
    separates = is_pure and all(any(condition.holds(row) for condition in cover) for row in failed)
    if separates and (_total_log_p_value(cover) <= _MAX_LOG_P_VALUE or (len(cover) == 1 and cover[0].is_fact)):
        return list(cover)
    return list(itertools.takewhile(_is_reliable, cover))


def _is_reliable(condition: _Condition) -> bool:
    """Return whether a condition is a fact or significant."""
    return condition.is_fact or condition.log_p_value <= _MAX_LOG_P_VALUE


# The kinds of conditions, the simplest first: the number of axes, and whether all terms are labels.
_LEVELS: Final = ((1, True), (1, False), (2, True), (2, False), (MAX_AXES, True))


def _best(failed: Sequence[_Row], passed: _Passed, *, pure: bool, most_pairs: int) -> _Condition | None:
    """Return the best condition under which cells fail more often than on average.

    The simplest fact is the best condition. If there is no fact, the condition with the smallest p-value is the best
    one, and the simplest one of equals. Returns None if no condition has a p-value below 1 either.
    """
    if len(failed) < FEWEST_FAILED or not passed.rows:
        return None
    trial = _Trial(failed, passed)
    total, tried = len(failed) + len(passed.rows), Counter[bool]()
    best: _Condition | None = None
    for size, of_labels in _LEVELS:
        level = _Level(0 if pure else len(passed.rows))
        tried[of_labels] += trial.of_labels(size, level) if of_labels else trial.of_terms(size, level, most_pairs)
        log_tries = math.log(max(1, tried[True] if of_labels else tried.total()))
        for found in level.candidates():
            if found.failed * total <= (found.failed + found.passed) * len(failed):
                continue
            is_exact = found.passed == 0 and found.failed == len(failed)
            limit = math.inf if is_exact else best.log_p_value if best else 0.0
            log_p_value = _log_p_value(total, len(failed), found.failed + found.passed, found.failed, log_tries, limit)
            is_fact = is_exact and (of_labels or size == 1 or log_p_value <= _MAX_LOG_P_VALUE_IF_EXACT)
            if is_fact or log_p_value < (best.log_p_value if best else 0.0):
                best = _Condition(found.indices, trial.terms(found), found.passed, is_fact, log_p_value)
        if best and best.is_fact:
            break
    return best


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A condition that may be the best one.

    Args:
        indices: the index of the axis of each term.
        numbers: the number of each term among the terms of its axis.
        failed: the number of failed cells that meet the condition.
        passed: the number of passed cells that meet the condition.
    """

    indices: tuple[int, ...]
    numbers: tuple[int, ...]
    failed: int
    passed: int


class _Level:
    """The conditions of one kind: for each number of passed cells, the first condition with the most failed cells."""

    def __init__(self, most_passed: int) -> None:
        """Create a level without conditions.

        Args:
            most_passed: the largest number of passed cells that may meet a condition.
        """
        self._most_passed = most_passed
        self._failed = [FEWEST_FAILED - 1] * (most_passed + 1)
        self._found: dict[int, tuple[tuple[int, ...], int, tuple[int, ...]]] = {}

    def add(self, condition: tuple[tuple[int, ...], int, tuple[int, ...]], failed: int, passed: int) -> None:
        """Add a condition.

        Args:
            condition: the index of the axis of each term, the place of the condition among those on these axes, and the
                number of each term.
        """
        if passed <= self._most_passed and failed > self._failed[passed]:
            self._failed[passed] = failed
            self._found[passed] = condition

    def add_terms(self, indices: tuple[int, ...], first: int, failed: list[int], passed: list[int], begin: int) -> None:
        """Add the conditions that consist of one term of the first of two axes and a term of the second axis.

        Args:
            first: the number of the term of the first axis.
            failed: the number of failed cells, by the number of the term of the second axis.
            begin: the number of the first term of the second axis.
        """
        most, most_passed = self._failed, self._most_passed
        for number, count, passes in zip(range(begin, len(failed)), failed[begin:], passed[begin:], strict=True):
            if passes <= most_passed and count > most[passes]:  # not a call of `add`, which would need most of the time
                most[passes] = count
                self._found[passes] = indices, first, (first, number)

    def candidates(self) -> list[_Candidate]:
        """Return the conditions, without those that no fewer passed and no more failed cells meet than another one."""
        most = 0
        useful = []
        for passed in sorted(self._found):
            if self._failed[passed] > most:
                most = self._failed[passed]
                useful.append(passed)
        return [
            _Candidate(self._found[passed][0], self._found[passed][2], self._failed[passed], passed)
            for passed in sorted(useful, key=self._found.__getitem__)
        ]


class _Trial:
    """Counts how many failed and passed cells meet the conditions of each kind."""

    def __init__(self, failed: Sequence[_Row], passed: _Passed) -> None:
        """Find the terms of each axis with more than one label. There is at least one cell of each kind."""
        self._failed = list(zip(*failed, strict=True))
        self._passed = passed
        self._cells = len(failed) + len(passed.rows)
        columns = [[*pair[0], *pair[1]] for pair in zip(self._failed, passed.columns, strict=True)]
        self._axes = {index: axis_terms.of(labels) for index, labels in enumerate(columns) if len(set(labels)) > 1}
        self._numbers = {
            index: {label: number for number, label in enumerate(axis.labels)} for index, axis in self._axes.items()
        }

    def terms(self, candidate: _Candidate) -> tuple[Term, ...]:
        """Return the terms of a condition."""
        pairs = zip(candidate.indices, candidate.numbers, strict=True)
        return tuple(self._axes[index].term(number) for index, number in pairs)

    def of_labels(self, size: int, level: _Level) -> int:
        """Add each combination of labels of `size` axes under which cells fail, and return how many were tried."""
        tried = 0
        for indices in itertools.combinations(self._axes, size):
            if any(len(self._axes[index].labels) == self._cells for index in indices):
                tried += self._cells  # no two cells have the same labels
                continue
            failures, passes = _count(self._failed, indices), self._passed.counts(indices)
            tried += len(passes) + sum(labels not in passes for labels in failures)
            for place, (labels, count) in enumerate(failures.items()):
                if count >= FEWEST_FAILED and None not in labels:
                    numbers = tuple(
                        self._numbers[index][str(label)] for index, label in zip(indices, labels, strict=True)
                    )
                    level.add((indices, place, numbers), count, passes.get(labels, 0))
        return tried

    def of_terms(self, size: int, level: _Level, most_pairs: int) -> int:
        """Add the conditions on one or two axes with a term that is not a label, and return how many were tried."""
        return self._of_pairs(level, most_pairs) if size > 1 else self._of_single_terms(level)

    def _of_single_terms(self, level: _Level) -> int:
        tried = 0
        for index, axis in self._axes.items():
            failed, passed = (axis.counts(self._by_label(index, counts)) for counts in self._both((index,)))
            for number in range(len(axis.labels), len(axis)):
                level.add(((index,), number, (number,)), failed[number], passed[number])
            tried += len(axis) - len(axis.labels)
        return tried

    def _of_pairs(self, level: _Level, most_pairs: int) -> int:
        tried = pairs = 0
        for indices in itertools.combinations(self._axes, 2):
            first, second = (self._axes[index] for index in indices)
            if pairs + len(first) * len(second) > most_pairs:
                continue
            pairs += len(first) * len(second)
            tried += len(first) * len(second) - len(first.labels) * len(second.labels)
            of_failed, of_passed = (self._by_term(indices, counts) for counts in self._both(indices))
            for number, (failed, passed) in enumerate(zip(of_failed, of_passed, strict=True)):
                if sum(failed) >= FEWEST_FAILED:
                    begin = len(second.labels) if number < len(first.labels) else 0  # two labels are another level
                    level.add_terms(indices, number, second.counts(failed), second.counts(passed), begin)
        return tried

    def _both(self, indices: tuple[int, ...]) -> tuple[_Counts, _Counts]:
        """Return the number of failed and of passed cells with each combination of labels of some axes."""
        return _count(self._failed, indices), self._passed.counts(indices)

    def _by_label(self, index: int, counts: _Counts) -> list[int]:
        """Return counts of cells by the number of the label of an axis."""
        return [counts.get((label,), 0) for label in self._axes[index].labels]

    def _by_term(self, indices: tuple[int, ...], counts: _Counts) -> Iterator[Sequence[int]]:
        """Yield, for each term of the first axis, the counts of cells by the number of the label of the second axis."""
        first, second = (self._numbers[index] for index in indices)
        by_label = [[0] * len(first) for _ in second]
        for (label, other), count in counts.items():
            if label is not None and other is not None:
                by_label[second[other]][first[label]] = count
        return zip(*map(self._axes[indices[0]].counts, by_label), strict=True)


def _count(columns: Sequence[Sequence[str | None]], indices: tuple[int, ...]) -> Counter[_Row]:
    """Return the number of cells with each combination of labels of some axes."""
    return Counter(zip(*(columns[index] for index in indices), strict=True))


def _log_p_value(total: int, failed: int, size: int, count: int, log_tries: float, limit: float) -> float:
    """Return the logarithm of the p-value of a condition, multiplied by the number of conditions that were tried.

    The p-value is the upper tail of the hypergeometric distribution, for a count above its mean: the probability that
    at least `count` of `size` cells fail if `failed` of `total` cells fail at random.

    Args:
        limit: if the result is at least as large, a lower bound of it is returned, which is at least `limit`, too.
    """
    first = _log_choose(size, count) + _log_choose(total - size, failed - count) - _log_choose(total, failed)
    if first + log_tries >= limit:
        return first + log_tries
    term = total_of_terms = 1.0
    for number in range(count, min(size, failed)):
        term *= (size - number) * (failed - number) / ((number + 1) * (total - size - failed + number + 1))
        total_of_terms += term
        if term < _NEGLIGIBLE:
            break
    return first + math.log(total_of_terms) + log_tries


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _total_log_p_value(conditions: Sequence[_Condition]) -> float:
    return sum(condition.log_p_value for condition in conditions)
