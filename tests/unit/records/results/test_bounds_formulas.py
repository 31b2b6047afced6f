"""The formulas of bounds give the examples of docs/bounds.md and the stated rates of false alarms."""

import datetime as dt
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from toolbox.ground.model.bounds import Direction, Method
from toolbox.records.results import bounds_formulas, change_points
from toolbox.records.results.series import RunReference, Series

MANUAL = Path(__file__).parents[4] / "docs" / "bounds.md"
SAMPLE = [5.20, 4.90, 4.90, 5.10, 4.90, 5.05, 4.95, 5.05, 4.95, 5.00]  # from docs/bounds.md
BEGIN = dt.datetime(2026, 10, 21, 2, tzinfo=dt.UTC)
METHODS = [Method.TORCHPRIME, Method.PREDICTION, Method.RATIO]

numbers = st.floats(min_value=-1e12, max_value=1e12, allow_subnormal=False)
samples = st.lists(numbers, min_size=5, max_size=40)


def series(values: NDArray[np.float64]) -> Series:
    runs = tuple(RunReference(f"run-{day}", BEGIN + dt.timedelta(days=day)) for day in range(len(values)))
    return Series("p", "3f2a", "model=small", {}, "step_time", "s", Direction.LOWER, runs, values)


def steady(count: int, level: float = 10, seed: int = 1) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(level, 0.02 * level, count)


def test_torchprime_on_the_sample_of_the_manual() -> None:
    assert bounds_formulas.interval(SAMPLE, Method.TORCHPRIME) == pytest.approx((4.8, 5.2, 5.0))
    assert f"{4.78091 * 0.1 / math.sqrt(10):.5f}" in MANUAL.read_text()


def test_prediction_on_the_sample_of_the_manual() -> None:
    lower, upper, _ = bounds_formulas.interval(SAMPLE, Method.PREDICTION)
    assert (lower, upper) == pytest.approx((4.498573, 5.501427), abs=1e-6)
    assert f"[{lower:.5f}, {upper:.5f}]" in MANUAL.read_text()


def test_ratio_on_the_sample_of_the_manual() -> None:
    assert bounds_formulas.interval(SAMPLE, Method.RATIO) == pytest.approx((4.166667, 6.0, 5.0))
    assert "[4.16667, 6.00000]" in MANUAL.read_text()


def test_torchprime_is_the_interval_of_the_mean_if_this_is_the_widest() -> None:
    half = 8.610302 * math.sqrt(0.025 / 5)  # the critical value for 4 degrees of freedom, from a table
    assert bounds_formulas.interval([10, 10.2, 9.9, 10.1, 9.8], Method.TORCHPRIME) == pytest.approx(
        (10 - half, 10 + half, 10)
    )


@pytest.mark.parametrize("method", [Method.TORCHPRIME, Method.PREDICTION])
@pytest.mark.parametrize("value", [10.0, -10.0])
def test_bounds_of_values_without_spread_are_a_share_of_the_mean(method: Method, value: float) -> None:
    assert bounds_formulas.interval([value] * 6, method) == pytest.approx((value - 0.15, value + 0.15, value))


def test_ratio_of_a_negative_mean_has_its_bounds_in_order() -> None:
    assert bounds_formulas.interval([-12.0] * 5, Method.RATIO) == pytest.approx((-14.4, -10, -12))


@pytest.mark.parametrize("method", METHODS)
def test_values_that_are_all_zero_have_zero_bounds(method: Method) -> None:
    assert bounds_formulas.interval([0.0] * 10, method) == (0, 0, 0)


@pytest.mark.parametrize("confidence", [0.5, 1, 0, 99.9, math.nan])
@pytest.mark.parametrize("method", METHODS)
def test_an_invalid_confidence_is_refused(method: Method, confidence: float) -> None:
    with pytest.raises(ValueError, match=r"the confidence must be above 0.5 and below 1, not .*"):
        bounds_formulas.interval(SAMPLE, method, confidence)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, 1e200])
def test_a_value_that_is_not_finite_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="finite numbers"):
        bounds_formulas.interval([*SAMPLE, wrong], Method.PREDICTION)


def test_one_value_has_no_bounds() -> None:
    with pytest.raises(ValueError, match="at least 2 values, but there are only 1"):
        bounds_formulas.interval([1.0], Method.PREDICTION)


def test_manual_bounds_have_no_formula() -> None:
    with pytest.raises(ValueError, match="manual"):
        bounds_formulas.interval(SAMPLE, Method.MANUAL)


@given(samples, st.sampled_from(METHODS))
def test_bounds_of_mirrored_values_are_mirrored(values: list[float], method: Method) -> None:
    lower, upper, mean = bounds_formulas.interval(values, method)
    assert bounds_formulas.interval([-value for value in values], method) == pytest.approx((-upper, -lower, -mean))


