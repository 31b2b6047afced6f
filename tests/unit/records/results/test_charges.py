"""An attempt is charged for its share of the time of its target, and each attempt has a purpose."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolbox.ground.model.bounds import Side
from toolbox.ground.model.events import CheckJudged, StepKind
from toolbox.records.results import charges
from toolbox.records.results.charges import Charge, Purpose, shares
from toolbox.records.runs.run_state import CellAttempt, StepState

START = datetime(2026, 11, 1, tzinfo=UTC)
SLOW = CheckJudged("", "bounds", passed=False, message="", metric="time", side=Side.ABOVE, out_of_range=True)


def attempt(number: int = 1, *, begin: float = 0, seconds: float | None = 300, **fields: Any) -> CellAttempt:
    return CellAttempt(number, "tpu", START + timedelta(seconds=begin), seconds=seconds, **fields)


def charged(attempts: Sequence[CellAttempt], **target: Any) -> list[Charge]:
    step = StepState("001__cell", "cell", StepKind.CELL, attempts=attempts)
    return list(charges.of([step], {"tpu": target}).values())


def test_five_minutes_at_64_cents_an_hour_are_charged_with_5_3_cents() -> None:
    (charge,) = charged([attempt(seconds=5 * 60)], cost_per_hour=0.64)
    assert charge.cost == pytest.approx(0.0533, abs=5e-5)


def test_attempts_at_the_same_time_share_the_price_of_a_target() -> None:
    found = charged([attempt(1, seconds=100), attempt(2, begin=50, seconds=100)], cost_per_hour=36.0)
    assert [charge.seconds for charge in found] == [75.0, 75.0]
    assert [charge.cost for charge in found] == [0.75, 0.75]


def test_machines_of_several_shards_do_not_share_the_price_of_this_machine() -> None:
    attempts = [attempt(1, seconds=100, host="one"), attempt(2, seconds=100, host="two")]
    assert [charge.seconds for charge in charged(attempts, backend="local")] == [100.0, 100.0]
    assert [charge.seconds for charge in charged(attempts, backend="kubernetes")] == [50.0, 50.0]


def test_attempts_with_accelerators_of_their_own_pay_the_whole_price() -> None:
    attempts = [attempt(1, seconds=100), attempt(2, begin=50, seconds=100)]
    found = charged(attempts, cost_per_hour=36.0, shares_price=False)
    assert [charge.cost for charge in found] == [1.0, 1.0]


def test_the_whole_time_of_a_rented_machine_costs() -> None:
    (charge,) = charged([attempt(seconds=60, paid_seconds=360.0)], cost_per_hour=10.0, shares_price=False)
    assert charge == Charge(360.0, 1.0)


@pytest.mark.parametrize("price", [None, -1.0, float("nan"), float("inf"), True, "1.2"])
def test_a_price_that_is_not_a_price_is_unknown(price: object) -> None:
    assert charged([attempt()], cost_per_hour=price) == [Charge(300.0, None)]


def test_an_attempt_whose_end_is_unknown_has_no_cost() -> None:
    assert charged([attempt(seconds=None)], cost_per_hour=1.0) == [Charge(None, None)]


@pytest.mark.parametrize(
    ("attempts", "purposes"),
    [
        ([], []),
        ([attempt()], [Purpose.FIRST]),
        ([attempt(1), attempt(2)], [Purpose.FIRST, Purpose.RETRY]),
        ([attempt(1, judged=(SLOW,)), attempt(2)], [Purpose.FIRST, Purpose.CONFIRMATION]),
        (
            [attempt(1), attempt(2, judged=(SLOW,)), attempt(3), attempt(4)],
            [Purpose.FIRST, Purpose.RETRY, Purpose.CONFIRMATION, Purpose.RETRY],
        ),
    ],
)
def test_an_attempt_after_a_value_out_of_its_range_is_a_confirmation(
    attempts: list[CellAttempt], purposes: list[Purpose]
) -> None:
    assert charges.purposes(attempts) == purposes


@pytest.mark.parametrize(
    ("intervals", "expected"),
    [
        ([(0.0, 10.0), (20.0, 25.0)], [10.0, 5.0]),
        ([(0.0, 10.0), (0.0, 10.0)], [5.0, 5.0]),
        ([(0.0, 4.0), (2.0, 6.0)], [3.0, 3.0]),
        ([], []),
        ([(3.0, 3.0)], [0.0]),
    ],
)
def test_overlapping_attempts_share_the_time_evenly(
    intervals: list[tuple[float, float]], expected: list[float]
) -> None:
    assert shares(intervals) == expected


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)).map(sorted), max_size=8))
def test_all_shares_add_up_to_the_used_time(intervals: list[list[int]]) -> None:
    taken = {moment for begin, end in intervals for moment in range(begin, end)}
    assert sum(shares([(begin, end) for begin, end in intervals])) == pytest.approx(len(taken))
