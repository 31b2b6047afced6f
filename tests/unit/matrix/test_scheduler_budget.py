"""Cells that would exceed the cost limit are skipped, and a resumed run with a higher limit runs these cells."""

from __future__ import annotations

from dataclasses import replace

from tests.fakes.backend import BROKEN, CRASH, Ending, Machines
from tests.fakes.bench import Bench, verdicts
from toolbox.ground.model.events import AttemptSubmitted
from toolbox.ground.model.prices import Price
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.matrix.scheduler import Options
from toolbox.matrix.targets import PlannedTarget

EACH = 1.5  # the cost of an attempt: 1 USD per second


def rented(machines: Machines, name: str = "one", per_hour: float | None = 3600.0) -> PlannedTarget:
    return replace(machines.target(name), price=Price(per_hour, "basis"), shares_price=False)


def test_cells_that_would_exceed_the_limit_are_skipped_with_the_reason(bench: Bench) -> None:
    machines = Machines()
    scheduler = bench.run("abcd", machines, rented(machines), max_cost=2 * EACH)
    assert verdicts(scheduler) == bench.verdicts() == {"a": "passed", "b": "passed", "c": "skipped", "d": "skipped"}
    reason = "the cost limit of 3.00 USD is reached: 3.00 USD are spent, and the cell is expected to cost 1.50 USD"
    assert bench.ends()["c"].message == scheduler.rules.over_budget == reason
    assert bench.notes() == [reason]
    assert machines.began() == ["a", "b"]


def test_cells_that_start_together_do_not_exceed_the_limit_together(bench: Bench) -> None:
    machines = Machines()
    scheduler = bench.run("abcd", machines, rented(machines), max_cost=2 * EACH, options=Options(jobs=4))
    assert sorted(verdicts(scheduler).values()) == ["passed", "passed", "skipped", "skipped"]
    assert machines.peaks["all"] <= 2


def test_a_cheaper_target_is_used_when_the_other_one_is_too_expensive(bench: Bench) -> None:
    machines = Machines()
    bench.run("ab", machines, rented(machines, "dear", 36_000.0), rented(machines, "free", 0.0), max_cost=1.0)
    assert {event.target for event in bench.of(AttemptSubmitted)} == {"free"}


def test_a_limit_that_is_not_reached_changes_nothing(bench: Bench) -> None:
    machines = Machines()
    scheduler = bench.run("ab", machines, rented(machines), max_cost=2 * EACH)
    assert (verdicts(scheduler), scheduler.rules.over_budget) == ({"a": "passed", "b": "passed"}, "")


def test_a_retry_that_would_exceed_the_limit_is_not_started(bench: Bench) -> None:
    machines = Machines({"a": [CRASH]})
    scheduler = bench.run("a", machines, rented(machines), max_cost=EACH, retries={"check": 2, "product": 2})
    (result,) = scheduler.results.values()
    assert (result.outcome.verdict, result.outcome.cause, result.attempts) == (Verdict.FAILED, Cause.PRODUCT, 1)
    assert "the cell is not tried again: the cost limit of 1.50 USD is reached" in result.outcome.message


def test_a_failure_of_the_infrastructure_also_costs(bench: Bench) -> None:
    machines = Machines({"a": [BROKEN, CRASH]})
    scheduler = bench.run("ab", machines, rented(machines), max_cost=2 * EACH)
    assert machines.began() == ["a", "b"]  # the second attempt of `a` would have been the third that is paid
    assert verdicts(scheduler)["a"] == "error"


def test_a_resumed_run_with_the_same_limit_skips_the_same_cells(bench: Bench) -> None:
    machines = Machines()
    bench.run("abc", machines, rented(machines), max_cost=2 * EACH)
    scheduler = bench.run("abc", machines, rented(machines), max_cost=2 * EACH)
    assert verdicts(scheduler) == {"a": "passed", "b": "passed", "c": "skipped"}
    assert machines.began() == ["a", "b"]


def test_a_resumed_run_with_a_higher_limit_runs_the_skipped_cells(bench: Bench) -> None:
    machines = Machines()
    bench.run("abc", machines, rented(machines), max_cost=EACH)
    scheduler = bench.run("abc", machines, rented(machines), max_cost=2 * EACH)
    assert verdicts(scheduler) == {"a": "passed", "b": "passed", "c": "skipped"}
    assert machines.began() == ["a", "b"]


def test_a_resumed_run_without_a_limit_runs_all_skipped_cells(bench: Bench) -> None:
    machines = Machines()
    bench.run("abc", machines, rented(machines), max_cost=EACH)
    assert verdicts(bench.run("abc", machines, rented(machines))) == dict.fromkeys("abc", "passed")


def test_an_adopted_attempt_counts_with_its_expected_cost(bench: Bench) -> None:
    machines = bench.left_running("ab", Machines())
    scheduler = bench.run("ab", machines, rented(machines), max_cost=EACH)
    assert verdicts(scheduler) == {"a": "passed", "b": "skipped"}


def test_a_cell_is_not_kept_waiting_for_a_cell_that_was_skipped_because_of_its_cost(bench: Bench) -> None:
    machines = Machines({"a": Ending(leaves={"m.json": '{"t": 1}'})})
    check = {"check": "relation", "metric": "t", "to": {"x": "b"}, "upper": 2, "when": {"x": "a"}}
    metrics = {"t": {"source": "json_file", "file": "m.json", "path": "t"}}
    bench.run("ab", machines, rented(machines), max_cost=EACH, checks=[check], metrics=metrics)
    assert bench.verdicts()["b"] == "skipped"
    assert bench.relation("a")[1].endswith("its verdict is skipped")
