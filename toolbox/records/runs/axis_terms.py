"""The terms of a condition for one axis: one label, all labels but one, or a range of numbers.

`attribution` combines terms of several axes into conditions. No two terms of an axis contain the same set of labels.
The cells that meet each term are counted with sums over the sorted labels: sets of labels would need time and memory
that are quadratic in the number of labels.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

EQUAL: Final = "="
_FEWEST_FOR_ALL_BUT_ONE: Final = 3  # with two labels, all labels but one would be the other label
_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[-+]?\d+)?")


@dataclass(frozen=True, slots=True)
class Term:
    """A set of labels of one axis.

    Args:
        operator: `=`, `≠`, `≥` or `≤`.
        label: the label that is written after the operator.
        labels: all labels in the set.
    """

    operator: str
    label: str
    labels: frozenset[str]


@dataclass(frozen=True, slots=True)
class AxisTerms:
    """The terms of an axis, which are numbered: first single labels, then all labels but one, then ranges.

    Ranges contain at least two labels and lack at least two. `≤` and `≥` alternate.

    Args:
        labels: the labels, in the order of their terms.
        ranks: the indices of the labels, sorted by the value of the label; empty if the labels are not numbers.
    """

    labels: Sequence[str]
    ranks: Sequence[int]

    def __len__(self) -> int:
        return len(self.labels) + len(self._complements) + 2 * len(self._bounds)

    def counts(self, by_label: Sequence[int]) -> list[int]:
        """Return the number of cells that meet each term, given the number of cells with each label."""
        counts = list(by_label)
        total = sum(by_label)
        if self._complements:
            counts += [total - count for count in by_label]
        if self._bounds:
            sums = list(itertools.accumulate(map(by_label.__getitem__, self.ranks)))
            counts += [count for lower in sums[1:-2] for count in (lower, total - lower)]
        return counts

    def term(self, number: int) -> Term:
        """Return a term, given its number."""
        count = len(self.labels)
        if number < count:
            return of_label(self.labels[number])
        if number < count + len(self._complements):
            return self._all_but(number - count)
        index, is_upper = divmod(number - count - len(self._complements), 2)
        bound = self._bounds[index]
        if is_upper:
            return self._range("≥", bound, self.ranks[bound:])
        return self._range("≤", bound - 1, self.ranks[:bound])

    @property
    def _complements(self) -> range:
        return range(len(self.labels) if len(self.labels) >= _FEWEST_FOR_ALL_BUT_ONE else 0)

    @property
    def _bounds(self) -> range:
        return range(2, len(self.ranks) - 1)

    def _all_but(self, index: int) -> Term:
        rest = frozenset(self.labels) - {self.labels[index]}
        if self.ranks and index == self.ranks[0]:
            return Term("≥", self.labels[self.ranks[1]], rest)
        if self.ranks and index == self.ranks[-1]:
            return Term("≤", self.labels[self.ranks[-2]], rest)
        return Term("≠", self.labels[index], rest)

    def _range(self, operator: str, bound: int, ranks: Sequence[int]) -> Term:
        return Term(operator, self.labels[self.ranks[bound]], frozenset(self.labels[index] for index in ranks))


def of(labels: Iterable[str | None]) -> AxisTerms:
    """Return the terms of an axis with these labels, which may repeat. None stands for a cell without the axis."""
    distinct = list(dict.fromkeys(label for label in labels if label is not None))
    return AxisTerms(distinct, _ranks(distinct))


def of_label(label: str) -> Term:
    """Return the term that contains one label."""
    return Term(EQUAL, label, frozenset([label]))


def text(axis: str, operator: str, label: str) -> str:
    """Return the text of a term: `model=small`, `batch ≥ 32`."""
    return f"{axis}={label}" if operator == EQUAL else f"{axis} {operator} {label}"


def _ranks(labels: Sequence[str]) -> list[int]:
    """Return the indices of the labels sorted by value; an empty list if they are not numbers, or may be versions."""
    if not all(map(_NUMBER.fullmatch, labels)):
        return []
    values = list(map(float, labels))
    ranks = sorted(range(len(labels)), key=values.__getitem__)
    if not labels or not all("." in label for label in labels):
        return ranks
    parts = [[int(part) for part in re.findall(r"\d+", label)] for label in labels]
    return ranks if ranks == sorted(ranks, key=parts.__getitem__) else []
