"""The runs, results and attempts that `queries` reads from the store, as frozen dataclasses.

A field with the name of a column contains the value of the column, which `toolbox.records.results.tables` documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run.

    Args:
        cells: the number of cells with each verdict.
        cost: the cost of the cells with a price; None if no cell has a price.
        unpriced: the number of cells without a price.
    """

    id: int
    project: str
    run: str
    started: datetime
    state: str
    verdict: str | None
    cause: str | None
    message: str
    seconds: float | None
    presets: Sequence[str]
    revision: str | None
    host: str | None
    directory: str
    currency: str
    baseline: bool = True
    cells: Mapping[str, int] = field(default_factory=dict)
    cost: float | None = None
    unpriced: int = 0


@dataclass(frozen=True, slots=True)
class Spending:
    """What attempts of a run on one target have cost. The attempts are of the same kind, and may be of several cells.

    Args:
        run: the id of the row of the run.
        started: when the run began.
        cell: the name of the cell; empty for the attempts of all cells.
        kind: a value of `cost.Kind`.
        attempts: the number of attempts.
        unpriced: the number of attempts whose cost is unknown.
        seconds: the time of the target that the attempts are charged for.
        cost: the cost of the attempts whose cost is known; None if there are none.
    """

    run: int
    started: datetime
    project: str
    currency: str
    target: str
    accelerator: str
    cell: str
    kind: str
    attempts: int
    unpriced: int
    seconds: float
    cost: float | None


@dataclass(frozen=True, slots=True)
class EarlierTime:
    """How long all attempts of a cell on a target took together, per run.

    Args:
        seconds: the mean over the runs. The mean, not the median, adds up to the expected time of many cells.
        runs: the number of runs.
    """

    seconds: float
    runs: int


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """An attempt."""

    verdict: str | None
    cause: str | None
    target: str = ""
    accelerator: str = ""
    revision: str = ""
    deviates: bool = False
    out_of_range: bool = False
    image: str = ""


@dataclass(frozen=True, slots=True)
class MetricValue:
    """The value of a metric of a cell in a run.

    Args:
        value: None if it could not be read.
        fault: why there is no value.
    """

    value: float | None
    unit: str
    fault: str


@dataclass(frozen=True, slots=True)
class ResultRow:
    """How a cell ended in a run.

    Args:
        metrics: the value of each metric, by metric.
        tests: the number of test cases with each outcome.
    """

    run: RunRow
    cell: str
    name: str
    labels: Mapping[str, str]
    verdict: str | None
    cause: str | None
    message: str
    counts: bool
    seconds: float | None
    fingerprint: str
    target: str
    accelerator: str
    cost: float | None
    step: str
    attempts: Sequence[AttemptRow]
    metrics: Mapping[str, MetricValue]
    out_of_range: bool = False
    tests: Mapping[str, int] = field(default_factory=dict)
    reused_from: str = ""
    id: int = 0


@dataclass(frozen=True, slots=True)
class CaseRow:
    """How a test case of a cell ended in a run.

    Args:
        suite: the class or module of the test case.
    """

    result: ResultRow
    suite: str
    name: str
    outcome: str
    seconds: float | None
    message: str
    text: str

    @property
    def title(self) -> str:
        """The suite and the name."""
        return f"{self.suite}.{self.name}" if self.suite else self.name
