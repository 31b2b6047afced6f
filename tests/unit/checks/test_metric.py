"""A metric within its bounds."""

import math

import pytest

from toolbox.model.evidence import Metric
from toolbox.orchestration import judging

from .conftest import Judge


@pytest.mark.parametrize(
    ("lower", "upper", "said"),
    [
        (None, 2.0, "step_time is 1.5 s, within [-, 2] s"),
        (1.0, None, "step_time is 1.5 s, within [1, -] s"),
        (1.5, 1.5, "step_time is 1.5 s, within [1.5, 1.5] s"),
    ],
)
def test_a_metric_within_its_bounds_passes(judge: Judge, lower: float | None, upper: float | None, said: str) -> None:
    judgement = judge(Metric("step_time", 1.5, "s"), check="metric", metric="step_time", lower=lower, upper=upper)
    assert (judgement.passed, judgement.message) == (True, said)


@pytest.mark.parametrize(
    ("lower", "upper", "said"),
    [
        (None, 1.4, "step_time is 1.5 s, above its upper bound 1.4 s"),
        (1.6, None, "step_time is 1.5 s, below its lower bound 1.6 s"),
        (0.0, math.nextafter(1.5, 0), "step_time is 1.5 s, above its upper bound 1.5 s"),
    ],
)
def test_a_metric_out_of_bounds_fails_with_value_and_bound(
    judge: Judge, lower: float | None, upper: float | None, said: str
) -> None:
    judgement = judge(Metric("step_time", 1.5, "s"), check="metric", metric="step_time", lower=lower, upper=upper)
    assert (judgement.passed, judgement.message) == (False, said)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_metric_that_is_no_number_is_never_within_bounds(judge: Judge, value: float) -> None:
    judgement = judge(Metric("loss", value), check="metric", metric="loss", lower=-1e308, upper=1e308)
    assert not judgement.passed
    assert str(value) in judgement.message


def test_a_metric_that_could_not_be_read_fails_and_says_why(judge: Judge) -> None:
    judgement = judge(Metric("loss", None, "", "metrics.json is not there"), check="metric", metric="loss", upper=1)
    assert (judgement.passed, judgement.message) == (False, "loss is unknown (metrics.json is not there)")


def test_a_metric_that_nobody_measures_fails_and_names_those_there_are(judge: Judge) -> None:
    assert (
        judge(Metric("loss", 1.0), check="metric", metric="lost", upper=1).message == "lost is not a metric here: loss"
    )
    assert judge(check="metric", metric="lost", upper=1).message == "lost is not a metric here: there are none"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({}, "a lower or an upper bound was expected"),
        ({"lower": 2, "upper": 1}, "the lower bound 2 is above the upper bound 1"),
        ({"upper": math.nan}, "upper"),
        ({"lower": -math.inf}, "lower"),
        ({"upper": "fast"}, "upper"),
        ({"upper": 1, "uper": 2}, "uper"),
        ({"upper": 1, "metric": None}, "metric"),
    ],
)
def test_bounds_that_could_never_fail_or_never_pass_are_refused(spec: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        judging.parse_check({"check": "metric", "metric": "loss", **spec})
