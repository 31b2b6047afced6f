"""What cells that failed have in common: the smallest conditions on axes that separate them from those that passed.

Cells that failed in the same way are looked at together, beside the cells that passed. A condition names a label of
an axis, all labels but one (`model ≠ small`), or a range of an axis of numbers (`batch ≥ 32`), for one or two axes;
of three axes it names labels.

A condition that holds for the failed cells alone is a fact, and is said: one of a single axis or of labels always,
another one if it is unlikely enough by chance. Any other condition has to be clear: how likely so many of its cells
fail by chance (Fisher's exact test), times the conditions looked at, is at most 5 %.
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
"""The verdicts of cells that are compared: the others have not shown whether the cell works."""
FEWEST_FAILED: Final = 2  # one cell has its whole settings in common with itself
_CLEAR: Final = math.log(0.05)
_FACT: Final = math.log(0.1)  # of a condition that separates exactly: a matrix of 12 cells with 4 failures reaches it
_NEGLIGIBLE: Final = 1e-12


@dataclass(frozen=True, slots=True)
class Case:
    """A cell that has passed or failed.

    Args:
        labels: how each of its values is shown, by axis.
        failure: what tells its failure from others (see `failures.signature`); cells of one failure are one group.
    """

    labels: Mapping[str, str]
    failed: bool
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """A condition under which cells fail.

    Args:
        condition: a label by axis, in the order of the axes; all of them have to hold.
        failed: how many cells failed that meet it, out of `of`.
        failed_elsewhere: how many failed that do not, out of `elsewhere`.
        operators: how an axis compares with its label, where the label is not simply the one: `≠`, `≥` or `≤`.
        failure: how these cells failed, where others failed in another way: those are not counted.
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
    """Return what separates the cells that failed from those that passed, the clearest first.

    One condition that all failures have in common is all that is said. Otherwise each way to fail is looked at by
    itself, and then what is left. Several findings together cover the failures, as far as they are clear. There is none
    where all cells failed, or fewer than two, or where the failures look random. Of conditions that the same cells
    meet, as those on the axes of a group of `zip`, the one with fewer axes is named, then that of the earlier axes.
    """
    axes = list(dict.fromkeys(axis for case in cases for axis in case.labels))
    search = _Search(axes, [tuple(map(case.labels.get, axes)) for case in cases if not case.failed])
    groups: dict[str, list[_Row]] = defaultdict(list)
    for case in cases:
        if case.failed:
            groups[case.failure].append(tuple(map(case.labels.get, axes)))
    whole = search.findings(list(itertools.chain.from_iterable(groups.values())))
    if len(groups) < 2 or (len(whole) == 1 and not whole[0].failed_elsewhere):  # noqa: PLR2004  # nothing to tell apart
        return whole
    found: list[Finding] = []
    left: list[_Row] = []
    for failure, rows in sorted(groups.items(), key=lambda group: -len(group[1])):
        of_group = search.findings(rows, failure)
        found += of_group
        left += [] if of_group else rows
    found += search.findings(left) if found else whole
    return found[:MOST_FINDINGS]


