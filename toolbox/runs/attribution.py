"""Finds the smallest conditions on axes that separate failed cells from passed cells.

Each group of cells with the same failure is compared with the passed cells. A condition consists of a term for each of
one to three axes. A term is a label, all labels but one (`model ≠ small`), or a range of numbers (`batch ≥ 32`); a
condition on three axes consists of labels.

A condition is exact if all failed cells meet it and no passed cell does. An exact condition on one axis or with labels
only is always reported. Other exact conditions are reported if their chance is at most 10 %, and conditions that are
not exact if their chance is at most 5 %. The chance of a condition is the p-value of Fisher's exact test, multiplied by
the number of conditions that were tried (Bonferroni).
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
FEWEST_FAILED: Final = 2  # every label of a single failed cell would be a condition
_MOST_CHANCE: Final = math.log(0.05)
_MOST_CHANCE_IF_EXACT: Final = math.log(0.1)  # higher, so that 4 failures in a matrix of 12 cells are enough
_NEGLIGIBLE: Final = 1e-12


@dataclass(frozen=True, slots=True)
class Case:
    """A cell that has passed or failed.

    Args:
        labels: the label of each setting of the cell, by axis.
        failure: the signature of the failure (see `failures.signature`). Failed cells are grouped by their signatures.
    """

    labels: Mapping[str, str]
    failed: bool
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """A condition under which cells fail. Cells with a signature other than `failure` are not counted.

    Args:
        condition: the labels of the terms, by axis. A cell meets the condition if it meets all terms.
        failed: the number of failed cells that meet the condition.
        of: the number of cells that meet the condition.
        failed_elsewhere: the number of failed cells that do not meet the condition.
        elsewhere: the number of cells that do not meet the condition.
        operators: the operator of each term, `≠`, `≥` or `≤`, by axis; an axis that is missing has the operator `=`.
        failure: the signature of the failures; empty if failures with all signatures were compared together.
    """

    condition: Mapping[str, str]
    failed: int
    of: int
    failed_elsewhere: int
    elsewhere: int
    operators: Mapping[str, str] = field(default_factory=dict)
    failure: str = ""

    def __str__(self) -> str:
        terms = (axis_terms.text(axis, self.operators.get(axis, "="), label) for axis, label in self.condition.items())
        inside = f"{' and '.join(terms)}: {self.failed} of {self.of} failed"
        how = f" ({self.failure})" if self.failure else ""
        return f"{inside}; elsewhere {self.failed_elsewhere} of {self.elsewhere}{how}"


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
    whole = search.findings(list(itertools.chain.from_iterable(groups.values())))
    if len(groups) < 2 or (len(whole) == 1 and not whole[0].failed_elsewhere):  # noqa: PLR2004
        return whole
    findings: list[Finding] = []
    unexplained: list[_Row] = []
    for failure, rows in sorted(groups.items(), key=lambda group: -len(group[1])):
        of_group = search.findings(rows, failure)
        findings += of_group
        unexplained += [] if of_group else rows
    findings += search.findings(unexplained) if findings else whole
    return findings[:MOST_FINDINGS]


@dataclass(frozen=True, slots=True)
class _Condition:
    """Terms for some axes.

    Args:
        places: the index of the axis of each term.
        passed: the number of passed cells that meet the condition.
        is_fact: whether the condition is exact and may be reported (see the docstring of the module).
        chance: the logarithm of the corrected p-value.
    """

    places: tuple[int, ...]
    terms: tuple[Term, ...]
    passed: int
    is_fact: bool
    chance: float

    def holds(self, row: _Row) -> bool:
        return all(row[place] in term.labels for place, term in zip(self.places, self.terms, strict=True))


@dataclass(frozen=True, slots=True)
class _Search:
    """Looks for conditions that separate failed cells from passed cells."""

    axes: Sequence[str]
    passed: Sequence[_Row]

    def findings(self, failed: Sequence[_Row], failure: str = "") -> list[Finding]:
        # Two separate causes may look like one broader condition under which only some cells fail.
        covers = (_cover(failed, self.passed, pure=True), _cover(failed, self.passed, pure=False))
        return [self._finding(condition, failed, failure) for condition in min(covers, key=_total_chance)]

    def _finding(self, condition: _Condition, failed: Sequence[_Row], failure: str) -> Finding:
        terms = {self.axes[place]: term for place, term in zip(condition.places, condition.terms, strict=True)}
        inside, others = sum(map(condition.holds, failed)), sum(map(condition.holds, self.passed))
        elsewhere = len(failed) + len(self.passed) - inside - others
        return Finding(
            {axis: term.label for axis, term in terms.items()},
            inside,
            inside + others,
            len(failed) - inside,
            elsewhere,
            {axis: term.operator for axis, term in terms.items() if term.operator != "="},
            failure,
        )


def _cover(failed: Sequence[_Row], passed: Sequence[_Row], *, pure: bool) -> list[_Condition]:
    """Return conditions that together explain the failed cells. Each is the best for the cells that are still left.

    Args:
        pure: use only conditions that no passed cell meets.
    """
    cover: list[_Condition] = []
    while len(cover) < MOST_FINDINGS:
        best = min(_conditions(failed, passed, pure=pure), key=_preference, default=None)
        if best is None or (best.chance >= 0 and not best.is_fact):
            break
        cover.append(best)
        failed = [row for row in failed if not best.holds(row)]
        passed = [row for row in passed if not best.holds(row)]
    separates = not failed and not any(condition.passed for condition in cover)
    if separates and (_total_chance(cover) <= _MOST_CHANCE or (len(cover) == 1 and cover[0].is_fact)):
        return cover
    return list(itertools.takewhile(lambda condition: condition.chance <= _MOST_CHANCE or condition.is_fact, cover))


def _preference(condition: _Condition) -> tuple[bool, int, float]:
    """Return a sort key: facts first, the facts with the fewest axes before others, then by chance."""
    return not condition.is_fact, len(condition.places) if condition.is_fact else 0, condition.chance


# The kinds of conditions, the simplest first: the number of axes, and whether all terms are labels.
_LEVELS: Final = ((1, True), (1, False), (2, True), (2, False), (MOST_AXES, True))
_Counts = Mapping[_Row, int]
_Counted = tuple[tuple[Term, ...], int, int]  # the terms of a condition, and how many failed and passed cells meet it


def _conditions(failed: Sequence[_Row], passed: Sequence[_Row], *, pure: bool) -> Iterator[_Condition]:
    """Yield the conditions under which the rate of failures is higher than in all cells, the simplest first.

    Of several conditions of a level that equally many failed and passed cells meet, only the first one is yielded.
    """
    if len(failed) < FEWEST_FAILED or not passed:
        return
    bad, good = list(zip(*failed, strict=True)), list(zip(*passed, strict=True))
    varying = [place for place in range(len(bad)) if len({*bad[place], *good[place]}) > 1]
    terms = {place: axis_terms.of([*bad[place], *good[place]]) for place in varying}
    total, looked_at = len(failed) + len(passed), Counter[bool]()
    for size, of_labels in _LEVELS:
        numbers: dict[tuple[int, int], tuple[tuple[int, ...], tuple[Term, ...]]] = {}
        for places in itertools.combinations(varying, size):
            failures = Counter(zip(*(bad[place] for place in places), strict=True))
            passes = Counter(zip(*(good[place] for place in places), strict=True))
            of_places = [terms[place] for place in places]
            level = list(_of_labels(failures, passes) if of_labels else _of_terms(of_places, failures, passes))
            looked_at[of_labels] += len(failures.keys() | passes.keys()) if of_labels else len(level)
            for condition_terms, count, others in level:
                if count >= FEWEST_FAILED and not (pure and others):
                    numbers.setdefault((count, others), (places, condition_terms))
        tries = looked_at[True] if of_labels else looked_at.total()
        for (count, others), (places, condition_terms) in numbers.items():
            if count * total > (count + others) * len(failed):
                chance = _tail(total, len(failed), count + others, count) + math.log(tries)
                is_exact = others == 0 and count == len(failed)
                is_fact = is_exact and (of_labels or size == 1 or chance <= _MOST_CHANCE_IF_EXACT)
                yield _Condition(places, condition_terms, others, is_fact, chance)


def _of_labels(failures: _Counts, passes: _Counts) -> Iterator[_Counted]:
    """Yield each combination of labels under which cells fail."""
    for labels, count in failures.items():
        if count >= FEWEST_FAILED and None not in labels:
            terms = tuple(Term(axis_terms.EQUAL, str(label), frozenset([str(label)])) for label in labels)
            yield terms, count, passes.get(labels, 0)


def _of_terms(terms: Sequence[Sequence[Term]], failures: _Counts, passes: _Counts) -> Iterator[_Counted]:
    """Yield each combination of terms of one or two axes in which at least one term is not a label."""
    first, *others = terms
    for term in first:
        failed, passed = _under(term, failures), _under(term, passes)
        if not others and not term.is_label:
            yield (term,), failed.total(), passed.total()
        for other in others[0] if others else ():
            if not (term.is_label and other.is_label):
                yield (term, other), _under(other, failed).total(), _under(other, passed).total()


def _under(term: Term, counts: _Counts) -> Counter[_Row]:
    """Return the counts of the rows whose first label meets a term, by the remaining labels of the row."""
    remaining: Counter[_Row] = Counter()
    for row, count in counts.items():
        if row[0] in term.labels:
            remaining[row[1:]] += count
    return remaining


def _tail(total: int, failed: int, of: int, count: int) -> float:
    """Return the logarithm of the upper tail of the hypergeometric distribution, for a count above its mean.

    The tail is the probability that at least `count` of `of` cells fail if `failed` of `total` cells fail at random.
    """
    first = _log_choose(of, count) + _log_choose(total - of, failed - count) - _log_choose(total, failed)
    term = whole = 1.0
    for number in range(count, min(of, failed)):
        term *= (of - number) * (failed - number) / ((number + 1) * (total - of - failed + number + 1))
        whole += term
        if term < _NEGLIGIBLE:
            break
    return first + math.log(whole)


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _total_chance(conditions: Sequence[_Condition]) -> float:
    return sum(condition.chance for condition in conditions)
