"""Series: the values of one metric of one cell, run after run, as the store yields them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolbox.model.bounds import Direction


@dataclass(frozen=True, slots=True)
class RunReference:
    """The run that a value comes from.

    Args:
        started: with its time zone.
        revision: of what was tested; None where it is not known.
        directory: where the run lies, as far as the store knows.
    """

    run: str
    started: datetime
    revision: str | None = None
    directory: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    """The accepted values of one metric of one cell, in the order of their runs.

    A value is accepted where the workload did what it should: its cell passed, or nothing but metrics were out of the
    range that earlier runs give.

    Args:
        cell: the id of the cell: the digest of its settings.
        name: of the cell, as its latest run called it.
        settings: of the cell, by axis.
        unit: of the values; empty for bare numbers.
        runs: one for each value.
        confirmed: the places of the values that failed their cells because they were out of the range of earlier runs,
            in two attempts.
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
