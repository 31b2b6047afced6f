"""What a check looks at, and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from toolbox.model.bounds import Bound, Direction, Side


@dataclass(frozen=True, slots=True)
class Metric:
    """A number that a workload produced.

    Args:
        value: the number; None where it could not be read, and `fault` says why.
        unit: its unit, `s` for seconds; empty for a bare number.
        samples: all numbers, where the source was asked for each; `value` is their median then.
        direction: which values are better; None where nobody has said.
    """

    name: str
    value: float | None
    unit: str = ""
    fault: str = ""
    samples: tuple[float, ...] = ()
    direction: Direction | None = None

    def __str__(self) -> str:
        return f"{self.value:.6g} {self.unit}".strip() if self.value is not None else f"unknown ({self.fault})"


@dataclass(frozen=True, slots=True)
class Reference:
    """Another cell, that a check compares this one with.

    Args:
        name: of the cell.
        metrics: its numbers, by name; None where it has none that count: it was not run, or did not pass.
        fault: why it has none.
        is_missing: whether it is no part of this run, or was skipped: nobody can hold that against this cell.
    """

    name: str
    metrics: Mapping[str, Metric] | None = None
    fault: str = ""
    is_missing: bool = False


@dataclass(frozen=True, slots=True)
class Evidence:
    """What an attempt left behind.

    Args:
        directory: its files.
        metrics: its numbers, by name.
        reference: the cell to compare it with, for a check that asks for one.
        bounds: those that earlier runs give the metrics of this cell, by name.
    """

    directory: Path
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    reference: Reference | None = None
    bounds: Mapping[str, Bound] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Deviation:
    """A value out of the range that earlier runs give.

    Args:
        improves: whether it is on the good side of it.
    """

    metric: str
    side: Side
    improves: bool


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a check says.

    Args:
        passed: whether it passed; None where it had nothing to judge, which is no failure.
        message: what it saw.
        file: the file that shows it, from the directory of the evidence on.
        line: the line of it, from 1 on.
        deviation: where the reason is a value out of the range of earlier runs, which another attempt may confirm.
        out_of_range: whether the check failed only because a measured value is out of its range, given or from history.
    """

    passed: bool | None
    message: str
    file: str = ""
    line: int | None = None
    deviation: Deviation | None = None
    out_of_range: bool = False
