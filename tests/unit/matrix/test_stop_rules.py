"""A matrix stops after too many failures and after an outage."""

import pytest

from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.matrix.stop_rules import StopRules
from toolbox.records.runs.steps import Outcome

PASSED = Outcome(Verdict.PASSED)
BROKEN = Outcome(Verdict.ERROR, Cause.INFRASTRUCTURE, "no route to host")


@pytest.mark.parametrize(("cells", "broken"), [(1, 2), (3, 2), (6, 3), (12, 5)])
def test_an_outage_is_more_than_one_cell_and_more_than_a_third(cells: int, broken: int) -> None:
    rules = StopRules(cells, None)
    begins = [rules.note_attempt(str(number), BROKEN, is_adopted=False) for number in range(broken)]
    assert begins == [False] * (broken - 1) + [True]
    assert f"{broken} of {cells} cells failed because of the infrastructure" in rules.outage
    assert not rules.note_attempt("another", BROKEN, is_adopted=False)


def begins(rules: StopRules, cell: str, machine: str) -> bool:
    return rules.note_attempt(cell, BROKEN, is_adopted=False, lost_machine=machine)


def test_the_attempts_that_one_loss_of_a_machine_ended_count_once() -> None:
    rules = StopRules(6, None)
    for cell in "abcdef":
        rules.note_start(cell)
    assert not any(begins(rules, cell, "tpu-1") for cell in "abcdef")
    rules.note_start("a")
    assert not begins(rules, "a", "tpu-1")  # a second loss
    rules.note_start("b")
    assert begins(rules, "b", "tpu-1")  # a third loss
    assert "6 of 6 cells failed because of the infrastructure" in rules.outage


def test_the_losses_of_several_machines_are_an_outage() -> None:
    rules = StopRules(6, None)
    assert [begins(rules, cell, f"node-{cell}") for cell in "abc"] == [False, False, True]


def test_a_cell_that_recovers_and_attempts_lost_in_a_power_failure_are_no_outage() -> None:
    rules = StopRules(3, None)
    rules.note_attempt("a", BROKEN, is_adopted=False)
    rules.note_attempt("a", PASSED, is_adopted=False)
    assert not any(rules.note_attempt(cell, BROKEN, is_adopted=True) for cell in "abc")
    assert not rules.note_attempt("b", BROKEN, is_adopted=False)


def test_only_cells_that_did_not_pass_count_as_failures() -> None:
    rules = StopRules(9, 2)
    verdicts = [Verdict.FAILED, Verdict.XFAILED, Verdict.SKIPPED, Verdict.CANCELLED, Verdict.PASSED, Verdict.XPASSED]
    assert [rules.note_end(verdict) for verdict in verdicts] == [False] * 5 + [True]
    assert rules.stopped == "2 cells did not pass: no more cells were started"
    assert not rules.note_end(Verdict.ERROR)


def test_without_a_limit_nothing_stops() -> None:
    rules = StopRules(9, None)
    assert not any(rules.note_end(Verdict.FAILED) for _ in range(9))
    assert rules.stopped == ""
