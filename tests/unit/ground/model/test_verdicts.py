"""Verdicts have an order and exit codes."""

from itertools import combinations

import pytest

from toolbox.ground.model.verdicts import ExitCode, Verdict, exit_code, worst, worst_exit_code

FROM_BEST_TO_WORST = ("skipped", "passed", "xfailed", "xpassed", "cancelled", "failed", "error")


@pytest.mark.parametrize(("better", "worse"), list(combinations(map(Verdict, FROM_BEST_TO_WORST), 2)))
def test_the_worst_outcome_wins_in_any_order(better: Verdict, worse: Verdict) -> None:
    assert worst([better, worse], Verdict) is worse
    assert worst([worse, better], Verdict) is worse


def test_without_verdicts_there_is_no_worst() -> None:
    assert worst([], Verdict) is None


def test_the_first_of_equally_bad_items_is_the_worst() -> None:
    items = [("a", Verdict.PASSED), ("b", Verdict.FAILED), ("c", Verdict.FAILED)]
    assert worst(items, lambda item: item[1]) == ("b", Verdict.FAILED)


def test_the_order_has_every_verdict() -> None:
    assert set(FROM_BEST_TO_WORST) == set(Verdict)


@pytest.mark.parametrize(
    ("verdict", "code"),
    [
        (None, 4),
        (Verdict.SKIPPED, 4),
        (Verdict.PASSED, 0),
        (Verdict.XFAILED, 0),
        (Verdict.FAILED, 1),
        (Verdict.XPASSED, 1),
        (Verdict.ERROR, 3),
        (Verdict.CANCELLED, 3),
    ],
)
def test_each_verdict_has_its_exit_code(verdict: Verdict | None, code: int) -> None:
    assert exit_code(verdict) == code


@pytest.mark.parametrize(
    ("codes", "worst_code"),
    [([], 4), ([0, 4], 0), ([0, 1, 0], 1), ([3, 1], 3), ([1, 2], 2), ([124, 3], 124), ([130, 124, 4], 130)],
)
def test_the_exit_code_of_several_runs_is_that_of_the_worst(codes: list[int], worst_code: int) -> None:
    assert worst_exit_code(codes) == worst_code


def test_the_exit_codes_are_those_of_the_contract() -> None:
    names = ["PASSED", "FAILED", "USAGE", "ERROR", "NOTHING_RAN", "DEADLINE", "SIGINT", "SIGTERM"]
    assert {code.name: code.value for code in ExitCode} == dict(zip(names, [0, 1, 2, 3, 4, 124, 130, 143], strict=True))


def test_passed_skipped_and_xfailed_count_as_a_pass() -> None:
    assert {verdict for verdict in Verdict if verdict.is_pass} == {"passed", "skipped", "xfailed"}
