"""The state of a run says which steps can be replayed and which work is unfinished."""

from dataclasses import replace

import pytest

from tests.fakes.history import folded
from toolbox.ground.model.cases import FAIL_ON, CaseOutcome, CaseReport, CaseResult
from toolbox.ground.model.events import (
    AttemptEnded,
    AttemptSubmitted,
    CaseFailed,
    CasesCounted,
    ConfigurationChanged,
    JournalEvent,
    MatrixPlanned,
    MetricMeasured,
    RunFinished,
    RunStarted,
    StepFinished,
    StepKind,
    StepStarted,
)
from toolbox.ground.model.evidence import Metric
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.records.runs.run_state import RunState, StepState

RUN = RunStarted("r", "p", "/runs/r", ())
CHANGED = ConfigurationChanged("a.b", "1", "set_config")
KINDS = {"c": StepKind.CELL, "h": StepKind.COMMAND, "g": StepKind.GROUP}


def began(step: str, fingerprint: str = "") -> StepStarted:
    """Return the start of a step: `test` is a phase, `test/c` a cell, `test/h` a command, `test/g` a group."""
    name = step.rpartition("/")[2]
    return StepStarted(
        step, name, KINDS.get(name[0], StepKind.PHASE) if "/" in step else StepKind.PHASE, "", f"/{step}", fingerprint
    )


def ended(step: str, verdict: Verdict = Verdict.PASSED) -> StepFinished:
    kind = began(step).kind
    return StepFinished(
        step, step.rpartition("/")[2], kind, verdict, None if verdict.is_pass else Cause.PRODUCT, "", 1.0
    )


def whole(step: str, *inside: JournalEvent, verdict: Verdict = Verdict.PASSED) -> list[JournalEvent]:
    """Return the events of a step from its start to its end."""
    return [began(step), *inside, ended(step, verdict)]


def submitted(number: int) -> AttemptSubmitted:
    return AttemptSubmitted("test/c1", number, f"n-{number}", "one")


def attempt_ended(number: int, verdict: Verdict = Verdict.PASSED) -> AttemptEnded:
    return AttemptEnded("test/c1", number, "one", verdict, None, "", 1.0)


def find(past: RunState, key: str) -> StepState:
    found = past.latest.get(key)
    assert found is not None
    return found


def test_a_new_run_has_no_past() -> None:
    assert RunState().latest.get("/test") is None
    assert RunState().cells == []
    assert not RunState().is_unfinished


@pytest.mark.parametrize("verdict", list(Verdict))
def test_only_a_step_that_passed_can_be_replayed(verdict: Verdict) -> None:
    past = folded([RUN, *whole("prepare", verdict=verdict)])
    assert find(past, "/prepare").can_be_replayed("") is (verdict is Verdict.PASSED)


def test_an_unfinished_step_cannot_be_replayed() -> None:
    assert not find(folded([RUN, began("prepare")]), "/prepare").can_be_replayed("")


def test_a_step_with_another_fingerprint_cannot_be_replayed() -> None:
    past = folded([RUN, began("prepare"), began("prepare/h1", "abc"), ended("prepare/h1")])
    assert find(past, "/prepare/h1").can_be_replayed("abc")
    assert not find(past, "/prepare/h1").can_be_replayed("abd")


def test_a_cleanup_undoes_all_steps_but_cells() -> None:
    events = [*whole("prepare", *whole("prepare/h1")), *whole("test", *whole("test/c1"), *whole("test/g1"))]
    before, after = folded(events), folded([*events, began("post_cleanup")])
    keys = ["/prepare", "/prepare/h1", "/test", "/test/c1", "/test/g1"]
    assert [find(before, key).can_be_replayed("") for key in keys] == [True] * 5
    assert [find(after, key).can_be_replayed("") for key in keys] == [False, False, False, True, False]


def test_a_step_repeated_after_a_cleanup_can_be_replayed() -> None:
    past = folded([*whole("prepare"), *whole("post_cleanup"), RUN, *whole("prepare")])
    assert find(past, "/prepare").can_be_replayed("")


def test_the_latest_execution_of_a_step_counts() -> None:
    past = folded([*whole("test", verdict=Verdict.FAILED), RUN, began("test")])
    assert find(past, "/test").verdict is None


