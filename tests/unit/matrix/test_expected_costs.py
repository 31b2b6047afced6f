"""The expected cost of a plan is known from earlier runs and time limits, and stays unknown without a price."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.matrix.conftest import Planned
from toolbox.ground.model.prices import Price
from toolbox.matrix import expected_costs
from toolbox.matrix.expected_costs import CostPlan, Expected
from toolbox.matrix.targets import PlannedTarget
from toolbox.records.results.records import EarlierTime

NOTHING: Any = None


def target(name: str, per_hour: float | None, basis: str = "basis") -> PlannedTarget:
    return PlannedTarget(name, "fake", NOTHING, price=Price(per_hour, basis))


def costs(
    planned: Planned, *targets: PlannedTarget, earlier: dict[tuple[str, str], EarlierTime] | None = None, **block: Any
) -> CostPlan:
    """Return the expected costs of the cells `x=a` and `x=b`; `earlier` contains times by value of x and target."""
    plan = planned({"axes": {"x": ["a", "b"]}, "timeouts": {"run": 600}, **block}, *targets)
    by_name = {cell.name[2:]: cell.id for cell in plan.cells}
    times = {(by_name[x], name): time for (x, name), time in (earlier or {}).items()}
    return expected_costs.of_plan(plan, times, currency="USD")


def test_the_expected_time_is_the_mean_of_earlier_runs(planned: Planned) -> None:
    found = costs(planned, target("tpu", 0.64), earlier={(x, "tpu"): EarlierTime(300.0, 12) for x in "ab"})
    assert [each.cost for each in found.cells.values()] == pytest.approx([0.0533, 0.0533], abs=1e-4)
    assert found.summary() == "expected: 10 min 0 s on targets, 0.11 USD"


def test_a_cell_without_earlier_runs_counts_with_its_time_limit(planned: Planned) -> None:
    found = costs(planned, target("tpu", 36.0), earlier={("a", "tpu"): EarlierTime(300.0, 1)})
    assert [(each.seconds, each.runs, each.cost) for each in found.cells.values()] == [(300.0, 1, 3.0), (600.0, 0, 6.0)]
    assert found.summary() == (
        "expected: 5 min 0 s and at most 10 min 0 s for 1 cell without earlier runs on targets, at most 9.00 USD"
    )


def test_an_unknown_price_stays_visible_in_the_total(planned: Planned) -> None:
    settings = [{"when": {"x": "b"}, "target": "far"}]
    found = costs(planned, target("tpu", 36.0), target("far", None, "no entry"), target="tpu", settings=settings)
    assert (found.cost, len(found.unknown)) == (6.0, 1)
    assert "at most 6.00 USD, and an unknown cost for 1 cell" in found.summary()
    assert found.reasons == ["the cost on the target `far` is unknown: no entry"]


def test_a_plan_without_prices_has_an_unknown_cost(planned: Planned) -> None:
    assert "on targets, at an unknown cost" in costs(planned, target("tpu", None)).summary()


def test_the_time_limits_of_a_free_target_are_not_an_expectation(planned: Planned) -> None:
    found = costs(planned, target("here", 0.0))
    assert found.summary() == "expected: at most 20 min 0 s on targets, 0.00 USD"


def test_a_cell_without_a_time_limit_takes_an_unknown_time() -> None:
    expected = {("a", "here"): Expected("here", 300.0, 1, 0.0), ("b", "here"): Expected("here", None, 0, 0.0)}
    found = CostPlan("USD", expected, {})
    assert found.summary() == "expected: 5 min 0 s and an unknown time for 1 cell on targets, 0.00 USD"


def test_a_cell_with_several_targets_counts_with_the_most_expensive_one(planned: Planned) -> None:
    cheap, dear = target("cheap", 1.0), target("dear", 36.0)
    assert [each.target for each in costs(planned, cheap, dear).cells.values()] == ["dear", "dear"]
    assert len(costs(planned, cheap, dear, target("far", None)).unknown) == 2


def test_skipped_cells_cost_nothing(planned: Planned) -> None:
    found = costs(planned, target("tpu", 36.0), skip=[{"when": {"x": "b"}, "reason": "#7"}])
    assert found.cost == 6.0


def test_the_expectations_are_available_as_json(planned: Planned) -> None:
    found = costs(planned, target("tpu", 36.0)).as_json()
    assert (found["cost"], found["currency"], found["unknown"], found["limited"]) == (12.0, "USD", 0, 2)
    assert [each["target"] for each in found["cells"].values()] == ["tpu", "tpu"]
