"""A budget counts what attempts cost, and refuses cells that would exceed the limit."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.matrix.conftest import Planned
from toolbox.ground.model.prices import Price
from toolbox.matrix import expected_costs
from toolbox.matrix.budget import Budget, Decision
from toolbox.matrix.plan import Cell, Plan
from toolbox.matrix.targets import PlannedTarget
from toolbox.records.results.records import EarlierTime

NOTHING: Any = None


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def rented(name: str = "tpu", per_hour: float | None = 3600.0, *, shares_price: bool = False) -> PlannedTarget:
    """Return a target that costs 1 USD per second."""
    return PlannedTarget(name, "fake", NOTHING, price=Price(per_hour, "basis"), shares_price=shares_price)


def budgeted(plan: Plan, limit: float, clock: Clock, *, seconds: float = 10.0, spent: float = 0.0) -> Budget:
    """Return a budget for cells that took 10 s in 3 earlier runs."""
    earlier = {(cell.id, target): EarlierTime(seconds, 3) for cell in plan.cells for target in cell.targets}
    costs = expected_costs.of_plan(plan, earlier, currency="USD")
    return Budget(limit, costs, spent=spent, clock=clock)


def cells(planned: Planned, *targets: PlannedTarget, x: str = "abc") -> tuple[Plan, tuple[Cell, ...]]:
    plan = planned({"axes": {"x": list(x)}}, *targets)
    return plan, plan.cells


def test_a_cell_fits_until_the_limit_is_reached_exactly(planned: Planned, clock: Clock) -> None:
    plan, (a, b, c) = cells(planned, rented())
    budget = budgeted(plan, 20.0, clock)
    for cell in (a, b):
        assert budget.decide(cell, "tpu") is Decision.FITS
        budget.begin(cell.name, cell, "tpu")
        budget.end(cell.name, seconds=10.0)
    assert budget.spent == 20.0
    assert budget.decide(c, "tpu") is Decision.EXCEEDS
    assert budget.refusal(c) == (
        "the cost limit of 20.00 USD is reached: 20.00 USD are spent, and the cell is expected to cost 10.00 USD"
    )


def test_a_cell_waits_while_the_expected_cost_of_running_attempts_is_reserved(planned: Planned, clock: Clock) -> None:
    plan, (a, b, _) = cells(planned, rented())
    budget = budgeted(plan, 15.0, clock)
    budget.begin("a", a, "tpu")
    assert budget.decide(b, "tpu") is Decision.WAITS
    budget.end("a", seconds=4.0)  # it was cheaper than expected
    assert budget.decide(b, "tpu") is Decision.FITS


def test_a_running_attempt_counts_with_its_cost_so_far(planned: Planned, clock: Clock) -> None:
    plan, (a, b, _) = cells(planned, rented())
    budget = budgeted(plan, 25.0, clock)
    budget.begin("a", a, "tpu")
    clock.now = 100.0
    assert budget.so_far == 0.0  # it waits for a machine
    budget.pay("a", is_paid=True)
    clock.now = 115.0
    assert budget.decide(b, "tpu") is Decision.FITS
    clock.now = 116.0
    assert budget.decide(b, "tpu") is Decision.EXCEEDS
    assert budget.so_far == 16.0


def test_an_attempt_that_waits_again_costs_nothing(planned: Planned, clock: Clock) -> None:
    plan, (a, _, _) = cells(planned, rented())
    budget = budgeted(plan, 25.0, clock)
    budget.begin("a", a, "tpu")
    budget.pay("a", is_paid=True)
    clock.now = 3.0
    budget.pay("a", is_paid=False)
    clock.now = 9.0
    budget.end("a", seconds=None)
    assert budget.spent == 3.0


def test_attempts_that_share_a_target_share_its_price(planned: Planned, clock: Clock) -> None:
    plan, (a, b, _) = cells(planned, rented(shares_price=True))
    budget = budgeted(plan, 100.0, clock)
    for name, cell in (("a", a), ("b", b)):
        budget.begin(name, cell, "tpu")
        budget.pay(name, is_paid=True)
    clock.now = 10.0
    budget.end("a", seconds=10.0)
    assert budget.spent == pytest.approx(5.0)
    clock.now = 14.0
    budget.end("b", seconds=14.0)
    assert budget.spent == pytest.approx(14.0)


def test_the_time_of_an_adopted_attempt_counts_from_its_submission(planned: Planned, clock: Clock) -> None:
    plan, (a, _, _) = cells(planned, rented())
    budget = budgeted(plan, 100.0, clock, spent=5.0)
    budget.begin("a", a, "tpu", seconds=7.0)
    assert budget.so_far == 12.0


def test_a_cell_with_an_unknown_cost_never_starts_and_a_free_cell_always_starts(planned: Planned, clock: Clock) -> None:
    plan, (a, _, _) = cells(planned, rented("unknown", None), rented("free", 0.0))
    budget = budgeted(plan, 0.0, clock)
    assert budget.refused(a) == {"unknown"}
    assert not budget.exceeds(a)
    plan, (a, _, _) = cells(planned, rented("unknown", None))
    budget = budgeted(plan, 100.0, clock)
    assert budget.exceeds(a)
    assert budget.refusal(a).endswith("and the cell has an unknown cost")


def test_the_order_of_additions_does_not_refuse_a_plan_that_costs_exactly_the_limit(
    planned: Planned, clock: Clock
) -> None:
    plan, found = cells(planned, rented(per_hour=0.64), x="abcdefg")
    budget = budgeted(plan, sum([0.64 * 300 / 3600] * 7), clock, seconds=300.0)
    for cell in found:
        assert budget.decide(cell, "tpu") is Decision.FITS
        budget.begin(cell.name, cell, "tpu")
        budget.end(cell.name, seconds=300.0)


def test_the_end_of_an_attempt_that_was_only_judged_again_costs_nothing(planned: Planned, clock: Clock) -> None:
    plan, _ = cells(planned, rented())
    budget = budgeted(plan, 10.0, clock)
    budget.end("never begun", seconds=10.0)
    assert budget.spent == 0.0