def test_a_repeated_command_in_another_directory_keeps_its_key() -> None:
    again = StepStarted("test/h9", "h1", StepKind.COMMAND, "", "/test/h1")
    past = folded([*whole("test/h1", verdict=Verdict.FAILED), again, StepFinished(
        "test/h9", "h1", StepKind.COMMAND, Verdict.PASSED, None, "", 1.0)])  # fmt: skip
    found = find(past, "/test/h1")
    assert (found.step, found.can_be_replayed("")) == ("test/h9", True)


def test_the_test_cases_of_all_reports_are_counted_together() -> None:
    reports = [
        CaseReport("a.xml", {CaseOutcome.SKIPPED: 2, CaseOutcome.PASSED: 1}),
        CaseReport("b.xml", {CaseOutcome.PASSED: 3}),
    ]
    cell = find(folded([RUN, began("test"), began("test/c1")]), "/test/c1")
    assert (cell.tests, replace(cell, cases=reports).tests) == ("", "4 passed, 2 skipped")


def test_the_journal_keeps_all_fields_of_a_case_report() -> None:
    counts = {outcome: number for number, outcome in enumerate(CaseOutcome)}
    report = CaseReport("a.xml", counts, FAIL_ON, 2.5, (), is_partial=True, remarks=3)
    assert CasesCounted.from_report("test/c1", report).report([]) == report


# Attempts


def test_a_repeated_cell_keeps_its_earlier_attempts() -> None:
    first = whole("test/c1", submitted(1), attempt_ended(1, Verdict.CANCELLED), verdict=Verdict.CANCELLED)
    found = find(folded([*first, RUN, began("test/c1"), submitted(2)]), "/test/c1")
    assert [(attempt.attempt, attempt.verdict) for attempt in found.attempts] == [
        (1, Verdict.CANCELLED), (2, None),
    ]  # fmt: skip


def test_the_latest_judgement_of_an_attempt_counts() -> None:
    events: list[JournalEvent] = [
        began("test/c1"),
        submitted(1),
        attempt_ended(1, Verdict.FAILED),
        RUN,
        began("test/c1"),
        attempt_ended(1),
    ]
    (attempt,) = find(folded(events), "/test/c1").attempts
    assert (attempt.attempt, attempt.target, attempt.verdict, attempt.seconds) == (1, "one", Verdict.PASSED, 1.0)


def test_the_latest_metrics_of_a_cell_count() -> None:
    values: list[JournalEvent] = [MetricMeasured("test/c1", "t", value, "s") for value in (1.0, 2.0)]
    metrics = find(folded([began("test/c1"), *values]), "/test/c1").measured
    assert metrics == {"t": Metric("t", 2.0, "s")}
    again: list[JournalEvent] = [began("test/c1"), *values, began("test/c1")]
    assert find(folded(again), "/test/c1").measured == {}


def test_events_of_a_step_without_a_start_are_ignored() -> None:
    assert list(folded([submitted(1), attempt_ended(1), ended("test/c1")]).latest) == []


# Unfinished work


@pytest.mark.parametrize(
    ("events", "is_unfinished"),
    [
        (whole("test"), False),
        (whole("test", verdict=Verdict.FAILED), False),
        (whole("test", verdict=Verdict.CANCELLED), True),
        ([began("test")], True),
        (whole("test", MatrixPlanned("test", 2, 1), *whole("test/c1")), True),
        (whole("test", MatrixPlanned("test", 2, 1), *whole("test/c1"), *whole("test/c2")), False),
        ([*whole("test", verdict=Verdict.CANCELLED), RUN, *whole("test")], False),
        (
            [
                *whole(
                    "test", *whole("test/a", MatrixPlanned("test/a", 2, 1), *whole("test/a/c1"), *whole("test/a/c2"))
                ),
                *[RUN, *whole("test", MatrixPlanned("test", 2, 1), *whole("test/c1"))],
            ],
            True,
        ),
    ],
)
def test_a_run_with_cancelled_open_or_missing_steps_is_unfinished(
    events: list[JournalEvent], is_unfinished: bool
) -> None:
    assert folded([RUN, *events, RunFinished(Verdict.PASSED, None, 0, "", 1.0)]).is_unfinished is is_unfinished


# Changes of the configuration


