"""What a check looks at, and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Metric:
    """A number that a workload produced.

    Args:
        value: the number; None where it could not be read, and `fault` says why.
        unit: its unit, `s` for seconds; empty for a bare number.
    """

    name: str
    value: float | None
    unit: str = ""
    fault: str = ""

    def __str__(self) -> str:
        return f"{self.value:.6g} {self.unit}".strip() if self.value is not None else f"unknown ({self.fault})"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What an attempt left behind.

    Args:
        directory: its files.
        metrics: its numbers, by name.
    """

    directory: Path
    metrics: Mapping[str, Metric] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a check says: whether it passed, and what it saw."""

    passed: bool
    message: str
