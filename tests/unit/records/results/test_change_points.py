"""Shifts of the level are found in real series and in generated series, and have general properties."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.records.results import labelled_series
from tests.unit.records.results.labelled_series import Rng, Score, Values, score
from toolbox.records.results.change_points import ChangePoint, State, detect, detect_between_gaps

# This is SAP's performance-regression data set of 2021 (CC-BY-4.0): 25 series of a database's nightly runs.
REAL: Final = Path(__file__).parents[5] / "shared" / "data" / "sap_small_2021.jsonl"
whole = st.integers(-1000, 1000)


def places(values: Any) -> list[int]:
    return [change.index for change in detect(values)]


def noisy(*levels: tuple[float, int], seed: int = 0) -> Values:
    """Return normal noise of spread 1 around levels, each of which is a height and a number of points."""
    level = np.repeat([float(height) for height, _ in levels], [count for _, count in levels])
    return level + np.random.default_rng(seed).standard_normal(len(level))


@pytest.fixture(scope="module")
def real() -> list[dict[str, Any]]:
    if not REAL.is_file():
        pytest.skip(f"{REAL.name} is not beside this repository")
    return [json.loads(line) for line in REAL.read_text(encoding="utf-8").splitlines()]


def test_the_regressions_of_real_series_are_found(real: list[dict[str, Any]]) -> None:
    regressions = [series for series in real if series["type"] == "regression"]
    results = [score([series["cp"]], places(series["values"])) for series in regressions]
    assert results == [Score(hits=1)] * 5


def test_real_series_without_a_regression_raise_at_most_one_alarm(real: list[dict[str, Any]]) -> None:
    decoys = [series for series in real if series["type"] != "regression"]
    assert len(decoys) == 20
    assert sum(len(places(series["values"])) for series in decoys) <= 1


def test_most_visible_shifts_are_found_with_few_false_alarms() -> None:
    made = labelled_series.collection(seed=11, count=20)
    total = sum((score(series.labels, places(series.values)) for series in made), Score())
    assert total.hits + total.missed > 100
    assert total.precision > 0.8
    assert total.recall > 0.75


@pytest.mark.parametrize("kind", labelled_series.NOISE)
def test_noise_raises_less_than_one_alarm_in_a_thousand_points(kind: str) -> None:
    rng = np.random.default_rng(5)
    made = [labelled_series.series(kind, rng, size=size, shifts=0) for size in (30, 100, 300) for _ in range(20)]
    points = sum(len(series.values) for series in made)
    assert sum(len(places(series.values)) for series in made) < points / 1000


HARD: Final[dict[str, Callable[[Rng], Values]]] = {
    "tails without a variance": lambda rng: rng.standard_cauchy(200),
    "a steep drift": lambda rng: rng.standard_normal(200) + np.linspace(0, 40, 200),
    "a slow drift": lambda rng: rng.standard_normal(200) + np.linspace(0, 5, 200),
    "few distinct values": lambda rng: np.round(rng.standard_normal(200) * 0.3),
    "a rare second mode": lambda rng: rng.standard_normal(200) + 10 * (rng.random(200) < 0.1),
    "constant but for outliers": lambda rng: np.where(rng.random(200) < 0.05, 9.0, 1.0),
    "a spread that changes fivefold": lambda rng: rng.standard_normal(200) * np.repeat([1, 5, 1, 5], 50),
    "excursions of four points": lambda rng: rng.standard_normal(200) + 8 * (np.arange(10, 210) % 40 < 4),
}


@pytest.mark.parametrize("kind", HARD)
def test_series_without_levels_raise_few_alarms(kind: str) -> None:
    rng = np.random.default_rng(3)
    assert sum(len(places(HARD[kind](rng))) for _ in range(25)) <= 4  # the 25 series have 5,000 points


def test_a_clean_step_is_found_exactly_with_its_levels() -> None:
    (change,) = detect([10.0, 10.2, 9.8] * 10 + [15.0, 15.2, 14.8] * 10)
    assert (change.index, change.state) == (30, State.CONFIRMED)
    assert (change.before, change.after, change.ratio) == (10.0, 15.0, 1.5)
    assert change.p_value < 1e-20


def test_a_step_between_constants_is_found() -> None:
    assert places([3.0] * 20 + [4.0] * 20) == [20]
    assert places([3.0] * 20 + [4.0] * 6) == [20]
    assert detect([0.0] * 20 + [4.0] * 20)[0].ratio is None
    assert detect([-4.0] * 20 + [2.0] * 20)[0].ratio == -0.5


def test_outliers_neither_hide_nor_move_a_step() -> None:
    values = noisy((0, 40), (5, 40))
    values[[3, 17, 33, 44, 60, 79]] = [900, -700, 400, -800, 1e6, 50]
    assert places(values) == [40]


def test_a_step_in_drift_is_found() -> None:
    drift = np.linspace(0, 4, 100)
    assert places(noisy((0, 50), (4, 50)) + drift) == [50]
    assert not places(noisy((0, 100)) + drift)


def test_two_short_levels_without_a_common_value_are_distinguished() -> None:
    assert places([*noisy((0, 7), (9, 7))]) == [7]


def test_close_levels_are_distinguished() -> None:
    assert score([30, 45, 60], places(noisy((0, 30), (8, 15), (-4, 15), (3, 40)))) == Score(hits=3)


def test_the_levels_around_a_change_reach_to_the_next_change() -> None:
    first, second = detect([1.0, 1.1] * 10 + [5.0, 5.1] * 10 + [9.0, 9.1] * 10)
    assert (first.before, first.after) == (1.05, 5.05)
    assert (second.before, second.after) == (5.05, 9.05)


@pytest.mark.parametrize(
    ("points", "state"), [(2, None), (3, State.SUSPECT), (4, State.SUSPECT), (5, State.SUSPECT), (6, State.CONFIRMED)]
)
def test_a_shift_at_the_end_is_a_suspect_until_it_lasts(points: int, state: State | None) -> None:
    found = detect(noisy((100, 60), (110, points)))
    assert [(change.index, change.state) for change in found] == ([(60, state)] if state else [])
    assert [change.after for change in found] == [pytest.approx(110, abs=2)] * len(found)


@pytest.mark.parametrize(
    ("before", "after", "points", "is_suspect"),
    [
        ([100.0] * 60, 500.0, 5, True),
        ([100.0] * 60, 500.0, 3, True),
        ([100.0] * 60, 500.0, 2, False),
        ([0.0] * 12, 5.0, 3, True),
        ([0.0] * 11, 5.0, 3, False),
        ([8.2e9] * 20, 16.4e9, 3, True),
        ([1e308] * 20, -1e308, 3, True),
        ([7.0] * 20 + [9.0] * 20, 2.0, 3, True),
        ([100.0] * 20, 101.0, 3, False),  # it may be noise about 100.5
        ([1.25] * 20, 1.26, 3, False),
        ([100.0] * 20, 101.0, 4, True),
        ([100.0] * 20 + [500.0] + [100.0] * 20, 500.0, 3, False),
        ([0.3] * 30, 0.1 + 0.2, 3, False),
    ],
)
def test_a_shift_between_constants_is_a_suspect_from_the_third_point(
    before: list[float], after: float, points: int, is_suspect: bool
) -> None:
    found = detect([*before, *[after] * points])
    suspects = [(change.index, change.after) for change in found if change.state is State.SUSPECT]
    assert suspects == ([(len(before), after)] if is_suspect else [])


def test_noise_about_a_limit_of_rounding_is_seldom_a_suspect() -> None:
    rng = np.random.default_rng(0)
    shares = np.repeat([0.01, 0.03, 0.1, 0.15], 250)
    series = [np.where(rng.random(rng.integers(15, 60)) < share, 101.0, 100.0) for share in shares]
    assert sum(bool(detect(values)) for values in series) <= 1


def test_gaps_are_skipped_and_counted() -> None:
    (change,) = detect_between_gaps(np.array([np.nan, *[3.0] * 20, np.nan, np.nan, *[4.0] * 20]))
    assert (change.index, change.before, change.after) == (23, 3.0, 4.0)


def test_an_end_like_earlier_excursions_is_not_a_suspect() -> None:
    assert detect(noisy((100, 30), (110, 4), (100, 30), (110, 4))) == []


def test_a_suspect_is_measured_from_the_last_level() -> None:
    confirmed, suspect = detect(noisy((0, 40), (20, 40), (0, 4)))
    assert (confirmed.state, suspect.state, suspect.index) == (State.CONFIRMED, State.SUSPECT, 80)


@pytest.mark.parametrize("count", range(12))
def test_a_series_that_is_too_short_has_no_changes(count: int) -> None:
    assert detect([1.0] * (count // 2) + [9.0] * (count - count // 2)) == []


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0, math.nan], "value 1 of the series is nan: remove values that are not numbers"),
        ([math.inf] * 30, "value 0 of the series is inf: remove values that are not numbers"),
        (np.zeros((20, 2)), "a series must be a flat sequence of numbers, not an array of 2 dimensions"),
    ],
)
def test_an_invalid_series_is_refused(values: Any, message: str) -> None:
    with pytest.raises(ValueError, match=r"series") as caught:
        detect(values)
    assert str(caught.value) == message


def test_rounding_errors_are_not_changes() -> None:
    assert detect([0.3] * 30 + [0.1 + 0.2] * 30) == []


@pytest.mark.parametrize("unit", [5e-324, 1e-300, 1e300, 1.7e305])
def test_very_large_and_small_numbers_are_handled(unit: float) -> None:
    (change,) = detect([unit, 2 * unit, 3 * unit] * 10 + [-90 * unit, -91 * unit, -92 * unit] * 10)
    assert change.index == 30
    assert (change.before, change.after) == (2 * unit, -91 * unit)


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 60))
def test_a_constant_series_has_no_changes(value: float, count: int) -> None:
    assert detect([value] * count) == []


@settings(max_examples=50)
@given(
    st.lists(st.tuples(whole, st.integers(3, 30)), min_size=1, max_size=4),
    st.integers(0, 2**32),
    st.sampled_from([-8, -1, 0.25, 3, 1000]),
    whole,
)
def test_unit_sign_and_origin_do_not_matter(levels: list[tuple[int, int]], seed: int, unit: float, origin: int) -> None:
    values = np.round(100 * noisy(*levels, seed=seed))
    moved = values * unit + 100 * origin
    assert [(change.index, change.state) for change in detect(moved)] == [
        (change.index, change.state) for change in detect(values)
    ]


@settings(max_examples=50)
@given(st.lists(st.floats(-1e6, 1e6), max_size=80))
def test_changes_are_sorted_and_separated_and_suspects_are_at_the_end(values: list[float]) -> None:
    found = detect(values)
    confirmed = [0, *(change.index for change in found if change.state is State.CONFIRMED), len(values)]
    assert not found or np.diff(confirmed).min() >= 6
    assert all(3 <= len(values) - change.index <= 5 for change in found if change.state is State.SUSPECT)
    assert found == sorted(found, key=lambda change: change.index)
    assert all(0 <= change.p_value < 1e-3 for change in found)


@given(st.lists(st.tuples(st.integers(0, 39), st.floats(-1e9, 1e9)), max_size=2))
def test_single_outliers_are_not_changes(outliers: list[tuple[int, float]]) -> None:
    values = noisy((0, 40), seed=1)
    for index, value in outliers:
        values[index] = value
    assert detect(values) == []


def test_detection_is_deterministic_and_does_not_modify_the_values() -> None:
    values = noisy((0, 50), (4, 50))
    before = values.copy()
    assert detect(values) == detect(values.tolist()) == detect(tuple(values))
    assert (values == before).all()
    assert all(type(change.index) is int and type(change.p_value) is float for change in detect(values))
    assert isinstance(detect(values)[0], ChangePoint)
