"""What a run shows against the baseline besides changes of verdicts: flaky cells, and metrics that moved or are lost.

`flaky_failures`, `moved_metrics` and `lost_metrics` find them in the store, and `since_last_run` keeps them with the
run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from toolbox.ground.model.text import truncate

MAX_VALUES: Final = 20
"""The number of latest values of a metric that are kept as its history."""
_LONGEST_REASON: Final = 500
_BARS: Final = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class FlakyCell:
    """A cell whose result in this run may be random.

    Args:
        cell: the id of the cell.
        reason: why the cell is flaky, as a short text.
    """

    cell: str
    name: str
    reason: str

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Return the cell that a file describes."""
        return cls(str(content["cell"]), str(content["name"]), str(content["reason"]))


@dataclass(frozen=True, slots=True)
class MetricChange:
    """A metric of a cell whose value differs from the baseline.

    Args:
        cell: the id of the cell.
        name: the name of the cell.
        before: the mean of the latest values of the baseline.
        is_better: whether the change is for the better; None if the metric has no direction.
        history: the latest values of the baseline in the order of their runs, then the value of this run.
        bound: the range of expected values as text; empty if it is unknown.
        is_outside: whether the value of this run is out of this range.
    """

    cell: str
    name: str
    metric: str
    unit: str
    before: float
    after: float
    is_better: bool | None
    history: Sequence[float]
    bound: str = ""
    is_outside: bool = False

    def __str__(self) -> str:
        """Return the change as a line: `time: 1 s → 1.5 s (+50 %, worse), out of [0.9, 1.1]`."""
        unit = f" {self.unit}" if self.unit else ""
        how = ", ".join(filter(None, (self.percent, self.word)))
        line = f"{self.metric}: {self.before:.5g}{unit} → {self.after:.5g}{unit} ({how})"
        return ", ".join(filter(None, (line, self.position)))

    @property
    def position(self) -> str:
        """Whether the value of this run is in the expected range: `out of [0.9, 1.1]`; empty without a range."""
        return f"{'out of' if self.is_outside else 'in'} {self.bound}" if self.bound else ""

    @property
    def word(self) -> str:
        """How the metric changed: `better`, `worse`, or `changed` if it has no direction."""
        return "changed" if self.is_better is None else "better" if self.is_better else "worse"

    @property
    def percent(self) -> str:
        """The increase in percent, such as `+5.2 %`; empty if the value before is 0."""
        if not self.before:
            return ""
        increase = 100 * (self.after - self.before) / abs(self.before)
        return f"{increase:+.3g} %" if math.isfinite(increase) else ""

    @property
    def sparkline(self) -> str:
        """The history as a row of bars, of which the last one is the value of this run."""
        return sparkline(self.history)

    def as_json(self) -> dict[str, Any]:
        """Return the content of the file."""
        return {**asdict(self), "history": list(self.history)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Return the change that a file describes.

        Raises:
            ValueError, KeyError, TypeError: the content is not a change, or a number is not finite.
        """
        is_better = content["is_better"]
        return cls(
            cell=str(content["cell"]),
            name=str(content["name"]),
            metric=str(content["metric"]),
            unit=str(content["unit"]),
            before=_finite(content["before"]),
            after=_finite(content["after"]),
            is_better=None if is_better is None else bool(is_better),
            history=[_finite(value) for value in content["history"][-MAX_VALUES - 1 :]],
            bound=str(content["bound"]),
            is_outside=bool(content["is_outside"]),
        )


@dataclass(frozen=True, slots=True)
class LostMetric:
    """A metric that had values in the baseline and is unknown in a cell that passed.

    Args:
        cell: the id of the cell.
        name: the name of the cell.
        before: the latest value of the baseline.
        reason: why the value is unknown.
    """

    cell: str
    name: str
    metric: str
    unit: str
    before: float
    reason: str

    def __str__(self) -> str:
        """Return the metric as a line: `time: 1 s → unknown: there is no file result.json`."""
        unit = f" {self.unit}" if self.unit else ""
        return f"{self.metric}: {self.before:.5g}{unit} → unknown: {truncate(self.reason, _LONGEST_REASON)}"

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Return the metric that a file describes.

        Raises:
            ValueError, KeyError, TypeError: the content is not a lost metric, or a number is not finite.
        """
        texts = {key: str(content[key]) for key in ("cell", "name", "metric", "unit", "reason")}
        return cls(before=_finite(content["before"]), **texts)


def sparkline(values: Sequence[float]) -> str:
    """Return numbers as a row of bars from the smallest to the largest number; equal numbers have equal bars."""
    if not values:
        return ""
    least, most = min(values), max(values)
    scale = max(abs(least), abs(most)) or 1.0  # so that the difference cannot overflow
    span = most / scale - least / scale
    if not span:
        return _BARS[len(_BARS) // 2] * len(values)
    return "".join(_BARS[round((value / scale - least / scale) / span * (len(_BARS) - 1))] for value in values)


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{number} is not finite")
    return number
