"""The files of an attempt are measured and judged, which gives one verdict with one cause."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from toolbox.ground.model.bounds import Direction, Side
from toolbox.ground.model.evidence import Deviation, Evidence, Judgement, Metric, Reference, deviations_of
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.ground.model.workloads import EndedBy, WorkloadOutcome
from toolbox.ground.system import filesystem
from toolbox.matrix import attempt_judgement
from toolbox.matrix.attempt_judgement import Expectations, NamedCheck, NamedSource
from toolbox.records.runs.steps import Outcome

TIME = {"source": "json_file", "file": "m.json", "path": "t", "unit": "s"}
FASTER = {"check": "relation", "metric": "time", "to": {"model": "small"}, "upper": 2}


@pytest.mark.parametrize("checks", [[], [{"check": "files", "glob": "*"}]])
def test_the_exit_status_is_checked_first_by_default(checks: list[dict[str, Any]]) -> None:
    names = [check.name for check in Expectations.parse(checks, {}).checks]
    assert names == ["exit_status", *(check["check"] for check in checks)]


def test_a_configured_exit_status_check_replaces_the_default(tmp_path: Path) -> None:
    filesystem.write_text(tmp_path / "exit_code", "3\n")
    expected = Expectations.parse([{"check": "files", "glob": "*"}, {"check": "exit_status", "expected": 3}], {})
    found = attempt_judgement.judge(expected.checks, Evidence(tmp_path))
    assert [(name, judged.passed) for name, judged in found] == [("files", True), ("exit_status", True)]


def test_a_metric_that_cannot_be_read_is_unknown_with_the_reason(tmp_path: Path) -> None:
    filesystem.write_json(tmp_path / "m.json", {"t": 1.5})
    sources = {"time": TIME, "loss": {**TIME, "path": "loss", "unit": ""}, "gone": {**TIME, "file": "gone.json"}}
    measured = Expectations.parse((), sources).measure(tmp_path)
    assert measured["time"] == Metric("time", 1.5, "s")
    assert measured["loss"] == Metric("loss", None, "", "m.json has no loss")
    assert (measured["gone"].value, "gone.json" in measured["gone"].fault) == (None, True)


def test_the_metric_of_several_samples_is_their_median(tmp_path: Path) -> None:
    filesystem.write_text(tmp_path / "steps.csv", "step,t\n1,5\n2,1\n3,2\n")
    source = {"source": "csv_file", "file": "steps.csv", "column": "t", "aggregate": "each"}
    (metric,) = Expectations.parse((), {"time": source}).measure(tmp_path).values()
    assert (metric.value, metric.samples) == (2, (5, 1, 2))


def test_a_comparing_check_gets_its_reference(tmp_path: Path) -> None:
    requested: list[Mapping[str, Any]] = []

    def reference(to: Mapping[str, Any]) -> Reference:
        requested.append(to)
        return Reference("small", {"time": Metric("time", 1.0)})

    checks = [NamedCheck.parse(FASTER), NamedCheck.parse({"check": "metric", "metric": "time", "upper": 3})]
    assert [check.to for check in checks] == [{"model": "small"}, None]
    found = attempt_judgement.judge(checks, Evidence(tmp_path, {"time": Metric("time", 2.5)}), reference)
    assert [(name, judged.passed) for name, judged in found] == [("relation", False), ("metric", True)]
    assert requested == [{"model": "small"}]


@pytest.mark.parametrize("spec", [{"check": "exit_statu"}, {"check": "files"}, {"glob": "*"}, "files"])
def test_a_wrong_check_is_refused(spec: Any) -> None:
    with pytest.raises(ValueError, match="check"):
        NamedCheck.parse(spec)


@pytest.mark.parametrize("spec", [{"source": "jsn"}, {**TIME, "units": "s"}, {"unit": "s"}, "json_file"])
def test_a_wrong_metric_is_refused(spec: Any) -> None:
    with pytest.raises(ValueError, match="source"):
        NamedSource.parse(spec)


@pytest.mark.parametrize(
    ("ended_by", "expected"),
    [
        (EndedBy.TIMEOUT, Outcome(Verdict.FAILED, Cause.TIMEOUT, "why")),
        (EndedBy.SILENCE, Outcome(Verdict.FAILED, Cause.TIMEOUT, "why")),
        (EndedBy.CANCELLED, Outcome(Verdict.CANCELLED, Cause.INTERRUPTED, "why")),
        (EndedBy.NOT_STARTED, Outcome(Verdict.ERROR, Cause.CONFIGURATION, "why")),
        (EndedBy.LOST, Outcome(Verdict.ERROR, Cause.INFRASTRUCTURE, "why")),
        (EndedBy.EXIT, None),
        (EndedBy.SIGNAL, None),
    ],
)
def test_the_end_of_a_workload_is_judged_unless_it_exited_by_itself(
    ended_by: EndedBy, expected: Outcome | None
) -> None:
    assert attempt_judgement.outcome_without_checks(WorkloadOutcome(ended_by, 0, "why")) == expected


def test_a_cancelled_workload_without_a_message_gets_one() -> None:
    found = attempt_judgement.outcome_without_checks(WorkloadOutcome(EndedBy.CANCELLED))
    assert found == Outcome(Verdict.CANCELLED, Cause.INTERRUPTED, "the attempt was cancelled")


def test_incomplete_logs_are_an_error_whatever_the_exit_status() -> None:
    found = attempt_judgement.outcome_without_checks(
        WorkloadOutcome(EndedBy.EXIT, 0, log_fault="no space left on device")
    )
    assert found == Outcome(Verdict.ERROR, Cause.INFRASTRUCTURE, "the logs are incomplete: no space left on device")


GOOD, NOTHING = Judgement(True, "fine"), Judgement(None, "nothing to judge")
BAD = Judgement(False, "bad")


@pytest.mark.parametrize(
    ("judged", "expected"),
    [
        ([], Outcome(Verdict.PASSED)),
        ([("exit_status", GOOD), ("relation", NOTHING)], Outcome(Verdict.PASSED)),
        ([("exit_status", GOOD), ("metric", BAD)], Outcome(Verdict.FAILED, Cause.CHECK, "metric: bad")),
        ([("exit_status", BAD)], Outcome(Verdict.FAILED, Cause.PRODUCT, "exit_status: bad")),
        (
            [("metric", BAD), ("exit_status", BAD)],
            Outcome(Verdict.FAILED, Cause.PRODUCT, "metric: bad\nexit_status: bad"),
        ),
    ],
)
def test_a_failed_exit_status_has_the_cause_product(judged: list[tuple[str, Judgement]], expected: Outcome) -> None:
    assert attempt_judgement.verdict(judged) == expected


SLOW = Judgement(False, "slow", deviation=Deviation("time", Side.ABOVE, improves=False))
FAST = Judgement(False, "fast", deviation=Deviation("time", Side.BELOW, improves=True))
WRONG = Judgement(False, "wrong")


@pytest.mark.parametrize(
    ("found", "cause", "deviations"),
    [
        ([SLOW], Cause.REGRESSION, {"time": SLOW.deviation}),
        ([FAST], Cause.CHECK, {"time": FAST.deviation}),
        ([SLOW, WRONG], Cause.CHECK, {}),
        ([WRONG], Cause.CHECK, {}),
        ([Judgement(None, "few", deviation=SLOW.deviation), Judgement(True, "fine")], None, {}),
    ],
)
def test_a_metric_out_of_its_range_is_a_regression_if_nothing_else_failed(
    found: list[Judgement], cause: Cause | None, deviations: dict[str, Deviation]
) -> None:
    judgements = [("metric", judged) for judged in found]
    assert attempt_judgement.verdict(judgements).cause is cause
    assert deviations_of(judged for _, judged in judgements) == deviations


def test_a_workload_that_could_not_test_is_an_error_whatever_the_other_checks_say() -> None:
    judged = [
        ("files", Judgement(False, "no file")),
        ("exit_status", Judgement(False, "exit status 75, expected 0", cause=Cause.INFRASTRUCTURE)),
    ]
    expected = Outcome(Verdict.ERROR, Cause.INFRASTRUCTURE, "exit_status: exit status 75, expected 0")
    assert attempt_judgement.verdict(judged) == expected


def failed(cause: Cause | None, message: str = "bad") -> Judgement:
    return Judgement(False, message, cause=cause)


@pytest.mark.parametrize(
    ("judged", "verdict", "cause"),
    [
        ([("mine", failed(Cause.TIMEOUT))], Verdict.FAILED, Cause.TIMEOUT),
        ([("mine", failed(Cause.PRODUCT))], Verdict.FAILED, Cause.PRODUCT),
        ([("mine", failed(Cause.INFRASTRUCTURE))], Verdict.ERROR, Cause.INFRASTRUCTURE),
        ([("mine", failed(Cause.INTERNAL))], Verdict.ERROR, Cause.INTERNAL),
        ([("files", BAD), ("mine", failed(Cause.TIMEOUT))], Verdict.FAILED, Cause.TIMEOUT),
        ([("mine", failed(Cause.TIMEOUT)), ("other", failed(Cause.PRODUCT))], Verdict.FAILED, Cause.PRODUCT),
        ([("mine", failed(Cause.TIMEOUT)), ("exit_status", BAD)], Verdict.FAILED, Cause.PRODUCT),
        ([("exit_status", failed(Cause.TIMEOUT))], Verdict.FAILED, Cause.TIMEOUT),
        ([("exit_status", BAD), ("mine", failed(Cause.INTERNAL))], Verdict.ERROR, Cause.INTERNAL),
        ([("mine", failed(Cause.INFRASTRUCTURE)), ("x", failed(Cause.INTERNAL))], Verdict.ERROR, Cause.INTERNAL),
        ([("metric", SLOW), ("mine", failed(Cause.TIMEOUT))], Verdict.FAILED, Cause.TIMEOUT),
        ([("mine", Judgement(True, "fine", cause=Cause.INTERNAL))], Verdict.PASSED, None),
    ],
)
def test_the_worst_cause_of_the_failed_checks_wins(
    judged: list[tuple[str, Judgement]], verdict: Verdict, cause: Cause | None
) -> None:
    found = attempt_judgement.verdict(judged)
    assert (found.verdict, found.cause) == (verdict, cause)


def test_the_message_names_all_failed_checks_unless_nothing_was_tested() -> None:
    late, wrong = ("notebooks", failed(Cause.TIMEOUT, "late")), ("files", failed(None, "no file"))
    assert attempt_judgement.verdict([late, wrong]).message == "notebooks: late\nfiles: no file"
    broken = ("mine", failed(Cause.INTERNAL, "the worker is broken"))
    assert attempt_judgement.verdict([late, broken]).message == "mine: the worker is broken"


def test_a_failed_workload_is_no_regression() -> None:
    judgements = [("exit_status", WRONG), ("metric", SLOW)]
    assert attempt_judgement.verdict(judgements).cause is Cause.PRODUCT
    assert deviations_of(judged for _, judged in judgements) == {}


def test_a_metric_has_the_direction_that_the_configuration_says(tmp_path: Path) -> None:
    filesystem.write_json(tmp_path / "m.json", {"t": 1.5})
    (metric,) = Expectations.parse((), {"time": {**TIME, "direction": "higher"}}).measure(tmp_path).values()
    assert metric.direction is Direction.HIGHER
    with pytest.raises(
        ValueError, match=r"`direction` must be `lower` or `higher` \(which values are better\), not 'up'"
    ):
        Expectations.parse((), {"time": {**TIME, "direction": "up"}})


def test_by_history_lists_metrics_with_bounds_from_earlier_runs() -> None:
    checks: list[dict[str, Any]] = [
        {"check": "metric", "metric": "a", "bounds": "auto"},
        {"check": "metric", "metric": "b", "upper": 1},
    ]
    assert Expectations.parse(checks, {}).by_history == ("a",)
