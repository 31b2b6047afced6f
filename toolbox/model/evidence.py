"""The evidence that a check judges, and its judgement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from toolbox.model.bounds import Bound, Direction, Side


@dataclass(frozen=True, slots=True)
class Metric:
    """A number that a workload produced.

    Args:
        value: the number; None if it could not be read, for the reason in `fault`.
        unit: the unit, such as `s` for seconds; empty for a bare number.
        samples: all numbers, if the source is configured with `aggregate: each`; then `value` is their median.
        direction: which values are better; None if that is not configured.
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
    """Another cell with which a check compares this cell.

    Args:
        name: the name of the other cell.
        metrics: its metrics, by name; None if the cell did not run, or did not pass.
        fault: why there are no metrics.
        is_missing: whether the other cell is not in this run, or was skipped. Then the comparison fails no cell.
    """

    name: str
    metrics: Mapping[str, Metric] | None = None
    fault: str = ""
    is_missing: bool = False


@dataclass(frozen=True, slots=True)
class Evidence:
    """The files and metrics of an attempt.

    Args:
        directory: the directory with its files.
        metrics: its metrics, by name.
        reference: the cell to compare with, for a check that needs one.
        bounds: the bounds from earlier runs, by the names of the metrics.
    """

    directory: Path
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    reference: Reference | None = None
    bounds: Mapping[str, Bound] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Deviation:
    """A value out of the range of earlier runs.

    Args:
        improves: whether the value is on the better side of the range.
    """

    metric: str
    side: Side
    improves: bool


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result of a check.

    Args:
        passed: whether the check passed; None if there was nothing to judge, which is not a failure.
        message: the reason.
        file: the file that shows the reason, relative to the directory of the evidence.
        line: the line in the file, from 1 on.
        deviation: the value out of the range of earlier runs, if that is the reason. Another attempt may confirm it.
        out_of_range: whether the check failed only because a value is out of its range, configured or from earlier
            runs.
    """

    passed: bool | None
    message: str
    file: str = ""
    line: int | None = None
    deviation: Deviation | None = None
    out_of_range: bool = False
