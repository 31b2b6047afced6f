"""Costs are summed by day, month, project, target, cell and accelerator, and divided by the kind of attempt."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from toolbox.records.results.cost import Group, Kind, by_series, grouped
from toolbox.records.results.records import Spending


def spent(cost: float | None, day: int = 1, **fields: Any) -> Spending:
    values: dict[str, Any] = {
        "run": 1,
        "started": datetime(2026, fields.pop("month", 11), day, 23, 59, tzinfo=UTC),
        "project": "p",
        "currency": "USD",
        "target": "t",
        "accelerator": "v6e-1",
        "cell": "",
        "kind": "planned",
        "attempts": 1,
        "unpriced": int(cost is None),
        "seconds": 60.0,
        "cost": cost,
    }
    return Spending(**(values | fields))


def test_the_attempts_of_a_day_are_summed() -> None:
    (one,) = grouped([spent(1.5), spent(2.0, run=2), spent(None, run=2)], [Group.DAY])
    assert (one.period, one.cost, one.runs, one.attempts, one.unpriced, one.seconds) == (
        "2026-11-01",
        3.5,
        2,
        3,
        1,
        180,
    )


def test_attempts_without_a_price_have_no_cost() -> None:
    (one,) = grouped([spent(None)], [Group.MONTH])
    assert (one.cost, one.part(Kind.RETRY)) == (None, None)


def test_failures_retries_and_confirmations_are_parts_of_the_cost() -> None:
    kinds = {"planned": 1.0, "failure": 2.0, "retry": 4.0, "confirmation": 8.0}
    (one,) = grouped([spent(cost, kind=kind) for kind, cost in kinds.items()], [])
    assert {str(kind): one.part(kind) for kind in Kind} == kinds
    assert one.cost == 15.0


def test_currencies_are_not_mixed_and_the_latest_period_comes_first() -> None:
    spendings = [spent(1.0), spent(1.0, 2, currency="EUR"), spent(1.0, project="q"), spent(1.0, month=10)]
    found = grouped(spendings, [Group.MONTH, Group.PROJECT])
    keys = [(one.period, one.keys[Group.PROJECT], one.currency) for one in found]
    assert keys == [("2026-11", "p", "EUR"), ("2026-11", "p", "USD"), ("2026-11", "q", "USD"), ("2026-10", "p", "USD")]


def test_the_highest_cost_of_a_period_comes_first_and_an_unknown_cost_last() -> None:
    spendings = [spent(None, target="a"), spent(1.0, target="b"), spent(2.0, target="c"), spent(0.0, target="d")]
    assert [one.keys[Group.TARGET] for one in grouped(spendings, [Group.TARGET])] == ["c", "b", "d", "a"]


def test_several_groups_are_combined() -> None:
    spendings = [spent(1.0, cell="x=a"), spent(2.0, cell="x=b", accelerator="v5p-8"), spent(4.0, cell="x=a")]
    found = grouped(spendings, [Group.CELL, Group.ACCELERATOR])
    assert [(*one.keys.values(), one.cost) for one in found] == [("x=a", "v6e-1", 5.0), ("x=b", "v5p-8", 2.0)]


def test_the_series_of_a_cost_contains_its_spendings_of_all_periods() -> None:
    spendings = [spent(1.0), spent(2.0, month=10), spent(4.0, target="other")]
    groups = [Group.MONTH, Group.TARGET]
    series = by_series(spendings, groups)
    assert [[each.cost for each in series[one.series]] for one in grouped(spendings, groups)] == [
        [4.0],
        [1.0, 2.0],
        [1.0, 2.0],
    ]
