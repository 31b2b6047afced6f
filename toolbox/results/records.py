"""What the store says of runs, results and attempts, as frozen data: `queries` makes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run.

    Args:
        cells: how many of its cells ended with each verdict.
        cost: of those of its cells whose price is known; None where there is none.
        unpriced: how many of its cells have no price.
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
    cells: Mapping[str, int] = field(default_factory=dict)
    cost: float | None = None
    unpriced: int = 0


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """An attempt.

    Args:
        revision: of what was tested; empty where it is not known.
        deviates: whether nothing was wrong but a value out of the range of earlier runs.
        out_of_range: whether nothing was wrong but values out of their ranges, those of earlier runs or given ones.
        image: the container image that it ran in, as `NAME@sha256:...`; empty where that is not known.
    """

    verdict: str | None
    cause: str | None
    target: str = ""
    accelerator: str = ""
    revision: str = ""
    deviates: bool = False
    out_of_range: bool = False
    image: str = ""


@dataclass(frozen=True, slots=True)
class ResultRow:
    """How a cell ended in a run.

    Args:
        metrics: value and unit by name; the value is None where it could not be read.
        attempts: in their order.
        out_of_range: whether its last attempt failed only because measured values were out of their ranges.
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
    metrics: Mapping[str, tuple[float | None, str]]
    out_of_range: bool = False
