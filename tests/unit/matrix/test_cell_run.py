"""A cell names its attempts, retries them, and gets a verdict."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fakes.backend import Machines
from tests.fakes.history import folded
from tests.unit.matrix.conftest import TODAY, Planned
from toolbox.ground.model.bounds import Side
from toolbox.ground.model.cases import CaseOutcome, CaseReport, CaseResult
from toolbox.ground.model.events import (
    AttemptEnded,
    AttemptSubmitted,
    CheckJudged,
    Event,
    MetricMeasured,
    StepFinished,
    StepKind,
)
from toolbox.ground.model.evidence import Deviation, Judgement, Metric
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.ground.system import filesystem
from toolbox.ground.system.redaction import Redactor
from toolbox.matrix.cell_run import CellRun, CellState, Conclusion, Ended
from toolbox.records.runs.recorder import Recorder
from toolbox.records.runs.steps import Outcome, Step

PASSED = Outcome(Verdict.PASSED)
BROKEN = Outcome(Verdict.ERROR, Cause.INFRASTRUCTURE, "no route\nto the host")
FAILED = Outcome(Verdict.FAILED, Cause.PRODUCT, "exit status 1")
CANCELLED = Outcome(Verdict.CANCELLED, Cause.INTERRUPTED, "by a signal")
NOTHING = Conclusion(None)


class Bench:
    """Creates cells that run in a directory, and records their events."""

    def __init__(self, root: Path, planned: Planned) -> None:
        self._planned = planned
        self.events: list[Event] = []
        self.redactor = Redactor()
        self.parent = Step(root, Recorder(root, self.redactor, [self.events.append]), "test", key="/test")

    def cell(self, **block: Any) -> CellRun:
        """Return a cell without attempts."""
        cell = self._planned({"axes": {"x": ["a"]}, **block}, Machines().target("one")).cells[0]
        step = self.parent.locate(cell.name, StepKind.CELL, identity=cell.id)
        return CellRun(cell, step, self.parent, "r-1")


@pytest.fixture
def bench(tmp_path: Path, planned: Planned) -> Bench:
    return Bench(tmp_path, planned)


def submit(run: CellRun, target: str = "one") -> None:
    """Submit the next attempt of a cell; a later attempt follows a pause."""
    if run.state is CellState.STARTING:
        run.become(CellState.PAUSED)
        run.become(CellState.WAITING)
    run.submit(target)


def attempted(run: CellRun, *outcomes: Outcome) -> CellRun:
    """Make one attempt of a cell for each outcome, and return the cell."""
    for outcome in outcomes:
        submit(run)
        run.end(outcome, NOTHING, sync=False)
    return run


def test_the_name_of_an_attempt_is_derived_from_run_and_cell(bench: Bench, tmp_path: Path) -> None:
    run = bench.cell()
    submit(run)
    submit(run, "two")
    assert run.name == f"r-1-{run.cell.id}-2"
    assert (run.target, run.directory) == ("two", tmp_path / "000__x=a/attempt-2")
    assert run.directory.is_dir()
    submitted = [(event.attempt, event.name, event.target) for event in bench.events[:2]]  # type: ignore[union-attr]
    assert submitted == [(1, f"r-1-{run.cell.id}-1", "one"), (2, run.name, "two")]


def test_a_cell_that_begins_again_keeps_its_settings_file(bench: Bench) -> None:
    run = bench.cell()
    run.begin()
    assert yaml.safe_load((run.step.directory / "settings.yaml").read_text()) == {"x": "a"}
    filesystem.write_text(run.step.directory / "settings.yaml", "x: as it was\n")
    filesystem.write_text(run.step.directory / "FAILURE", "of the time before")
    run.begin()
    assert (run.step.directory / "settings.yaml").read_text() == "x: as it was\n"
    assert not (run.step.directory / "FAILURE").exists()


def test_metrics_and_checks_are_recorded_before_the_end(bench: Bench) -> None:
    run = bench.cell()
    submit(run)
    judgements = (("metric", Judgement(False, "too slow", "m.json", 3)),)
    run.end(FAILED, Conclusion(None, {"t": Metric("t", 1.5, "s")}, judgements, 2.5), sync=False)
    step = run.step.identity
    assert bench.events[1:] == [
        MetricMeasured(step, "t", 1.5, "s"),
        CheckJudged(step, "metric", passed=False, message="too slow", file="m.json", line=3),
        AttemptEnded(step, 1, "one", Verdict.FAILED, Cause.PRODUCT, "exit status 1", 2.5),
    ]


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        ({}, [5, 10, 20]),
        ({"first": 1, "factor": 3}, [1, 3, 9]),
        ({"first": 1, "factor": 10, "most": 15}, [1, 10, 15]),
        ({"first": 7, "factor": 1}, [7, 7, 7]),
    ],
)
def test_the_pauses_grow_up_to_the_longest_and_differ_a_little(
    bench: Bench, backoff: dict[str, float], expected: list[float]
) -> None:
    run = bench.cell(retries={"infrastructure": 9, "backoff": backoff})
    for seconds in expected:
        attempted(run, BROKEN)
        pauses = {run.seconds_until_retry() for _ in range(20)}
        assert all(pause is not None and 0.8 * seconds <= pause <= 1.2 * seconds for pause in pauses)
        assert len(pauses) > 1


def test_a_cause_without_retries_gets_no_other_attempt(bench: Bench) -> None:
    for cause in (Cause.CONFIGURATION, Cause.INTERNAL, Cause.INTERRUPTED, Cause.REGRESSION):
        assert attempted(bench.cell(), Outcome(Verdict.ERROR, cause)).seconds_until_retry() is None


def test_a_cancelled_adopted_attempt_is_repeated_at_once(bench: Bench) -> None:
    run = bench.cell()
    submit(run)
    run.is_adopted = True
    run.end(CANCELLED, NOTHING, sync=False)
    assert run.seconds_until_retry() == 0
    assert attempted(bench.cell(), CANCELLED).seconds_until_retry() is None


def end(run: CellRun, outcome: Outcome, remark: str = "") -> list[str]:
    """Finish a cell, and return its verdict and the lines of its message."""
    found = run.finish(outcome, Conclusion(None, remark=remark))
    assert run.parent.outcome() == found
    return [str(found.verdict), *found.message.splitlines()]


def test_the_message_of_a_cell_lists_its_earlier_attempts(bench: Bench) -> None:
    assert end(attempted(bench.cell(), BROKEN, PASSED), PASSED) == [
        "passed", "the cell passed at attempt 2", "the verdict of attempt 1 was error (infrastructure): no route",
    ]  # fmt: skip
    assert end(attempted(bench.cell(), BROKEN, CANCELLED, FAILED), FAILED)[1:] == [
        "exit status 1", "the verdict of attempt 1 was error (infrastructure): no route",
    ]  # fmt: skip


def test_a_passed_cell_keeps_its_remark(bench: Bench) -> None:
    assert end(attempted(bench.cell(), PASSED), PASSED, "2 processes had to be killed") == [
        "passed", "2 processes had to be killed",
    ]  # fmt: skip


XFAIL = [{"when": {}, "reason": "#7", "owner": "me", "expires": TODAY}]


def test_xfail_changes_the_verdict_of_a_cell(bench: Bench) -> None:
    expected = "expected to fail until 2026-06-15 (me): #7"
    assert end(attempted(bench.cell(xfail=XFAIL), FAILED), FAILED) == ["xfailed", expected, "exit status 1"]
    unexpected = attempted(bench.cell(xfail=XFAIL), PASSED).finish(PASSED, NOTHING)
    assert (unexpected.verdict, unexpected.cause) == (Verdict.XPASSED, Cause.CHECK)
    assert unexpected.message == f"the cell passed, but was {expected}"
    assert end(attempted(bench.cell(xfail=XFAIL), CANCELLED), CANCELLED)[0] == "cancelled"
    assert end(attempted(bench.cell(xfail=XFAIL), BROKEN), BROKEN)[0] == "error"


def of_tests(*failed: str, total: int = 0) -> tuple[str, Judgement]:
    """Return the judgement of a check that has found failed tests, of which the report lists some."""
    cases = [CaseResult("notebook", name, CaseOutcome.FAILED) for name in failed]
    report = CaseReport("*.xml", {CaseOutcome.FAILED: max(total, len(failed))}, failures=cases)
    return "notebooks", Judgement(not failed, "tests failed", cases=report)


@pytest.mark.parametrize(
    ("judged", "unexpected"),
    [
        ([of_tests("energy")], ""),
        ([of_tests("energy", "fit-1")], ""),
        ([of_tests("energy", "plot[1]")], ""),
        ([of_tests("energy", "train")], "notebook.train"),
        ([of_tests("train")], "notebook.train"),
        ([of_tests("energy", total=3)], "2 more tests"),
        ([of_tests("energy"), ("exit_status", Judgement(False, "exit status 9"))], "the check exit_status"),
        ([of_tests("energy"), ("files", Judgement(True, ""))], ""),
        (
            [],
            "the tests that failed are not known",
        ),  # the cell is not tried again, and its latest attempt is in an earlier session
    ],
)
def test_only_the_tests_of_an_xfail_are_expected_to_fail(
    bench: Bench, judged: list[tuple[str, Judgement]], unexpected: str
) -> None:
    entry = {**XFAIL[0], "tests": ["notebook.energy", "notebook.fit*", "notebook.plot[1]"]}
    outcome = attempted(bench.cell(xfail=[entry]), FAILED).finish(FAILED, Conclusion(None, judgements=tuple(judged)))
    if unexpected:
        assert (outcome.verdict, outcome.cause) == (Verdict.FAILED, Cause.PRODUCT)
        assert outcome.message.splitlines() == [
            f"unexpected failures: {unexpected}",
            "exit status 1",
            "only notebook.energy, notebook.fit*, notebook.plot[1]: expected to fail until 2026-06-15 (me): #7",
        ]
    else:
        assert outcome.verdict is Verdict.XFAILED


def test_a_time_limit_is_not_the_expected_failure_of_a_test(bench: Bench) -> None:
    late = Outcome(Verdict.FAILED, Cause.TIMEOUT, "60 s are over")
    run = attempted(bench.cell(xfail=[{**XFAIL[0], "tests": ["notebook.energy"]}]), late)
    assert run.finish(late, Conclusion(late, judgements=(of_tests("energy"),))).verdict is Verdict.FAILED


def test_a_secret_is_in_no_record_of_an_attempt(bench: Bench) -> None:
    bench.redactor.add(["hunter2"])
    run = attempted(bench.cell(), Outcome(Verdict.FAILED, Cause.PRODUCT, "hunter2 is wrong"))
    run.finish(Outcome(Verdict.FAILED, Cause.PRODUCT, "hunter2 is wrong"), Conclusion(None, remark="hunter2"))
    texts = [file.read_text() for file in run.step.directory.rglob("*") if file.is_file()]
    assert not [text for text in [*map(repr, bench.events), *texts] if "hunter2" in text]


SUBMITTED = [AttemptSubmitted("000__x=a", number, f"n-{number}", "one") for number in (1, 2)]
ENDED = AttemptEnded("000__x=a", 1, "one", Verdict.ERROR, Cause.INFRASTRUCTURE, "no route", 1.0)


def remembered(bench: Bench, *events: Event) -> CellRun:
    """Return a cell of a resumed run whose journal has these events."""
    run = bench.cell()
    run.begin()
    past = folded([bench.events[0], *events])  # type: ignore[list-item]
    before = past.latest.get(run.step.key)
    assert before is not None
    run.remember(before)
    return run


def test_attempt_numbers_are_not_reused(bench: Bench) -> None:
    run = remembered(bench, SUBMITTED[0], ENDED, SUBMITTED[1])
    assert (run.attempt, run.target) == (2, "one")
    assert run.history == [Ended(1, Outcome(Verdict.ERROR, Cause.INFRASTRUCTURE, "no route"))]
    submit(run)
    assert run.name.endswith("-3")


def test_attempts_of_an_ended_cell_do_not_use_retries(bench: Bench) -> None:
    finished = StepFinished("000__x=a", "x=a", StepKind.CELL, Verdict.ERROR, Cause.INFRASTRUCTURE, "no route", 1.0)
    run = remembered(bench, SUBMITTED[0], ENDED, finished)
    assert (run.attempt, run.history) == (1, [])


# Values out of the range of earlier runs

ABOVE, BELOW = (
    (("metric", Judgement(False, "out", deviation=Deviation("time", side, improves=False))),)
    for side in (Side.ABOVE, Side.BELOW)
)
WITHIN = (("metric", Judgement(True, "within")),)
OUT = Deviation("time", Side.ABOVE, improves=False)
FAST = (("metric", Judgement(False, "fast", deviation=Deviation("time", Side.BELOW, improves=True))),)
OTHER = (("metric", Judgement(False, "slow", deviation=Deviation("other", Side.ABOVE, improves=False))),)
WRONG = (*ABOVE, ("files", Judgement(False, "no files")))
Judged = tuple[tuple[str, Judgement], ...]


def measured(run: CellRun, *attempts: Judged) -> Outcome:
    """Make one attempt of a cell for each list of judgements, and return the outcome after the last attempt."""
    for judgements in attempts:
        submit(run)
        conclusion = Conclusion(None, judgements=judgements)
        outcome = run.combined_outcome(conclusion)
        run.end(conclusion.outcome_before_comparisons(), conclusion, sync=False)
    return outcome


@pytest.mark.parametrize(
    ("attempts", "verdict"),
    [
        ([ABOVE], Verdict.FAILED),
        ([ABOVE, ABOVE], Verdict.FAILED),
        ([ABOVE, BELOW], Verdict.PASSED),
        ([ABOVE, WITHIN], Verdict.PASSED),
        ([ABOVE, WRONG], Verdict.FAILED),
        ([WITHIN], Verdict.PASSED),
    ],
)
def test_a_value_out_of_its_range_counts_when_another_attempt_confirms_it(
    bench: Bench, attempts: list[Judged], verdict: Verdict
) -> None:
    assert measured(bench.cell(), *attempts).verdict is verdict


def test_a_deviation_is_confirmed_by_one_attempt_without_a_pause(bench: Bench) -> None:
    run = bench.cell(retries={"check": 5})
    measured(run, ABOVE)
    assert run.seconds_until_retry() == 0
    measured(run, ABOVE)
    assert run.seconds_until_retry() is None


def test_only_confirmed_deviations_fail_the_cell(bench: Bench) -> None:
    outcome = measured(bench.cell(), FAST, (*FAST, *OTHER))
    assert (outcome.verdict, outcome.cause) == (Verdict.FAILED, Cause.CHECK)
    assert outcome.message.splitlines() == [
        "metric: fast",
        "another attempt has confirmed the deviation",
        "other: noisy, out of range in one attempt and not in the other",
    ]


def test_a_confirming_attempt_uses_no_retry(bench: Bench) -> None:
    run = bench.cell(retries={"check": 1, "backoff": {"first": 1}})
    measured(run, FAST, (("files", Judgement(False, "no files")),))
    assert run.seconds_until_retry() is not None


def test_noise_is_reported_for_an_expected_failure(bench: Bench) -> None:
    run = bench.cell(xfail=[{"when": {}, "reason": "#1", "owner": "me", "expires": TODAY}])
    outcome = run.finish(measured(run, ABOVE, WITHIN), NOTHING)
    assert outcome.verdict is Verdict.XPASSED
    assert "time: noisy" in outcome.message


def test_a_failure_without_a_deviation_needs_no_confirmation(bench: Bench) -> None:
    run = bench.cell()
    measured(run, WRONG)
    assert run.seconds_until_retry() is None


def test_the_sides_of_earlier_attempts_are_known_after_a_resume(bench: Bench) -> None:
    judged = CheckJudged("000__x=a", "metric", passed=False, message="", metric="time", side=Side.ABOVE)
    ended = AttemptEnded("000__x=a", 1, "one", Verdict.FAILED, Cause.REGRESSION, "out", 1.0)
    run = remembered(bench, SUBMITTED[0], judged, ended)
    assert run.history == [Ended(1, Outcome(Verdict.FAILED, Cause.REGRESSION, "out"), {"time": OUT})]


def test_a_cell_in_quarantine_keeps_its_verdict_and_does_not_count(bench: Bench) -> None:
    kept = {"when": {}, "reason": "#9", "owner": "me", "expires": TODAY}
    run = attempted(bench.cell(quarantine=[kept]), FAILED)
    outcome = run.finish(FAILED, NOTHING)
    assert outcome.verdict is Verdict.FAILED
    assert "in quarantine until 2026-06-15 (me), so the verdict does not count: #9" in outcome.message
    assert (bench.parent.outcome(), run.step.counts) == (None, False)


@pytest.mark.parametrize(
    ("path", "refused"),
    [
        ([], CellState.RUNNING),
        ([CellState.WAITING], CellState.JUDGING),
        ([CellState.STARTING, CellState.RUNNING], CellState.ENDED),
        ([CellState.STARTING, CellState.RUNNING, CellState.JUDGING], CellState.STARTING),
        ([CellState.ENDED], CellState.WAITING),
    ],
)
def test_a_cell_refuses_an_impossible_state_change(bench: Bench, path: list[CellState], refused: CellState) -> None:
    run = bench.cell()
    for state in path:
        run.become(state)
    with pytest.raises(AssertionError, match=f"x=a cannot become {refused}: it is {run.state}"):
        run.become(refused)
