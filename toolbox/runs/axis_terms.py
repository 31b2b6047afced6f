"""The terms of a condition for one axis: one label, all labels but one, or a range of numbers.

`attribution` combines terms of several axes into conditions. No two terms of an axis contain the same set of labels.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
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

    @property
    def is_label(self) -> bool:
        """Whether the set contains exactly one label."""
        return self.operator == EQUAL


def of(labels: Iterable[str | None]) -> list[Term]:
    """Return the terms of an axis: first single labels, then all labels but one, then ranges."""
    distinct = list(dict.fromkeys(label for label in labels if label is not None))
    ordered = _ordered(distinct)
    terms = [Term(EQUAL, label, frozenset([label])) for label in distinct]
    if len(distinct) >= _FEWEST_FOR_ALL_BUT_ONE:
        terms += [_all_but(label, frozenset(distinct), ordered) for label in distinct]
    return [*terms, *_ranges(ordered)]


def text(axis: str, operator: str, label: str) -> str:
    """Return the text of a term: `model=small`, `batch ≥ 32`."""
    return f"{axis}={label}" if operator == EQUAL else f"{axis} {operator} {label}"


def _all_but(label: str, labels: frozenset[str], ordered: Sequence[str]) -> Term:
    rest = labels - {label}
    if ordered and label == ordered[0]:
        return Term("≥", ordered[1], rest)
    if ordered and label == ordered[-1]:
        return Term("≤", ordered[-2], rest)
    return Term("≠", label, rest)


def _ranges(ordered: Sequence[str]) -> Iterator[Term]:
    """Yield the ranges that contain at least two labels and lack at least two."""
    for index in range(2, len(ordered) - 1):
        yield Term("≤", ordered[index - 1], frozenset(ordered[:index]))
        yield Term("≥", ordered[index], frozenset(ordered[index:]))


def _ordered(labels: Sequence[str]) -> list[str]:
    """Return the labels sorted by value if they are numbers; an empty list if they are not, or may be versions."""
    if not all(map(_NUMBER.fullmatch, labels)):
        return []
    ordered = sorted(labels, key=float)
    by_parts = sorted(labels, key=lambda label: [int(part) for part in re.findall(r"\d+", label)])
    has_points = any("." in label for label in labels)
    return [] if has_points and all("." in label for label in labels) and ordered != by_parts else ordered
