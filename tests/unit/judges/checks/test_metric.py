"""The check `metric` compares a metric with its bounds."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from toolbox.ground.model.bounds import Bound, Direction, Method, Side
from toolbox.ground.model.evidence import Deviation, Evidence, Judgement, Metric
from toolbox.judges.checks.metric import Check

from .conftest import Judge


@pytest.mark.parametrize(
    ("lower", "upper", "message"),
    [
        (None, 2.0, "step_time is 1.5 s, within [-, 2] s"),
        (1.0, None, "step_time is 1.5 s, within [1, -] s"),
        (1.5, 1.5, "step_time is 1.5 s, within [1.5, 1.5] s"),
    ],
)
def test_a_metric_within_its_bounds_passes(
    judge: Judge, lower: float | None, upper: float | None, message: str
) -> None:
    judgement = judge(Metric("step_time", 1.5, "s"), check="metric", metric="step_time", lower=lower, upper=upper)
    assert (judgement.passed, judgement.message) == (True, message)


@pytest.mark.parametrize(
    ("lower", "upper", "message"),
    [
        (None, 1.4, "step_time is 1.5 s, above its upper bound 1.4 s"),
        (1.6, None, "step_time is 1.5 s, below its lower bound 1.6 s"),
        (0.0, math.nextafter(1.5, 0), "step_time is 1.5 s, above its upper bound 1.5 s"),
    ],
)
def test_a_metric_out_of_bounds_fails_with_value_and_bound(
    judge: Judge, lower: float | None, upper: float | None, message: str
) -> None:
    judgement = judge(Metric("step_time", 1.5, "s"), check="metric", metric="step_time", lower=lower, upper=upper)
    assert (judgement.passed, judgement.message) == (False, message)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_metric_that_is_not_a_number_is_never_within_bounds(judge: Judge, value: float) -> None:
    judgement = judge(Metric("loss", value), check="metric", metric="loss", lower=-1e308, upper=1e308)
    assert not judgement.passed
    assert str(value) in judgement.message


def test_a_metric_that_could_not_be_read_fails_and_says_why(judge: Judge) -> None:
    judgement = judge(Metric("loss", None, "", "metrics.json does not exist"), check="metric", metric="loss", upper=1)
    assert (judgement.passed, judgement.message) == (False, "loss is unknown (metrics.json does not exist)")


def test_an_unknown_metric_fails_and_names_the_known_metrics(judge: Judge) -> None:
    assert (
        judge(Metric("loss", 1.0), check="metric", metric="lost", upper=1).message
        == "lost is not a metric of this cell; its metrics: loss"
    )
    assert (
        judge(check="metric", metric="lost", upper=1).message == "lost is not a metric of this cell; its metrics: none"
    )


def test_every_sample_must_be_within_the_bounds(judge: Judge) -> None:
    steps = Metric("step_time", 1.5, "s", samples=(1.0, 1.5, 2.0))
    within = judge(steps, check="metric", metric="step_time", lower=1, upper=2)
    assert (within.passed, within.message) == (True, "all 3 values of step_time are within [1, 2] s")


@pytest.mark.parametrize(
    ("lower", "upper", "message"),
    [
        (None, 2, "2 of 5 values of step_time are out of [-, 2] s, the worst is 7.25 s"),
        (1, None, "1 of 5 values of step_time are out of [1, -] s, the worst is 0.5 s"),
        (1.75, 6.75, "4 of 5 values of step_time are out of [1.75, 6.75] s, the worst is 0.5 s"),
    ],
)
def test_samples_out_of_bounds_are_counted_and_the_worst_is_shown(
    judge: Judge, lower: float | None, upper: float | None, message: str
) -> None:
    steps = Metric("step_time", 1.5, "s", samples=(1.5, 7.25, 0.5, 1.0, 2.5))
    judgement = judge(steps, check="metric", metric="step_time", lower=lower, upper=upper)
    assert (judgement.passed, judgement.message) == (False, message)


@pytest.mark.parametrize("sample", [math.nan, math.inf, -math.inf])
def test_a_sample_that_is_not_a_number_is_the_worst(judge: Judge, sample: float) -> None:
    judgement = judge(Metric("loss", 2, samples=(2, 9, sample)), check="metric", metric="loss", lower=1, upper=3)
    assert (judgement.passed, judgement.message) == (
        False,
        f"2 of 3 values of loss are out of [1, 3], the worst is {sample}",
    )


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "set `lower`, `upper` or both"),
        ({"lower": 2, "upper": 1}, "the lower bound 2 is above the upper bound 1"),
        ({"upper": math.nan}, "upper"),
        ({"lower": -math.inf}, "lower"),
        ({"upper": "fast"}, "upper"),
        ({"lower": True}, "lower\n.*a bound is a number, not `true` or `false`"),
        ({"upper": 1, "uper": 2}, "uper"),
        ({"upper": 1, "metric": None}, "metric"),
    ],
)
def test_bounds_that_could_never_fail_or_never_pass_are_refused(spec: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Check.model_validate({"metric": "loss", **spec})


BOUND = Bound(0.9, 1.1, 1.0, 30, Method.PREDICTION, "s")
AUTO = {"check": "metric", "metric": "time", "bounds": "auto"}


def by_history(value: float, bound: Bound | None = BOUND, direction: Direction | None = Direction.LOWER) -> Judgement:
    """Return the judgement of a value by bounds from earlier runs."""
    metric = Metric("time", value, "s", direction=direction)
    bounds = {"time": bound} if bound is not None else {}
    check = Check.model_validate({key: text for key, text in AUTO.items() if key != "check"})
    return check.judge(Evidence(Path(), {"time": metric}, bounds=bounds))


def test_a_metric_within_the_bounds_of_earlier_runs_passes() -> None:
    found = by_history(1.1)
    assert (found.passed, found.message, found.deviation) == (True, "time is 1.1 s, within [0.9, 1.1] s", None)


@pytest.mark.parametrize(
    ("value", "direction", "deviation"),
    [
        (1.2, Direction.LOWER, Deviation("time", Side.ABOVE, improves=False)),
        (0.8, Direction.LOWER, Deviation("time", Side.BELOW, improves=True)),
        (1.2, Direction.HIGHER, Deviation("time", Side.ABOVE, improves=True)),
        (0.8, None, Deviation("time", Side.BELOW, improves=False)),
    ],
)
def test_a_metric_out_of_the_bounds_of_earlier_runs_names_its_side(
    value: float, direction: Direction | None, deviation: Deviation
) -> None:
    found = by_history(value, direction=direction)
    assert (found.passed, found.deviation) == (False, deviation)
    message = f"time is {value} s, 20 % {deviation.side} the usual 1, and {deviation.side} [0.9, 1.1] s, from 30 values"
    assert found.message.startswith(message)
    assert ("this is the better side" in found.message) is deviation.improves


@pytest.mark.parametrize(("samples", "passed"), [(5, None), (9, None), (10, False), (None, False)])
def test_bounds_of_few_runs_do_not_fail_anything(samples: int | None, passed: bool | None) -> None:
    found = by_history(2.0, replace(BOUND, samples=samples))
    assert found.passed is passed
    assert found.deviation is not None


def test_without_bounds_the_metric_is_not_judged() -> None:
    assert by_history(2.0, None).passed is None


@pytest.mark.parametrize(("unit", "shown"), [("ms", "ms"), ("", "bare numbers")])
def test_bounds_in_another_unit_are_not_used(unit: str, shown: str) -> None:
    found = by_history(3.0, replace(BOUND, unit=unit))
    message = f"time is 3 s, and its bounds are in {shown}: `results update_bounds` computes new bounds"
    assert found == Judgement(None, message)


def test_bounds_without_a_unit_have_the_unit_of_the_metric() -> None:
    by_hand = Bound(None, 1.1, None, None, Method.MANUAL)
    assert by_history(1.0, by_hand).message == "time is 1 s, within [-, 1.1] s"
    assert by_history(1.2, by_hand).passed is False


def test_fixed_bounds_and_automatic_bounds_exclude_each_other() -> None:
    with pytest.raises(ValidationError, match="set `lower` and `upper`, or set `bounds: auto`, but not all of them"):
        Check.model_validate({"metric": "time", "bounds": "auto", "lower": 1})
