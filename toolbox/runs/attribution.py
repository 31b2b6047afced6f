"""What cells that failed have in common: the smallest conditions on axes that separate them from those that passed.

A condition that the failed cells meet, and no other, is a fact, and is always said. Any other one has to be clear: how
likely so many of its cells fail by chance (Fisher's exact test), times the conditions looked at, is at most 5 %.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

MOST_AXES: Final = 3
MOST_FINDINGS: Final = 5
FEWEST_FAILED: Final = 2  # one cell has its whole settings in common with itself
_CLEAR: Final = math.log(0.05)
_NEGLIGIBLE: Final = 1e-12


@dataclass(frozen=True, slots=True)
class Case:
    """A cell that has passed or failed.

    Args:
        labels: how each of its values is shown, by axis.
    """

    labels: Mapping[str, str]
    failed: bool


@dataclass(frozen=True, slots=True)
class Finding:
    """A condition under which cells fail.

    Args:
        condition: a label by axis, in the order of the axes; all of them have to hold.
        failed: how many cells failed that meet it, out of `of`.
        failed_elsewhere: how many failed that do not, out of `elsewhere`.
    """

    condition: Mapping[str, str]
    failed: int
    of: int
    failed_elsewhere: int
    elsewhere: int

    def __str__(self) -> str:
        condition = " and ".join(f"{axis}={label}" for axis, label in self.condition.items())
        inside = f"{condition}: {self.failed} of {self.of} failed"
        return f"{inside}; elsewhere {self.failed_elsewhere} of {self.elsewhere}"


def attribute(cases: Sequence[Case]) -> list[Finding]:
    """Return what separates the cells that failed from those that passed, the clearest first.

    Several findings together cover the failures, as far as they are clear. There is none where all cells failed, or
    fewer than two, or where the failures look random. Of conditions that the same cells meet, as those on the axes of a
    group of `zip`, the one with fewer axes is named, then that of the earlier axes.
    """
    axes = list(dict.fromkeys(axis for case in cases for axis in case.labels))
    failed = [tuple(map(case.labels.get, axes)) for case in cases if case.failed]
    passed = [tuple(map(case.labels.get, axes)) for case in cases if not case.failed]
    # Causes side by side may look like one that is broader and fails now and then: the less likely by chance counts.
    covers = (_cover(failed, passed, pure=True), _cover(failed, passed, pure=False))
    return [_finding(found, axes, failed, passed) for found in min(covers, key=_chance_of)]


_Row = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class _Condition:
    """A label for some axes, given by their places.

    Args:
        passed: how many cells that meet it have passed.
        is_exact: whether it is met by the failed cells, and by no other.
        chance: the logarithm of how likely it is at most that some condition would stand out like this by chance.
    """

    places: tuple[int, ...]
    labels: _Row
    passed: int
    is_exact: bool
    chance: float

    def holds(self, row: _Row) -> bool:
        return all(row[place] == label for place, label in zip(self.places, self.labels, strict=True))


def _cover(failed: list[_Row], passed: list[_Row], *, pure: bool) -> list[_Condition]:
    """Return conditions that cover the failures, each the best for what those before it have left.

    Args:
        pure: take only conditions under which all fail.
    """
    found: list[_Condition] = []
    while len(found) < MOST_FINDINGS:
        best = min(_conditions(failed, passed, pure=pure), key=lambda c: (not c.is_exact, c.chance), default=None)
        if best is None or (best.chance >= 0 and not best.is_exact):
            break
        found.append(best)
        failed = [row for row in failed if not best.holds(row)]
        passed = [row for row in passed if not best.holds(row)]
    separates = not failed and not any(condition.passed for condition in found)
    if separates and (len(found) == 1 or _chance_of(found) <= _CLEAR):
        return found
    return list(itertools.takewhile(lambda condition: condition.chance <= _CLEAR, found))


def _conditions(failed: list[_Row], passed: list[_Row], *, pure: bool) -> Iterator[_Condition]:
    """Yield the conditions that more than their share of the failures meet, the shortest first.

    Of those with the same numbers only the first one comes.
    """
    if len(failed) < FEWEST_FAILED or not passed:
        return
    total, looked_at = len(failed) + len(passed), 0
    bad, good = list(zip(*failed, strict=True)), list(zip(*passed, strict=True))
    varying = [place for place in range(len(bad)) if len({*bad[place], *good[place]}) > 1]
    for size in range(1, MOST_AXES + 1):
        numbers: dict[tuple[int, int], tuple[tuple[int, ...], _Row]] = {}
        for places in itertools.combinations(varying, size):
            failures = Counter(zip(*(bad[place] for place in places), strict=True))
            passes = Counter(zip(*(good[place] for place in places), strict=True))
            looked_at += len(failures.keys() | passes.keys())
            for labels, count in failures.items():
                if count >= FEWEST_FAILED and None not in labels and not (pure and passes[labels]):
                    numbers.setdefault((count, passes[labels]), (places, labels))
        for (count, others), (places, labels) in numbers.items():
            of = count + others
            if count * total > of * len(failed):
                chance = _tail(total, len(failed), of, count) + math.log(looked_at)
                yield _Condition(places, labels, others, others == 0 and count == len(failed), chance)


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


def _finding(found: _Condition, axes: Sequence[str], failed: Sequence[_Row], passed: Sequence[_Row]) -> Finding:
    condition = {axes[place]: str(label) for place, label in zip(found.places, found.labels, strict=True)}
    inside, others = sum(map(found.holds, failed)), sum(map(found.holds, passed))
    elsewhere = len(failed) + len(passed) - inside - others
    return Finding(condition, inside, inside + others, len(failed) - inside, elsewhere)
