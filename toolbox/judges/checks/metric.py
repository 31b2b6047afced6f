"""Checks that a metric is within its bounds, which are configured or computed from earlier runs (`bounds: auto`).

A value below the lower bound fails the check even if lower values are better.
"""

from __future__ import annotations

import math
from typing import Literal

from pydantic import BaseModel, ConfigDict, model_validator

from toolbox.ground.model.bounds import GATED_FROM, Bound, Method, Side
from toolbox.ground.model.evidence import Deviation, Evidence, Judgement, Metric
from toolbox.judges.checks import Limit


class Check(BaseModel):
    """A metric, and the range of its allowed values. A value that equals a bound is allowed.

    A configured range applies to each sample, if the metric has samples. With `bounds: auto`, the range comes from
    `config/bounds` and applies only to the value of the metric.
    """

    model_config = ConfigDict(extra="forbid")

    metric: str
    lower: Limit | None = None
    upper: Limit | None = None
    bounds: Literal["auto"] | None = None

    @model_validator(mode="after")
    def _has_bounds(self) -> Check:
        if self.bounds is not None and (self.lower is not None or self.upper is not None):
            raise ValueError("set `lower` and `upper`, or set `bounds: auto`, but not all of them")
        if self.bounds is None and self.lower is None and self.upper is None:
            raise ValueError("set `lower`, `upper` or both, or `bounds: auto`")
        if self.lower is not None and self.upper is not None and self.lower > self.upper:
            raise ValueError(f"the lower bound {self.lower:g} is above the upper bound {self.upper:g}")
        return self

    def judge(self, evidence: Evidence) -> Judgement:
        """Compare the metric with its bounds."""
        metric = evidence.metrics.get(self.metric)
        if metric is None:
            return Judgement(
                False,
                f"{self.metric} is not a metric of this cell; its metrics: {', '.join(evidence.metrics) or 'none'}",
            )
        if metric.value is None:
            return Judgement(False, f"{self.metric} is {metric}")
        if metric.samples and self.bounds is None:
            return self._judge_each(metric)
        if not math.isfinite(metric.value):
            return Judgement(False, f"{self.metric} must be a finite number, not {metric}")
        if self.bounds is not None:
            return self._judge_by_history(metric, metric.value, evidence.bounds.get(self.metric))
        side = self._range.side(metric.value)
        unit = _unit(metric)
        if side is None:
            return Judgement(True, f"{self.metric} is {metric}, within {self._range.range}{unit}")
        name, limit = ("upper", self.upper) if side is Side.ABOVE else ("lower", self.lower)
        message = f"{self.metric} is {metric}, {side} its {name} bound {limit:g}{unit}"
        return Judgement(False, message, out_of_range=True)

    @property
    def _range(self) -> Bound:
        return Bound(self.lower, self.upper, None, None, Method.MANUAL)

    def _judge_by_history(self, metric: Metric, value: float, bound: Bound | None) -> Judgement:
        if bound is None:
            hint = "`results update_bounds` writes bounds when there are enough runs"
            return Judgement(None, f"{self.metric} is {metric}; there are no bounds yet: {hint}")
        if not bound.is_in(metric.unit):
            unit = bound.unit or "bare numbers"
            message = (
                f"{self.metric} is {metric}, and its bounds are in {unit}: `results update_bounds` computes new bounds"
            )
            # Bounds are computed from cells that passed. If this check failed, there would never be new bounds.
            return Judgement(None, message)
        side = bound.side(value)
        unit = _unit(metric)
        if side is None:
            return Judgement(True, f"{self.metric} is {metric}, within {bound.range}{unit}")
        improves = side.is_good(metric.direction)
        message = f"{self.metric} is {metric}, {bound.deviation_text(value)}{side} {bound.range}{unit}, {bound.origin}"
        if improves:
            message += ": this is the better side, but check that the workload still did all its work"
        deviation = Deviation(self.metric, side, improves)
        if not bound.is_gating:
            text = f"{message}; bounds from fewer than {GATED_FROM} values do not fail the check"
            return Judgement(None, text, deviation=deviation)
        return Judgement(False, message, deviation=deviation, out_of_range=True)

    def _judge_each(self, metric: Metric) -> Judgement:
        unit, allowed = _unit(metric), self._range.range
        outside = [sample for sample in metric.samples if self._distance(sample) > 0]
        if not outside:
            return Judgement(True, f"all {len(metric.samples)} values of {self.metric} are within {allowed}{unit}")
        worst = max(outside, key=self._distance)
        message = f"{len(outside)} of {len(metric.samples)} values of {self.metric} are out of {allowed}{unit}"
        return Judgement(
            False, f"{message}, the worst is {worst:.6g}{unit}", out_of_range=all(map(math.isfinite, metric.samples))
        )

    def _distance(self, value: float) -> float:
        """Return the distance of a value from the range: 0 inside the range, infinity for NaN."""
        if not math.isfinite(value):
            return math.inf
        below = 0 if self.lower is None else self.lower - value
        above = 0 if self.upper is None else value - self.upper
        return max(0, below, above)


def _unit(metric: Metric) -> str:
    return f" {metric.unit}" if metric.unit else ""
