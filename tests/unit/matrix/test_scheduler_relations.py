"""Cells are compared with one another, whatever the order in which they end."""

from typing import Any

import pytest

from tests.fakes.backend import BROKEN, CRASH, NEVER, Ending, Machines
from tests.fakes.bench import ALL, AT_ONCE, Bench, verdicts
from toolbox.ground.model.events import CheckJudged, MetricMeasured
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.matrix.plan import Selection
from toolbox.matrix.scheduler import Options


def took(seconds: float, *after: str) -> Ending:
    """Return the end of an attempt that took some seconds, and that waits for entries of the log."""
    return Ending(leaves={"m.json": f'{{"t": {seconds}}}'}, after=after)


def compared(*pairs: str) -> dict[str, Any]:
    """Return checks by which a cell may take at most twice as long as another cell: `compared("b/a")`."""
    checks = [
        {"check": "relation", "metric": "t", "to": {"x": pair[2:]}, "upper": 2, "when": {"x": pair[0]}}
        for pair in pairs
    ]
    return {"metrics": {"t": {"source": "json_file", "file": "m.json", "path": "t"}}, "checks": checks}


B_WITH_A = compared("b/a")


@pytest.mark.parametrize(
    ("first", "second"),
    [([], ["release a"]), (["collect b"], []), (["submit b"], ["submit a"])],
    ids=["the other cell first", "the other cell later", "at once"],
)
@pytest.mark.parametrize(("seconds", "verdict"), [(1.5, "passed"), (3, "failed")])
def test_a_cell_is_compared_with_another_whichever_ends_first(
    bench: Bench, first: list[str], second: list[str], seconds: float, verdict: str
) -> None:
    machines = Machines({"a": took(1, *first), "b": took(seconds, *second)})
    bench.run("ab", machines, options=Options(2), **B_WITH_A)
    assert bench.relation("b")[0] is (verdict == "passed")
    assert bench.verdicts() == {"a": "passed", "b": verdict}
    assert {event.metric: event.value for event in bench.of(MetricMeasured) if event.step.endswith("a")} == {"t": 1}


def test_a_cell_waits_for_the_last_attempt_of_the_other_cell(bench: Bench) -> None:
    machines = Machines({"a": [BROKEN, took(1, "collect b")], "b": took(1.5)})
    bench.run("ab", machines, options=Options(2), **B_WITH_A)
    assert bench.relation("b")[0] is True


def test_a_cell_that_waits_for_a_comparison_uses_no_capacity(bench: Bench) -> None:
    machines = Machines({"a": took(1), "b": took(1.5)})
    bench.run("ba", machines, options=Options(1), **B_WITH_A)
    assert machines.began() == ["b", "a"]
    assert bench.verdicts() == {"a": "passed", "b": "passed"}


def test_a_cell_compared_with_a_failed_cell_fails(bench: Bench) -> None:
    bench.run("ab", Machines({"a": CRASH, "b": took(1)}), **B_WITH_A)
    assert bench.relation("b") == (False, "`x=a` has no metrics: its verdict is failed")
    assert bench.ends()["b"].cause is Cause.CHECK


@pytest.mark.parametrize(
    ("fields", "selection"),
    [({"skip": [{"when": {"x": "a"}, "reason": "#7"}]}, ALL), ({}, Selection("x=b"))],
    ids=["skipped", "not selected"],
)
def test_a_comparison_with_a_cell_that_was_not_run_is_not_judged(
    bench: Bench, fields: dict[str, Any], selection: Selection
) -> None:
    bench.run("ab", Machines({"b": took(9)}), selection=selection, **B_WITH_A, **fields)
    assert bench.relation("b") == (None, "no comparison is possible with `x=a` (the cell was not run)")
    assert bench.verdicts()["b"] == "passed"


def test_a_reference_cell_needs_no_reference_itself(bench: Bench) -> None:
    bench.run("ab", Machines({"a": took(1), "b": took(1)}), **compared("a/a", "b/a"))
    judged = [(event.step[-1], event.passed) for event in bench.of(CheckJudged) if event.check == "relation"]
    assert judged == [("b", True)]


def test_two_cells_may_be_compared_with_one_another(bench: Bench) -> None:
    bench.run("ab", Machines({"a": took(5), "b": took(1)}), options=Options(2), **compared("a/b", "b/a"))
    assert (bench.relation("a")[0], bench.relation("b")[0]) == (False, True)


def test_a_cell_may_be_compared_with_several(bench: Bench) -> None:
    machines = Machines({"a": took(1, "collect c"), "b": took(5, "release a"), "c": took(9)})
    bench.run("abc", machines, options=Options(3), **compared("c/a", "c/b"))
    assert bench.ends()["c"].message == "relation: t is 9 times that of `x=a` (9 against 1); required: at most 2"


def test_a_failed_comparison_may_be_retried(bench: Bench) -> None:
    machines = Machines({"a": took(1), "b": [took(9), took(1.5)]})
    bench.run("ab", machines, retries={**AT_ONCE, "check": 1}, **B_WITH_A)
    assert machines.began() == ["a", "b", "b"]
    assert bench.ends()["b"].message.splitlines()[0] == "the cell passed at attempt 2"


def test_metrics_of_a_cell_with_a_failed_comparison_are_used_by_others(bench: Bench) -> None:
    machines = Machines({"a": took(1), "b": took(5), "c": took(6)})
    scheduler = bench.run("abc", machines, **compared("b/a", "c/b"))
    assert verdicts(scheduler) == {"a": "passed", "b": "failed", "c": "passed"}


def test_a_resumed_run_compares_with_a_cancelled_cell(bench: Bench) -> None:
    machines = Machines({"a": [NEVER, took(1)], "b": took(9), "c": [Ending(1, after=["collect b"]), Ending()]})
    bench.run("abc", machines, options=Options(3, fail_fast=True), **B_WITH_A)
    assert bench.verdicts() == {"a": "cancelled", "b": "cancelled", "c": "failed"}
    assert verdicts(bench.run("abc", machines, **B_WITH_A)) == {"a": "passed", "b": "failed", "c": "failed"}
    assert machines.began().count("b") == 1


def test_a_cell_ends_although_the_other_cell_is_not_started(bench: Bench) -> None:
    machines = Machines({"b": took(1), "c": Ending(1, after=["submit b"])})
    bench.run("cba", machines, options=Options(2, max_failures=1), pools={"slot": 1}, **B_WITH_A)
    assert bench.ends()["c"].verdict is Verdict.FAILED
