"""The term of a condition for one axis: one label, all labels but one, or a range of numbers.

`attribution` combines terms into conditions. Two terms of an axis never hold for the same labels.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

EQUAL: Final = "="
_OTHERS: Final = 3  # labels: with two, all but one are the other one
_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[-+]?\d+)?")


@dataclass(frozen=True, slots=True)
class Term:
    """The labels of an axis for which a condition holds, and how that is written: `≠`, `≥` or `≤` a label."""

    operator: str
    label: str
    labels: frozenset[str]

    @property
    def is_label(self) -> bool:
        """Whether it holds for one label."""
        return self.operator == EQUAL


def of(labels: Iterable[str | None]) -> list[Term]:
    """Return the terms of an axis: its labels in their order, then all but one, then ranges."""
    known = list(dict.fromkeys(label for label in labels if label is not None))
    ordered = _ordered(known)
    every = frozenset(known)
    terms = [Term(EQUAL, label, frozenset([label])) for label in known]
    if len(known) >= _OTHERS:
        terms += [_all_but(label, every, ordered) for label in known]
    return [*terms, *_ranges(ordered)]


def text(axis: str, operator: str, label: str) -> str:
    """Return a term as a person reads it: `model=small`, `batch ≥ 32`."""
    return f"{axis}={label}" if operator == EQUAL else f"{axis} {operator} {label}"


def _all_but(label: str, every: frozenset[str], ordered: Sequence[str]) -> Term:
    rest = every - {label}
    if ordered and label == ordered[0]:
        return Term("≥", ordered[1], rest)
    if ordered and label == ordered[-1]:
        return Term("≤", ordered[-2], rest)
    return Term("≠", label, rest)


def _ranges(ordered: Sequence[str]) -> Iterator[Term]:
    """Yield the ranges that are neither one label nor all but one."""
    for index in range(2, len(ordered) - 1):
        yield Term("≤", ordered[index - 1], frozenset(ordered[:index]))
        yield Term("≥", ordered[index], frozenset(ordered[index:]))


def _ordered(labels: Sequence[str]) -> list[str]:
    """Return labels that are numbers by their size; an empty list if they are not numbers, or may be versions."""
    if not all(map(_NUMBER.fullmatch, labels)):
        return []
    ordered = sorted(labels, key=float)
    by_parts = sorted(labels, key=lambda label: [int(part) for part in re.findall(r"\d+", label)])
    has_points = any("." in label for label in labels)
    return [] if has_points and all("." in label for label in labels) and ordered != by_parts else ordered
