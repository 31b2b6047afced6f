"""Finds the smallest conditions on axes that separate failed cells from passed cells.

Each group of cells with the same failure is compared with the passed cells. A condition consists of a term for each of
one to three axes. A term is a label, all labels but one (`model ≠ small`), or a range of numbers (`batch ≥ 32`). All
terms of a condition on three axes are labels.

A condition is exact if all failed cells meet it and no passed cell does. An exact condition on one axis or with labels
only is always reported. Any other exact condition is reported if its p-value is at most 10 %, and a condition that is
not exact if its p-value is at most 5 %. The p-value is that of Fisher's exact test, multiplied by the number of
conditions that were tried (Bonferroni).
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from toolbox.model.verdicts import UNEXPECTED, Verdict
from toolbox.runs import axis_terms
from toolbox.runs.axis_terms import Term

MOST_AXES: Final = 3
MOST_FINDINGS: Final = 5
COMPARED: Final = UNEXPECTED | {Verdict.PASSED}
"""The verdicts of cells that are compared: a cell with another verdict has not shown whether it works."""
FEWEST_FAILED: Final = 2  # each label of a single failed cell would be a condition for the failure
_MOST_LOG_P_VALUE: Final = math.log(0.05)
_MOST_LOG_P_VALUE_IF_EXACT: Final = math.log(0.1)  # so that 4 failures in a matrix of 12 cells are enough
_NEGLIGIBLE: Final = 1e-12


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


def attribute(cases: Sequence[Case]) -> list[Finding]:
    """Return the conditions that separate failed cells from passed cells.

    If one condition explains all failures, it is the only finding. Otherwise each group of failures with the same
    signature is explained separately, and then the groups without an explanation together. The result is empty if all
    cells failed, if fewer than two cells failed, or if the failures look random. If the same cells meet several
    conditions, the condition with the fewest and earliest axes is returned.
    """
    axes = list(dict.fromkeys(axis for case in cases for axis in case.labels))
    search = _Search(axes, [tuple(map(case.labels.get, axes)) for case in cases if not case.failed])
    groups: dict[str, list[_Row]] = defaultdict(list)
    for case in cases:
        if case.failed:
            groups[case.failure].append(tuple(map(case.labels.get, axes)))
    of_all = search.findings(list(itertools.chain.from_iterable(groups.values())))
    if len(groups) < 2 or (len(of_all) == 1 and not of_all[0].failed_elsewhere):  # noqa: PLR2004
        return of_all
    findings: list[Finding] = []
    unexplained: list[_Row] = []
    for failure, rows in sorted(groups.items(), key=lambda group: -len(group[1])):
        of_group = search.findings(rows, failure)
        findings += of_group
        unexplained += [] if of_group else rows
    findings += search.findings(unexplained) if findings else of_all
    return findings[:MOST_FINDINGS]


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


@dataclass(frozen=True, slots=True)
class _Search:
    """Looks for conditions that separate failed cells from passed cells."""

    axes: Sequence[str]
    passed: Sequence[_Row]

    def findings(self, failed: Sequence[_Row], failure: str = "") -> list[Finding]:
        # Search also without conditions that passed cells meet: two causes together can look like one broad condition.
        covers = (_cover(failed, self.passed, pure=True), _cover(failed, self.passed, pure=False))
        return [self._finding(condition, failed, failure) for condition in min(covers, key=_total_log_p_value)]

    def _finding(self, condition: _Condition, failed: Sequence[_Row], failure: str) -> Finding:
        terms = {self.axes[index]: term for index, term in zip(condition.indices, condition.terms, strict=True)}
        failed_inside = sum(map(condition.holds, failed))
        inside = failed_inside + sum(map(condition.holds, self.passed))
        return Finding(
            {axis: term.label for axis, term in terms.items()},
            failed_inside,
            inside,
            len(failed) - failed_inside,
            len(failed) + len(self.passed) - inside,
            {axis: term.operator for axis, term in terms.items() if term.operator != "="},
            failure,
        )


def _cover(failed: Sequence[_Row], passed: Sequence[_Row], *, pure: bool) -> list[_Condition]:
    """Return conditions that together explain the failed cells.

    Each condition is the best one for the failed cells that no earlier condition explains.

    Args:
        pure: use only conditions that no passed cell meets.
    """
    cover: list[_Condition] = []
    while len(cover) < MOST_FINDINGS:
        best = min(_conditions(failed, passed, pure=pure), key=_preference, default=None)
        if best is None or (best.log_p_value >= 0 and not best.is_fact):
            break
        cover.append(best)
        failed = [row for row in failed if not best.holds(row)]
        passed = [row for row in passed if not best.holds(row)]
    separates = not failed and not any(condition.passed for condition in cover)
    if separates and (_total_log_p_value(cover) <= _MOST_LOG_P_VALUE or (len(cover) == 1 and cover[0].is_fact)):
        return cover
    return list(itertools.takewhile(lambda each: each.log_p_value <= _MOST_LOG_P_VALUE or each.is_fact, cover))


def _preference(condition: _Condition) -> tuple[bool, int, float]:
    """Return a sort key: facts come first, and facts with few axes before other facts; ties are sorted by p-value."""
    return not condition.is_fact, len(condition.indices) if condition.is_fact else 0, condition.log_p_value


# The kinds of conditions, the simplest first: the number of axes, and whether all terms are labels.
_LEVELS: Final = ((1, True), (1, False), (2, True), (2, False), (MOST_AXES, True))
_Counts = Mapping[_Row, int]
_Counted = tuple[tuple[Term, ...], int, int]  # the terms of a condition, and how many failed and passed cells meet it


def _conditions(failed: Sequence[_Row], passed: Sequence[_Row], *, pure: bool) -> Iterator[_Condition]:
    """Yield the conditions under which cells fail more often than on average, the simplest conditions first.

    If the same numbers of failed and passed cells meet several conditions of a level, only the first one is yielded.
    """
    if len(failed) < FEWEST_FAILED or not passed:
        return
    failed_labels, passed_labels = list(zip(*failed, strict=True)), list(zip(*passed, strict=True))
    labels = [[*of_failed, *of_passed] for of_failed, of_passed in zip(failed_labels, passed_labels, strict=True)]
    varying = [index for index, of_axis in enumerate(labels) if len(set(of_axis)) > 1]
    terms = {index: axis_terms.of(labels[index]) for index in varying}
    total, tried = len(failed) + len(passed), Counter[bool]()
    for size, of_labels in _LEVELS:
        by_counts: dict[tuple[int, int], tuple[tuple[int, ...], tuple[Term, ...]]] = {}
        for indices in itertools.combinations(varying, size):
            failures = Counter(zip(*(failed_labels[index] for index in indices), strict=True))
            passes = Counter(zip(*(passed_labels[index] for index in indices), strict=True))
            of_axes = [terms[index] for index in indices]
            level = list(_of_labels(failures, passes) if of_labels else _of_terms(of_axes, failures, passes))
            tried[of_labels] += len(failures.keys() | passes.keys()) if of_labels else len(level)
            for condition_terms, failed_inside, passed_inside in level:
                if failed_inside >= FEWEST_FAILED and not (pure and passed_inside):
                    by_counts.setdefault((failed_inside, passed_inside), (indices, condition_terms))
        tries = tried[True] if of_labels else tried.total()
        for (failed_inside, passed_inside), (indices, condition_terms) in by_counts.items():
            inside = failed_inside + passed_inside
            if failed_inside * total > inside * len(failed):
                log_p_value = _log_tail(total, len(failed), inside, failed_inside) + math.log(tries)
                is_exact = passed_inside == 0 and failed_inside == len(failed)
                is_fact = is_exact and (of_labels or size == 1 or log_p_value <= _MOST_LOG_P_VALUE_IF_EXACT)
                yield _Condition(indices, condition_terms, passed_inside, is_fact, log_p_value)


def _of_labels(failures: _Counts, passes: _Counts) -> Iterator[_Counted]:
    """Yield each combination of labels under which cells fail."""
    for labels, count in failures.items():
        if count >= FEWEST_FAILED and None not in labels:
            terms = tuple(Term(axis_terms.EQUAL, str(label), frozenset([str(label)])) for label in labels)
            yield terms, count, passes.get(labels, 0)


def _of_terms(terms: Sequence[Sequence[Term]], failures: _Counts, passes: _Counts) -> Iterator[_Counted]:
    """Yield each combination of terms of one or two axes in which at least one term is not a single label."""
    first, *second = terms
    for term in first:
        failed, passed = _under(term, failures), _under(term, passes)
        if not second and not term.is_label:
            yield (term,), failed.total(), passed.total()
        for second_term in second[0] if second else ():
            if not (term.is_label and second_term.is_label):
                counts = _under(second_term, failed).total(), _under(second_term, passed).total()
                yield (term, second_term), *counts


def _under(term: Term, counts: _Counts) -> Counter[_Row]:
    """Return the counts of the rows whose first label meets a term, by the remaining labels of the row."""
    remaining: Counter[_Row] = Counter()
    for row, count in counts.items():
        if row[0] in term.labels:
            remaining[row[1:]] += count
    return remaining


def _log_tail(total: int, failed: int, size: int, count: int) -> float:
    """Return the logarithm of the upper tail of the hypergeometric distribution, for a count above its mean.

    The tail is the probability that at least `count` of `size` cells fail if `failed` of `total` cells fail at random.
    """
    first = _log_choose(size, count) + _log_choose(total - size, failed - count) - _log_choose(total, failed)
    term = total_of_terms = 1.0
    for number in range(count, min(size, failed)):
        term *= (size - number) * (failed - number) / ((number + 1) * (total - size - failed + number + 1))
        total_of_terms += term
        if term < _NEGLIGIBLE:
            break
    return first + math.log(total_of_terms)


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _total_log_p_value(conditions: Sequence[_Condition]) -> float:
    return sum(condition.log_p_value for condition in conditions)
