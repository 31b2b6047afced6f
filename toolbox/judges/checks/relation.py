"""Compares a metric with the same metric of another cell, as a ratio or as a speedup."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from toolbox.ground.model.evidence import Evidence, Judgement, Metric
from toolbox.judges.checks import Limit


class Check(BaseModel):
    """A metric, the reference cell, and the range of the allowed quotients. A quotient that equals a bound is allowed.

    Args:
        to: the axis values of the reference cell that differ from those of the judged cell.
        kind: `ratio` is the value of the judged cell divided by the value of the reference cell. `speedup`, for
            durations, is the inverse.
    """

    model_config = ConfigDict(extra="forbid")

    metric: str
    to: dict[str, Any] = Field(min_length=1)
    lower: Limit | None = None
    upper: Limit | None = None
    kind: Literal["ratio", "speedup"] = "ratio"

    @model_validator(mode="after")
    def _has_bounds(self) -> Check:
        if self.lower is None and self.upper is None:
            raise ValueError("set `lower`, `upper` or both")
        if self.lower is not None and self.upper is not None and self.lower > self.upper:
            raise ValueError(f"the lower bound {self.lower:g} is above the upper bound {self.upper:g}")
        return self

    def judge(self, evidence: Evidence) -> Judgement:
        """Compare the quotient with its bounds."""
        reference = evidence.reference
        if reference is None:
            return Judgement(None, "outside of a matrix, there is no cell to compare with")
        if reference.is_missing:
            fault = reference.fault or "it was not run"
            return Judgement(None, f"no comparison is possible with `{reference.name}` ({fault})")
        if reference.metrics is None:
            return Judgement(False, f"`{reference.name}` has no metrics: {reference.fault or 'it did not pass'}")
        try:
            judged = _measured(evidence.metrics, self.metric, "this cell")
            compared = _measured(reference.metrics, self.metric, "the compared cell")
            quotient = self._quotient(judged, compared)
        except ValueError as error:
            return Judgement(False, f"{self.metric} cannot be compared with that of `{reference.name}`: {error}")
        passed = (self.lower is None or quotient >= self.lower) and (self.upper is None or quotient <= self.upper)
        relation = "times that of" if self.kind == "ratio" else "times as fast as in"
        message = f"{self.metric} is {quotient:.6g} {relation} `{reference.name}` ({judged} against {compared})"
        return Judgement(passed, f"{message}; required: {self._expected()}", out_of_range=not passed)

    def _quotient(self, judged: Metric, compared: Metric) -> float:
        if judged.unit != compared.unit:
            raise ValueError(f"{judged} and {compared} have different units")
        dividend, divisor = judged.value, compared.value
        if self.kind == "speedup":
            dividend, divisor = divisor, dividend
        assert dividend is not None
        quotient = dividend / divisor if divisor else math.inf
        if not math.isfinite(quotient):
            raise ValueError(f"the {self.kind} of {judged} and {compared} is undefined")
        return quotient

    def _expected(self) -> str:
        if self.lower is None:
            return f"at most {self.upper:g}"
        return f"at least {self.lower:g}" if self.upper is None else f"{self.lower:g} to {self.upper:g}"


def _measured(metrics: Mapping[str, Metric], name: str, cell: str) -> Metric:
    """Return the metric with this name, and raise ValueError if it does not have a finite value."""
    if name not in metrics:
        raise ValueError(f"{name} is not a metric of {cell}; its metrics: {', '.join(metrics) or 'none'}")
    metric = metrics[name]
    if metric.value is None or not math.isfinite(metric.value):
        raise ValueError(f"in {cell}, {name} is not a finite number: {metric}")
    return metric
