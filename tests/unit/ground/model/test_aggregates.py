"""Several numbers are reduced to one by an aggregate."""

import math
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolbox.ground.model import aggregates
from toolbox.ground.model.aggregates import Aggregate

NUMBERS = st.lists(st.floats(-1e100, 1e100), min_size=1, max_size=60)
PERCENTS: list[tuple[Aggregate, int]] = [("p50", 50), ("p90", 90), ("p95", 95), ("p99", 99), ("median", 50)]


def of(values: list[float], how: Aggregate) -> float:
    """Return the aggregate of values, which must be a single number."""
    result = aggregates.aggregate(values, how, source="x")
    assert isinstance(result, float)
    return result


@pytest.mark.parametrize(
    ("how", "value"),
    [
        ("median", 2.5), ("mean", 3), ("first", 4), ("last", 1), ("min", 1), ("max", 6), ("sum", 12), ("count", 4),
        ("p50", 2.5), ("p90", 5.4), ("p95", 5.7), ("p99", 5.94),
    ],
)  # fmt: skip
def test_each_aggregate_of_four_numbers(how: Aggregate, value: float) -> None:
    assert of([4, 6, 1, 1], how) == pytest.approx(value)


def test_each_returns_all_numbers_in_their_order() -> None:
    assert aggregates.aggregate([4, 6, 1], "each", source="x") == (4, 6, 1)


@pytest.mark.parametrize("how", sorted(set(get_args(Aggregate)) - {"each", "count"}))
def test_every_aggregate_of_one_number_is_this_number(how: Aggregate) -> None:
    assert of([0.1], how) == 0.1
    assert how == "sum" or of([0.1, 0.1, 0.1], how) == 0.1


@given(NUMBERS)
def test_percentiles_are_those_of_numpy(values: list[float]) -> None:
    for how, percent in PERCENTS:
        theirs = float(np.percentile(values, percent))
        assert math.isclose(of(values, how), theirs, rel_tol=1e-9, abs_tol=1e-12 * max(map(abs, values)))


@given(NUMBERS)
def test_means_and_sums_are_those_of_numpy(values: list[float]) -> None:
    close = 1e-12 * sum(map(abs, values))
    assert math.isclose(of(values, "mean"), float(np.mean(values)), rel_tol=1e-9, abs_tol=close)
    assert math.isclose(of(values, "sum"), float(np.sum(values)), rel_tol=1e-9, abs_tol=close)


@given(NUMBERS)
def test_percentiles_rise_and_stay_between_the_extremes(values: list[float]) -> None:
    rising = [min(values), *(of(values, how) for how, _ in PERCENTS[:-1]), max(values)]
    assert rising == sorted(rising)


@pytest.mark.parametrize("how", get_args(Aggregate))
def test_the_aggregate_of_no_numbers_is_an_error(how: Aggregate) -> None:
    with pytest.raises(ValueError, match=r"^m\.json: 0 numbers were found$"):
        aggregates.aggregate([], how, source="m.json")


@pytest.mark.parametrize("how", ["sum", "median", "p50"])
def test_a_result_that_is_not_a_finite_number_is_refused(how: Aggregate) -> None:
    with pytest.raises(ValueError, match=rf"^x: the {how} of 4 numbers is too large"):
        of([-1.7e308, -1.7e308, 1.7e308, 1.7e308] if how == "p50" else [1.7e308] * 4, how)


@pytest.mark.parametrize(("warmup", "left"), [(0, [1, 2, 3]), (1, [2, 3]), (2, [3])])
def test_the_warmup_is_dropped(warmup: int, left: list[int]) -> None:
    assert aggregates.after_warmup(iter([1, 2, 3]), warmup, source="x") == left


@pytest.mark.parametrize(
    ("found", "warmup", "message"),
    [
        ([], 0, "^x: 0 numbers were found$"),
        ([1], 1, "^x: 1 numbers were found, and the warm-up of 1 removes all of them$"),
        ([], 5, "^x: 0 numbers were found, and the warm-up of 5 removes all of them$"),
    ],
)
def test_a_warmup_that_leaves_no_number_is_an_error(found: list[int], warmup: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        aggregates.after_warmup(found, warmup, source="x")


@pytest.mark.parametrize(("text", "value"), [("1", 1.0), (" -2.5e-3\n", -0.0025), ("+0", 0.0), (".5", 0.5)])
def test_a_text_with_a_number_is_parsed(text: str, value: float) -> None:
    assert aggregates.parse_number(text, source="x") == value


@pytest.mark.parametrize("text", ["", "-", "1.2.3", "n/a", "nan", "-inf", "1e999", "1,5", "0x10", "1 2", "12s"])
def test_a_text_without_a_finite_number_is_shown(text: str) -> None:
    with pytest.raises(ValueError, match=r"^log:3 must be a finite number, not .+$"):
        aggregates.parse_number(text, source="log:3")


@pytest.mark.parametrize("value", [True, None, "1", math.nan, math.inf, 10**400, -(10**4000), [1], {}, b"1"])
def test_a_value_that_is_not_a_finite_number_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"^x must be a finite number, not .+$"):
        aggregates.number(value, source="x")


def test_a_missing_number_is_shown_as_in_the_file() -> None:
    with pytest.raises(ValueError, match=r"^x must be a finite number, not null$"):
        aggregates.number(None, source="x")


def test_a_huge_list_of_lists_is_not_shown() -> None:
    laughs: list[object] = ["ha"]
    for _ in range(60):
        laughs = [laughs, laughs]
    with pytest.raises(ValueError, match=r"^x must be a finite number, not a list$"):
        aggregates.number(laughs, source="x")
