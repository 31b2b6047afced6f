"""Computed bounds fail a cell only with enough samples. A direction makes one side of the bounds the good side."""

import pytest

from toolbox.ground.model.bounds import Bound, Direction, Method, Side


def bound(lower: float | None = 1, upper: float | None = 2, samples: int | None = 30) -> Bound:
    return Bound(lower, upper, 1.5, samples, Method.PREDICTION)


@pytest.mark.parametrize(
    ("value", "side"), [(0.9, Side.BELOW), (1.0, None), (1.5, None), (2.0, None), (2.1, Side.ABOVE)]
)
def test_a_value_equal_to_a_bound_is_within_the_bounds(value: float, side: Side | None) -> None:
    assert bound().side(value) is side


def test_no_value_is_out_on_a_side_without_a_bound() -> None:
    assert bound(lower=None).side(-1e9) is None
    assert bound(upper=None).side(1e9) is None


@pytest.mark.parametrize(
    ("direction", "below", "above"),
    [(Direction.LOWER, True, False), (Direction.HIGHER, False, True), (None, False, False)],
)
def test_the_good_side_is_that_of_the_direction(direction: Direction | None, below: bool, above: bool) -> None:
    assert (Side.BELOW.is_good(direction), Side.ABOVE.is_good(direction)) == (below, above)


@pytest.mark.parametrize(
    ("samples", "is_reported", "is_gating"),
    [(1, False, False), (4, False, False), (5, True, False), (9, True, False), (10, True, True), (30, True, True)],
)
def test_bounds_from_few_samples_only_report_and_bounds_from_many_gate(
    samples: int, is_reported: bool, is_gating: bool
) -> None:
    assert (bound(samples=samples).is_reported, bound(samples=samples).is_gating) == (is_reported, is_gating)


@pytest.mark.parametrize(("unit", "of"), [(None, {"s", ""}), ("s", {"s"}), ("", {""})])
def test_bounds_without_a_unit_have_the_unit_of_the_metric(unit: str | None, of: set[str]) -> None:
    found = Bound(1, 2, None, None, Method.MANUAL, unit)
    assert {metric for metric in ("s", "") if found.is_in(metric)} == of


def test_bounds_that_a_person_wrote_gate() -> None:
    assert bound(samples=None).is_reported
    assert bound(samples=None).is_gating
