"""A series: the values of one metric of one cell, in the order of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from toolbox.ground.model.bounds import Direction

if TYPE_CHECKING:  # NumPy is slow to import, and a run that is recorded needs no series
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class RunReference:
    """The run that a value comes from.

    Args:
        started: when the run started, with a time zone.
        revision: the revision under test; None if unknown.
        directory: the last known directory of the run.
        presets: the presets that the run used.
    """

    run: str
    started: datetime
    revision: str | None = None
    directory: str = ""
    presets: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Series:
    """The accepted values of one metric of one cell, in the order of their runs.

    A value is accepted if its cell passed, or failed only because metrics were out of the ranges of earlier runs.

    Args:
        name: the name of the cell in its latest run.
        unit: the unit of the values; empty for bare numbers.
        direction: whether lower or higher values are better; None if unknown.
        runs: the run of each value.
        confirmed: the indices of the values that were out of the range of earlier runs in two attempts, so that their
            cells failed.
    """

    project: str
    cell: str
    name: str
    settings: Mapping[str, Any]
    metric: str
    unit: str
    direction: Direction | None
    runs: tuple[RunReference, ...]
    values: NDArray[np.float64]
    confirmed: tuple[int, ...] = ()

    def at(self, indices: Sequence[int]) -> Series:
        """Return the series of the values at some indices, which are in order."""
        confirmed = (new for new, index in enumerate(indices) if index in self.confirmed)
        runs = tuple(self.runs[index] for index in indices)
        return replace(self, runs=runs, values=self.values[list(indices)], confirmed=tuple(confirmed))

    def latest(self, count: int) -> Series:
        """Return the series of the latest values, at most `count` values."""
        return self.at(range(max(0, len(self.values) - count), len(self.values)))

    def first_index_since(self, moment: datetime) -> int:
        """Return the index of the first value whose run started at a moment or later; the number of values if none."""
        indices = (index for index, run in enumerate(self.runs) if run.started >= moment)
        return next(indices, len(self.values))
