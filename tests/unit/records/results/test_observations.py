"""An attempt is an observation of the product: a pass, a failure, or no evidence."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime

import pytest

from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.records.results import observations
from toolbox.records.results.records import AttemptRow, ResultRow, RunRow

RUN = RunRow(
    1, "p", "r", datetime(2026, 3, 1, tzinfo=UTC), "finished", "passed", None, "", 1.0, [], "abc", "ci", "", "USD"
)


def result(*attempts: AttemptRow, verdict: str = "passed", counts: bool = True) -> ResultRow:
    return ResultRow(
        RUN, "0" * 12, "x=a", {}, verdict, None, "", counts, 1.0, "f", "t", "H200", None, "s", attempts, {}
    )


VERDICTS = [
    (Verdict.PASSED, None, True),
    (Verdict.FAILED, Cause.PRODUCT, False),
    (Verdict.FAILED, Cause.CHECK, False),
    (Verdict.FAILED, Cause.TIMEOUT, False),
    (Verdict.FAILED, Cause.REGRESSION, False),
    (Verdict.ERROR, Cause.INFRASTRUCTURE, None),
    (Verdict.ERROR, Cause.CAPACITY, None),
    (Verdict.CANCELLED, Cause.INTERRUPTED, None),
    (None, None, None),
]


@pytest.mark.parametrize(("verdict", "cause", "passed"), VERDICTS)
def test_an_attempt_is_a_pass_a_failure_or_no_evidence(
    verdict: str | None, cause: str | None, passed: bool | None
) -> None:
    (seen,) = observations.of([result(AttemptRow(verdict, cause))])
    assert seen.passed is passed


def test_each_attempt_is_an_observation_of_the_same_key() -> None:
    attempts = AttemptRow("failed", "product", "t", "H200"), AttemptRow("passed", None, "t", "H200")
    found = list(observations.of([result(*attempts, counts=False)]))
    assert [one.passed for one in found] == [False, True]
    assert {one.key for one in found} == {"abc/H200/f"}
    assert all(one.quarantined for one in found)


def test_attempts_on_other_accelerators_and_of_other_revisions_have_other_keys() -> None:
    attempts = AttemptRow("failed", "product", "a", "A100"), AttemptRow("passed", None, "b", "H100", "def")
    assert [one.key for one in observations.of([result(*attempts)])] == ["abc/A100/f", "def/H100/f"]


OUT = AttemptRow("failed", "regression", deviates=True, out_of_range=True)


def test_an_unconfirmed_value_is_no_evidence() -> None:
    found = list(observations.of([result(OUT, AttemptRow("passed", None))]))
    assert [one.passed for one in found] == [None, True]


@pytest.mark.parametrize("verdict", ["failed", "xfailed"])
def test_a_confirmed_value_out_of_its_range_is_one_failure(verdict: str) -> None:
    found = list(observations.of([result(OUT, OUT, verdict=verdict)]))
    assert [(one.passed, one.out_of_range) for one in found] == [(None, True), (False, True)]


def test_a_value_out_of_a_configured_range_is_marked_out_of_range() -> None:
    given, crash = AttemptRow("failed", "check", out_of_range=True), AttemptRow("failed", "product")
    found = list(observations.of([result(given, crash, verdict="failed")]))
    assert [(one.passed, one.out_of_range) for one in found] == [(False, True), (False, False)]


def test_a_result_without_attempts_is_judged_by_its_verdict() -> None:
    (seen,) = observations.of([result(verdict="passed")])
    assert seen.passed is True


def of_cell(cell: str, verdict: str, *attempts: AttemptRow, revision: str = "abc", **labels: str) -> ResultRow:
    row = result(*attempts, verdict=verdict)
    return dataclasses.replace(row, run=dataclasses.replace(RUN, revision=revision), cell=cell, labels=labels)


def test_flaky_cells_are_not_attributed() -> None:
    at_random = AttemptRow("failed", "product"), AttemptRow("passed", None)
    history = [of_cell("flaky", "passed", *at_random, revision=revision) for revision in ("a", "b", "c")]
    history += [of_cell("broken", "failed", AttemptRow("failed", "product"), revision=revision) for revision in "abc"]
    flaky = observations.known_flaky(history)
    assert flaky == {"flaky"}
    run = [
        of_cell("broken", "failed", x="1", y="1"),
        of_cell("second", "failed", x="1", y="2"),
        of_cell("third", "passed", x="2", y="1"),
        of_cell("flaky", "failed", x="2", y="2"),
    ]
    assert observations.in_common(run) == []
    assert list(map(str, observations.in_common(run, flaky=flaky))) == ["x=1: 2 of 2 failed; elsewhere 0 of 1"]
