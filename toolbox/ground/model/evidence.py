"""The evidence that a check judges, and its judgement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from toolbox.ground.model.bounds import Bound, Direction, Side
from toolbox.ground.model.cases import CaseReport
from toolbox.ground.model.verdicts import Cause

PREVENTING: Final = (Cause.INTERNAL, Cause.INFRASTRUCTURE)
"""The causes with which a check says that nothing could be tested, the worst one first."""
FAILING: Final = (Cause.PRODUCT, Cause.TIMEOUT)
"""The causes with which a check says how the product failed, the worst one first."""
CAUSES: Final = (*PREVENTING, *FAILING)


def worst_cause(causes: Iterable[Cause | None]) -> Cause | None:
    """Return the worst cause that checks name; None if they name none."""
    return min((cause for cause in causes if cause in CAUSES), key=CAUSES.index, default=None)


@dataclass(frozen=True, slots=True)
class Metric:
    """A number that a workload produced.

    Args:
        value: the number; None if it could not be read. `fault` contains the reason.
        unit: the unit, such as `s` for seconds; empty for a bare number.
        samples: all numbers, if the source is configured with `aggregate: each`; `value` is then their median.
        direction: whether lower or higher values are better; None if not configured.
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
    """The reference cell with which a check compares another cell.

    Args:
        metrics: the metrics of the reference cell, by name; None if that cell did not run, or did not pass.
        directory: the files of its latest attempt; None if it did not pass, or if its result is from another run.
        fault: why there are no metrics.
        is_missing: whether the reference cell is not in this run, or was skipped; the check then cannot fail.
    """

    name: str
    metrics: Mapping[str, Metric] | None = None
    fault: str = ""
    is_missing: bool = False
    directory: Path | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """The files and metrics of an attempt.

    Args:
        reference: the cell to compare with; None if the check does not compare cells.
        bounds: the bounds of the metrics from earlier runs, by the name of the metric.
        changed: the generated files that are not as they were sent, relative to the directory. On this machine, a
            workload can change them. A check must not take expectations from such a file.
    """

    directory: Path
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    reference: Reference | None = None
    bounds: Mapping[str, Bound] = field(default_factory=dict)
    changed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Deviation:
    """A value out of the range of earlier runs.

    Args:
        improves: whether the value is better than the range.
    """

    metric: str
    side: Side
    improves: bool


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result of a check.

    Args:
        passed: whether the check passed; None if the check had nothing to judge, which is not a failure.
        file: the file that shows the reason, relative to the directory of the evidence.
        line: the line of the file that shows the reason, counted from 1.
        deviation: the value that is out of the range of earlier runs; None if the judgement has another reason.
            Another attempt may confirm such a value.
        out_of_range: whether the check failed only because a value is out of a configured range or the range of
            earlier runs.
        cases: the test cases that the check has counted; None if the check does not judge test cases.
        cause: why the check failed; None if the check does not know more than that it failed. `infrastructure` and
            `internal` mean that the attempt could not test the product, so the verdict is `error`. `product` and
            `timeout` are causes of a failure. `toolbox.matrix.attempt_judgement.verdict` combines the causes of several
            checks.

    Raises:
        ValueError: a check cannot have this cause.
    """

    passed: bool | None
    message: str
    file: str = ""
    line: int | None = None
    deviation: Deviation | None = None
    out_of_range: bool = False
    cases: CaseReport | None = None
    cause: Cause | None = None

    def __post_init__(self) -> None:
        if self.cause is not None and self.cause not in CAUSES:
            raise ValueError(f"the cause of a failed check is one of {', '.join(CAUSES)}, not {self.cause}")


def deviations_of(judgements: Iterable[Judgement]) -> dict[str, Deviation]:
    """Return the deviations from earlier runs, by metric; empty if a check failed for another reason."""
    failed = [judgement.deviation for judgement in judgements if judgement.passed is False]
    by_metric = {deviation.metric: deviation for deviation in failed if deviation is not None}
    return by_metric if None not in failed else {}
