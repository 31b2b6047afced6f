"""A metric within its bounds. Below the lower bound is out of bounds as well."""

from __future__ import annotations

import math

from pydantic import BaseModel, ConfigDict, FiniteFloat, model_validator

from toolbox.model.evidence import Evidence, Judgement, Metric


class Check(BaseModel):
    """A metric, and the range that it must be in, bounds included. Where there are samples, each has to be in it."""

    model_config = ConfigDict(extra="forbid")

    metric: str
    lower: FiniteFloat | None = None
    upper: FiniteFloat | None = None

    @model_validator(mode="after")
    def _has_bounds(self) -> Check:
        if self.lower is None and self.upper is None:
            raise ValueError("a lower or an upper bound was expected")
        if self.lower is not None and self.upper is not None and self.lower > self.upper:
            raise ValueError(f"the lower bound {self.lower:g} is above the upper bound {self.upper:g}")
        return self

    def judge(self, evidence: Evidence) -> Judgement:
        """Hold the metric against its bounds."""
        metric = evidence.metrics.get(self.metric)
        if metric is None:
            return Judgement(
                False,
                f"{self.metric} is not a metric here: {', '.join(evidence.metrics) or 'there are none'}",
            )
        if metric.value is None:
            return Judgement(False, f"{self.metric} is {metric}")
        if metric.samples:
            return self._judge_each(metric)
        if not math.isfinite(metric.value):
            return Judgement(False, f"{self.metric} is {metric}, a finite number was expected")
        unit = f" {metric.unit}" if metric.unit else ""
        if self.upper is not None and metric.value > self.upper:
            return Judgement(False, f"{self.metric} is {metric}, above its upper bound {self.upper:g}{unit}")
        if self.lower is not None and metric.value < self.lower:
            return Judgement(False, f"{self.metric} is {metric}, below its lower bound {self.lower:g}{unit}")
        return Judgement(True, f"{self.metric} is {metric}, within {self._range(unit)}")

    def _judge_each(self, metric: Metric) -> Judgement:
        unit = f" {metric.unit}" if metric.unit else ""
        out = [sample for sample in metric.samples if self._distance(sample) > 0]
        if not out:
            return Judgement(True, f"all {len(metric.samples)} {self.metric} are within {self._range(unit)}")
        worst = max(out, key=self._distance)
        said = f"{len(out)} of {len(metric.samples)} {self.metric} are out of {self._range(unit)}"
        return Judgement(False, f"{said}, the worst is {worst:.6g}{unit}")

    def _distance(self, value: float) -> float:
        """Return how far out of bounds a value is: 0 for one within, infinity for one that is no number."""
        if not math.isfinite(value):
            return math.inf
        below = 0 if self.lower is None else self.lower - value
        above = 0 if self.upper is None else value - self.upper
        return max(0, below, above)

    def _range(self, unit: str) -> str:
        return f"[{_bound(self.lower)}, {_bound(self.upper)}]{unit}"


def _bound(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"