@given(samples)
@example([4.6e-90, -1.1e11, -1.8e11, -2.2e11, -1.9e11, -1.5e11, -2.8e11, -1.4e11])
def test_torchprime_bounds_contain_all_values_that_they_are_computed_from(values: list[float]) -> None:
    bound = bounds_formulas.bound_of(series(np.array(values)), method=Method.TORCHPRIME)
    assert bound is not None
    assert {bound.side(value) for value in values} == {None}


@given(samples, st.sampled_from(METHODS))
def test_rounding_goes_outward_and_keeps_six_digits(values: list[float], method: Method) -> None:
    bound = bounds_formulas.bound_of(series(np.array(values)), method=method)
    assert bound is not None
    assert bound.lower is not None
    assert bound.upper is not None
    assert bound.mean is not None
    window = values[-bound.samples :] if bound.samples else values
    lower, upper, _ = bounds_formulas.interval(window, method)
    assert bound.lower <= lower <= upper <= bound.upper
    assert bound.lower <= bound.mean <= bound.upper
    assert float(f"{bound.lower:.5e}") == bound.lower


@pytest.mark.parametrize("method", METHODS)
def test_a_series_with_a_value_that_is_too_large_is_refused(method: Method) -> None:
    with pytest.raises(ValueError, match=r"^bounds need finite numbers below 1e\+150, but one number is 1e\+200$"):
        bounds_formulas.bound_of(series(np.array([*SAMPLE, 1e200])), method=method)


@pytest.mark.parametrize("method", METHODS)
def test_four_values_are_too_few(method: Method) -> None:
    assert bounds_formulas.bound_of(series(steady(4)), method=method) is None
    assert bounds_formulas.bound_of(series(steady(5)), method=method) is not None


def test_prediction_uses_the_last_30_values() -> None:
    values = steady(100)
    bound = bounds_formulas.bound_of(series(values))
    assert bound is not None
    assert (bound.samples, bound.since) == (30, BEGIN + dt.timedelta(days=70))
    assert bound.mean == pytest.approx(values[-30:].mean(), rel=1e-5)


def test_prediction_uses_no_value_before_a_change() -> None:
    values = np.concatenate([steady(60), steady(20, level=15, seed=2)])
    bound = bounds_formulas.bound_of(series(values))
    assert bound is not None
    assert (bound.samples, bound.since) == (20, BEGIN + dt.timedelta(days=60))
    assert bound.side(10) is not None


def test_a_suspected_change_does_not_limit_the_values() -> None:
    values = np.concatenate([steady(60), steady(5, level=15, seed=2)])
    assert [change.state for change in change_points.detect(values)] == [change_points.State.SUSPECT]
    bound = bounds_formulas.bound_of(series(values))
    assert bound is not None
    assert bound.samples == 30


@pytest.mark.parametrize("method", [Method.TORCHPRIME, Method.RATIO])
def test_the_other_methods_use_all_values(method: Method) -> None:
    bound = bounds_formulas.bound_of(series(np.concatenate([steady(60), steady(20, level=15, seed=2)])), method=method)
    assert bound is not None
    assert (bound.samples, bound.since, bound.until) == (80, BEGIN, BEGIN + dt.timedelta(days=79))


def test_bounds_contain_their_method_and_confidence() -> None:
    found = [bounds_formulas.bound_of(series(steady(12)), method=method, confidence=0.99) for method in METHODS]
    assert [(one.unit, one.method, one.confidence) for one in found if one] == [
        ("s", Method.TORCHPRIME, 0.99),
        ("s", Method.PREDICTION, 0.99),
        ("s", Method.RATIO, None),
    ]


def false_alarms(method: Method, n: int, draws: int = 200_000) -> float:
    """Return the share of values that are out of the bounds of n values from the same distribution."""
    drawn = np.random.default_rng(20_261_121).normal(10, 1, (draws, n + 1))
    values, new = drawn[:, :n], drawn[:, n]
    return float((np.abs(new - values.mean(axis=1)) > bounds_formulas.half_width(values, method)).mean())


@pytest.mark.parametrize("n", [10, 30])
def test_one_in_a_thousand_is_a_false_alarm_by_prediction(n: int) -> None:
    error = math.sqrt(0.001 * 0.999 / 200_000)
    assert false_alarms(Method.PREDICTION, n) == pytest.approx(0.001, abs=3 * error)


@pytest.mark.parametrize(("n", "rate"), [(10, 0.1227), (30, 0.0379)])
def test_torchprime_has_many_more_false_alarms(n: int, rate: float) -> None:
    assert false_alarms(Method.TORCHPRIME, n) == pytest.approx(rate, abs=0.002)