@dataclass(frozen=True, slots=True)
class _Condition:
    """Terms for some axes, given by their places.

    Args:
        passed: how many cells that meet it have passed.
        is_fact: whether it is met by the failed cells, and by no other, and that is hardly by chance.
        chance: the logarithm of how likely it is at most that some condition would stand out like this by chance.
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
    """Looks for conditions that separate failed cells from those that passed."""

    axes: Sequence[str]
    passed: Sequence[_Row]

    def findings(self, failed: Sequence[_Row], failure: str = "") -> list[Finding]:
        # Causes side by side may look like a broader one that fails now and then: the less likely by chance counts.
        covers = (_cover(failed, self.passed, pure=True), _cover(failed, self.passed, pure=False))
        return [self._finding(found, failed, failure) for found in min(covers, key=_chance_of)]

    def _finding(self, found: _Condition, failed: Sequence[_Row], failure: str) -> Finding:
        named = {self.axes[place]: term for place, term in zip(found.places, found.terms, strict=True)}
        inside, others = sum(map(found.holds, failed)), sum(map(found.holds, self.passed))
        elsewhere = len(failed) + len(self.passed) - inside - others
        return Finding(
            {axis: term.label for axis, term in named.items()},
            inside,
            inside + others,
            len(failed) - inside,
            elsewhere,
            {axis: term.operator for axis, term in named.items() if term.operator != "="},
            failure,
        )


def _cover(failed: Sequence[_Row], passed: Sequence[_Row], *, pure: bool) -> list[_Condition]:
    """Return conditions that cover the failures, each the best for what those before it have left.

    Args:
        pure: take only conditions under which all fail.
    """
    found: list[_Condition] = []
    while len(found) < MOST_FINDINGS:
        best = min(_conditions(failed, passed, pure=pure), key=_preference, default=None)
        if best is None or (best.chance >= 0 and not best.is_fact):
            break
        found.append(best)
        failed = [row for row in failed if not best.holds(row)]
        passed = [row for row in passed if not best.holds(row)]
    separates = not failed and not any(condition.passed for condition in found)
    if separates and (_chance_of(found) <= _CLEAR or (len(found) == 1 and found[0].is_fact)):
        return found
    return list(itertools.takewhile(lambda condition: condition.chance <= _CLEAR or condition.is_fact, found))


def _preference(condition: _Condition) -> tuple[bool, int, float]:
    """Return what orders conditions: facts first, those of fewer axes before others."""
    return not condition.is_fact, len(condition.places) if condition.is_fact else 0, condition.chance


# How many axes a condition names, and whether by one label of each: the simplest conditions first.
_LEVELS: Final = ((1, True), (1, False), (2, True), (2, False), (MOST_AXES, True))
_Counts = Mapping[_Row, int]
_Found = tuple[tuple[Term, ...], int, int]  # terms, and how many cells failed and passed under them


def _conditions(failed: Sequence[_Row], passed: Sequence[_Row], *, pure: bool) -> Iterator[_Condition]:
    """Yield the conditions that more than their share of the failures meet, the simplest first.

    Of those with the same numbers only the first one comes.
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
            for found, count, others in level:
                if count >= FEWEST_FAILED and not (pure and others):
                    numbers.setdefault((count, others), (places, found))
        tries = looked_at[True] if of_labels else looked_at.total()
        for (count, others), (places, found) in numbers.items():
            if count * total > (count + others) * len(failed):
                chance = _tail(total, len(failed), count + others, count) + math.log(tries)
                is_exact = others == 0 and count == len(failed)
                is_fact = is_exact and (of_labels or size == 1 or chance <= _FACT)
                yield _Condition(places, found, others, is_fact, chance)


def _of_labels(failures: _Counts, passes: _Counts) -> Iterator[_Found]:
    """Yield each combination of labels under which cells fail."""
    for labels, count in failures.items():
        if count >= FEWEST_FAILED and None not in labels:
            terms = tuple(Term(axis_terms.EQUAL, str(label), frozenset([str(label)])) for label in labels)
            yield terms, count, passes.get(labels, 0)


def _of_terms(terms: Sequence[Sequence[Term]], failures: _Counts, passes: _Counts) -> Iterator[_Found]:
    """Yield each combination of the terms of one or two axes, of which one at least is more than a label."""
    first, *others = terms
    for term in first:
        failed, passed = _under(term, failures), _under(term, passes)
        if not others and not term.is_label:
            yield (term,), failed.total(), passed.total()
        for other in others[0] if others else ():
            if not (term.is_label and other.is_label):
                yield (term, other), _under(other, failed).total(), _under(other, passed).total()


def _under(term: Term, counts: _Counts) -> Counter[_Row]:
    """Return the counts of the rows whose first label a term holds for, by the rest of each row."""
    found: Counter[_Row] = Counter()
    for row, count in counts.items():
        if row[0] in term.labels:
            found[row[1:]] += count
    return found


def _tail(total: int, failed: int, of: int, count: int) -> float:
    """Return the logarithm of how likely at least `count` of `of` cells fail, where `failed` of `total` do at random.

    It is the upper tail of the hypergeometric distribution, for a count that is above its mean.
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


def _chance_of(found: Sequence[_Condition]) -> float:
    return sum(condition.chance for condition in found)
