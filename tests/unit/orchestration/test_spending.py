"""A plan is refused if it may cost more than the limit, and what a run has spent is read from its journal."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.unit.matrix.conftest import Planned
from tests.unit.matrix.conftest import planned as planned  # noqa: PLC0414  # imports the fixture
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.events import StepKind
from toolbox.ground.model.prices import Price
from toolbox.ground.model.verdicts import Verdict
from toolbox.matrix import expected_costs
from toolbox.matrix.expected_costs import CostPlan
from toolbox.matrix.scheduler import Options
from toolbox.matrix.targets import PlannedTarget
from toolbox.orchestration import spending
from toolbox.records.results.records import EarlierTime
from toolbox.records.runs.run_state import CellAttempt, RunState, StepState

from .conftest import Work

NOTHING: Any = None


def costs(planned: Planned, *prices: Price, shares_price: bool = False) -> CostPlan:
    """Return the costs of the cell `x=a` of 10 s, on one target for each price: `t0`, `t1` and so on."""
    found = [
        PlannedTarget(f"t{index}", "fake", NOTHING, price=price, shares_price=shares_price)
        for index, price in enumerate(prices)
    ]
    plan = planned({"axes": {"x": ["a"]}}, *found)
    times = {(cell.id, target.name): EarlierTime(10.0, 3) for cell in plan.cells for target in found}
    return expected_costs.of_plan(plan, times, currency="USD")


EACH_SECOND = Price(3600.0, "basis")


def test_a_plan_that_costs_exactly_the_limit_is_accepted(planned: Planned) -> None:
    spending.verify(costs(planned, EACH_SECOND), 10.0)


def test_a_plan_above_the_limit_is_refused_with_a_hint(planned: Planned) -> None:
    with pytest.raises(UsageError) as caught:
        spending.verify(costs(planned, EACH_SECOND), 9.99)
    assert str(caught.value).splitlines() == [
        "the cost limit is 9.99 USD, and the plan is expected to cost 10.00 USD",
        "  select fewer cells with --cells, or raise --max_cost; `project plan` shows the cost of each cell",
    ]


def test_an_unknown_cost_is_refused_even_if_the_known_costs_are_low(planned: Planned) -> None:
    with pytest.raises(UsageError, match="the cost on the target `t1` is unknown: no entry"):
        spending.verify(costs(planned, Price(0.0, "free"), Price(None, "no entry")), 1_000.0)


def test_the_flag_wins_over_the_field_of_the_matrix(planned: Planned) -> None:
    plan = planned({"axes": {"x": ["a"]}, "max_cost": 5})
    assert spending.limit(Options(), plan) == 5.0
    assert spending.limit(Options(max_cost=0.0), plan) == 0.0
    assert spending.limit(Options(), planned({"axes": {"x": ["a"]}})) is None


def attempt(number: int, seconds: float | None, **fields: Any) -> CellAttempt:
    submitted = datetime(2026, 11, 1, tzinfo=UTC)
    return CellAttempt(number, "t0", submitted, fields.pop("verdict", Verdict.PASSED), seconds=seconds, **fields)


def test_all_attempts_of_earlier_sessions_count_as_spent(planned: Planned) -> None:
    found = costs(planned, EACH_SECOND)
    (cell,) = found.cells
    step = StepState("000/000", "x=a", StepKind.CELL, key=f"test/{cell}")
    attempts = [attempt(1, 3.0), attempt(2, 4.0, paid_seconds=40.0)]
    past = RunState(steps={"000/000": replace(step, attempts=attempts)})
    assert spending.spent(found, past) == 43.0


def test_an_attempt_whose_time_is_unknown_counts_with_its_expected_cost(planned: Planned) -> None:
    found = costs(planned, EACH_SECOND)
    (cell,) = found.cells
    step = StepState("000/000", "x=a", StepKind.CELL, key=f"test/{cell}")
    lost, running = attempt(1, None, verdict=None, is_abandoned=True), attempt(2, None, verdict=None)
    past = RunState(steps={"000/000": replace(step, attempts=[lost, running])})
    assert spending.spent(found, past) == 10.0  # the budget counts the running attempt when it is adopted


def test_a_run_without_a_limit_has_no_budget(work: Work, planned: Planned) -> None:
    session = work("a: 1\n")
    plan = planned({"axes": {"x": ["a"]}})
    assert spending.budget(session.configuration, "tiny", plan, Options(), RunState()) is None


def test_a_store_that_cannot_be_read_does_not_stop_a_plan(
    work: Work, planned: Planned, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    store = tmp_path / "broken.sqlite"
    store.write_text("this is not a database")
    session = work(f"results: {{database: {store}}}\n")
    found = spending.expected(session.configuration, "tiny", planned({"axes": {"x": ["a"]}}))
    assert [each.runs for each in found.cells.values()] == [0]
    assert "the times of earlier runs are unknown: " in caplog.text