def test_a_configuration_change_belongs_to_the_enclosing_steps() -> None:
    past = folded(
        [RUN, began("prepare"), began("prepare/g1"), CHANGED, ended("prepare/g1"), ended("prepare"), began("test")]
    )
    changed = [find(past, key).changed_configuration for key in ("/prepare", "/prepare/g1", "/test")]
    assert changed == [True, True, False]


def test_a_configuration_change_does_not_belong_to_ended_steps() -> None:
    past = folded([began("prepare"), *whole("prepare/g1"), CHANGED])
    assert not find(past, "/prepare/g1").changed_configuration
    assert find(past, "/prepare").changed_configuration


def test_a_step_of_a_dead_session_gets_no_later_changes() -> None:
    past = folded([RUN, began("prepare"), began("prepare/g1"), RUN, began("test"), CHANGED])
    assert [find(past, key).changed_configuration for key in ("/prepare", "/prepare/g1", "/test")] == [
        False,
        False,
        True,
    ]


def test_session_changes_are_the_changes_of_the_latest_session() -> None:
    again = ConfigurationChanged("a.b", "2", "set_config")
    assert list(folded([RUN, CHANGED]).session_changes) == [CHANGED]
    assert list(folded([RUN, CHANGED, RUN, again]).session_changes) == [again]
    assert list(folded([RUN, CHANGED, RUN]).session_changes) == []


def test_an_attempt_submitted_twice_counts_once() -> None:
    past = folded([RUN, began("test"), began("test/c1"), submitted(1), attempt_ended(1), submitted(1)])
    (attempt,) = find(past, "/test/c1").attempts
    assert (attempt.attempt, attempt.target, attempt.verdict, attempt.seconds) == (1, "one", Verdict.PASSED, 1.0)


def test_metrics_of_an_earlier_attempt_are_dropped() -> None:
    measured = MetricMeasured("test/c1", "t", 1.0, "s")
    found = find(folded([began("test/c1"), submitted(1), measured, attempt_ended(1), submitted(2)]), "/test/c1")
    assert found.measured == {}
    assert [dict(attempt.metrics) for attempt in found.attempts] == [{"t": measured}, {}]


def test_a_cell_inside_a_repeated_command_keeps_its_directory() -> None:
    """The repeated command gets a new directory, but a group or a cell inside the command keeps its directory."""

    def cell(step: str) -> StepStarted:
        return StepStarted(step, "c1", StepKind.CELL, "", "/test/h/c1")

    def command(step: str) -> StepStarted:
        return StepStarted(step, "h", StepKind.COMMAND, "", "/test/h")

    attempt = AttemptSubmitted("test/000__h/000__c1", 1, "n-1", "one")
    gone = StepStarted("test/000__h/001__h2", "h2", StepKind.COMMAND, "", "/test/h/h2")
    events: list[JournalEvent] = [RUN, began("test"), command("test/000__h"), cell("test/000__h/000__c1")]
    events += [attempt, gone]
    again: list[JournalEvent] = [RUN, began("test"), command("test/001__h"), cell("test/000__h/000__c1")]
    past = folded([*events, *again])
    assert list(past.steps) == ["test", "test/000__h/000__c1", "test/001__h"]
    assert [(step.step, attempt.attempt) for step, attempt in past.open_attempts] == [("test/000__h/000__c1", 1)]
    assert [step.step for step in folded([*events, *again[:3]]).steps.values()] == ["test", "test/001__h"]


def test_the_test_cases_of_a_cell_are_those_of_its_latest_attempt() -> None:
    def counted(failed: int) -> list[JournalEvent]:
        case = CaseFailed("test/c1", "*.xml", "m", "t", CaseOutcome.FAILED, 0.5, "1 != 2")
        return [CasesCounted("test/c1", "*.xml", 1, 1, failed, 1, 1, 2.0, FAIL_ON), *[case] * failed]

    cell = [began("test/c1"), submitted(1), *counted(2), attempt_ended(1), submitted(2), *counted(1)]
    (report,) = find(folded([RUN, began("test"), *cell]), "/test/c1").cases
    assert (report.total, report.executed, report.failed) == (5, 4, 2)
    assert report.failures == (CaseResult("m", "t", CaseOutcome.FAILED, 0.5, "1 != 2"),)
