"""The scheduler starts, repeats and stops cells; the machines are fakes on which no program runs."""

import datetime as dt
from typing import Any

import pytest

from tests.fakes.backend import BROKEN, CRASH, NEVER, Ending, Machines
from tests.fakes.bench import AT_ONCE, Bench, verdicts
from tests.unit.matrix.conftest import TODAY
from toolbox.ground.model.errors import Cancelled, InfrastructureError, StepError
from toolbox.ground.model.events import (
    AttemptEnded,
    AttemptSubmitted,
    AttemptWaiting,
    Event,
    MatrixPlanned,
    StepFinished,
    StepKind,
)
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.ground.model.workloads import EndedBy
from toolbox.ground.system import cancellation
from toolbox.matrix.scheduler import Options
from toolbox.records.runs.journal import Journal

# The order and the targets of cells


def test_every_cell_is_run_and_recorded_with_its_attempt(bench: Bench) -> None:
    scheduler = bench.run(["a", "b"], Machines({"b": CRASH}))
    assert verdicts(scheduler) == bench.verdicts() == {"a": "passed", "b": "failed"}
    assert [(event.cells, event.jobs, event.done) for event in bench.of(MatrixPlanned)] == [(2, 1, 0)]
    ended = [(event.attempt, event.target, event.verdict, event.seconds) for event in bench.of(AttemptEnded)]
    assert ended == [(1, "one", Verdict.PASSED, 1.5), (1, "one", Verdict.FAILED, 1.5)]
    result = list(scheduler.results.values())[1]
    assert (result.outcome.cause, result.outcome.message) == (Cause.PRODUCT, "exit_status: exit status 1, expected 0")
    assert (result.directory / "attempt-1/outcome.json").is_file()
    assert (result.directory / "settings.yaml").read_text() == "x: b\n"


def test_the_enclosing_step_gets_the_worst_verdict(bench: Bench) -> None:
    bench.run(["a", "b", "c"], Machines({"b": CRASH}))
    (phase,) = [event for event in bench.of(StepFinished) if event.kind is StepKind.PHASE]
    assert phase.verdict is Verdict.FAILED


def test_a_submission_is_recorded_before_it_is_made(bench: Bench) -> None:
    machines = Machines()
    written: list[int] = []

    def look(event: Event) -> None:
        if isinstance(event, AttemptSubmitted):
            written.append(len(machines.log))
            assert event.name in (bench.root / "journal.jsonl").read_text()

    bench.listeners.append(look)
    bench.run(["a"], machines)
    assert written == [0]


def test_an_ended_attempt_is_released_and_its_target_closed(bench: Bench) -> None:
    machines = Machines()
    bench.run(["a"], machines)
    assert machines.log == ["submit a", "end a", "watch a", "collect a", "release a", "leave one"]
    assert machines.closed == ["one"]


def test_a_target_with_remains_is_not_torn_down(bench: Bench) -> None:
    machines = Machines({"a": Ending(lost="the cable")})
    bench.run(["a", "b"], machines)
    assert "release b" in machines.log
    assert "leave one" not in machines.log


def test_an_attempt_that_never_started_leaves_no_remains(bench: Bench) -> None:
    refusal = StepError("no", verdict=Verdict.ERROR, cause=Cause.CONFIGURATION)
    machines = Machines({"a": Ending(refusal=refusal)})
    bench.run(["a"], machines)
    assert machines.log == ["submit a", "leave one"]


def after(*words: str) -> Ending:
    """Return the end of an attempt that waits until others have begun."""
    return Ending(after=[f"submit {word}" for word in words])


CHAIN = {"a": after("b"), "b": after("c"), "c": after("d")}


@pytest.mark.parametrize(("options", "block"), [(Options(jobs=2), {}), (Options(), {"jobs": 2})])
def test_at_most_jobs_cells_run_at_once(bench: Bench, options: Options, block: dict[str, Any]) -> None:
    machines = Machines(CHAIN)
    bench.run(["a", "b", "c", "d"], machines, options=options, **block)
    assert machines.peaks["all"] == 2


def test_without_jobs_each_target_runs_one_cell(bench: Bench) -> None:
    machines = Machines(CHAIN)
    bench.run(["a", "b", "c", "d"], machines, machines.target("one"), machines.target("two"), options=Options())
    assert machines.peaks == {"all": 2, "one": 1, "two": 1}


def test_a_full_pool_delays_only_cells_that_need_it(bench: Bench) -> None:
    machines = Machines({"a": after("c"), "c": after("d")})
    resources = [{"when": {"x": ["a", "b"]}, "resources": {"licence": 1}}]
    bench.run(["a", "b", "c", "d"], machines, options=Options(jobs=4), pools={"licence": 1}, settings=resources)
    assert machines.log.index("end a") < machines.log.index("submit b")


def test_a_target_is_not_overloaded(bench: Bench) -> None:
    machines = Machines(CHAIN)
    target = machines.target("one", chip=4)
    bench.run(["a", "b", "c", "d"], machines, target, options=Options(jobs=4), resources={"chip": 2})
    assert machines.peaks["one"] == 2


def test_cells_are_spread_over_targets_by_their_numbers_of_jobs(bench: Bench) -> None:
    everyone = [f"submit {word}" for word in "abcdef"]
    machines = Machines({word: Ending(after=everyone) for word in "abcdef"})
    targets = (machines.target("big", jobs=4), machines.target("small", jobs=2))
    bench.run(list("abcdef"), machines, *targets, options=Options(jobs=6))
    assert machines.peaks == {"all": 6, "big": 4, "small": 2}


def test_cells_with_other_needs_take_turns(bench: Bench) -> None:
    machines = Machines()
    settings = [{"when": {"x": ["d", "e"]}, "resources": {"chip": 1}}]
    bench.run(list("abcde"), machines, settings=settings)
    assert machines.began() == ["a", "d", "b", "e", "c"]


# Attempts that do not pass


def test_every_attempt_is_kept_under_its_number(bench: Bench) -> None:
    scheduler = bench.run(["a"], Machines({"a": [Ending(by=EndedBy.LOST, leaves={"log": "1"}), Ending()]}))
    (result,) = scheduler.results.values()
    assert (result.directory / "attempt-1/log").read_text() == "1"
    assert (result.directory / "attempt-2/exit_code").is_file()
    assert [(event.attempt, event.verdict) for event in bench.of(AttemptEnded)] == [
        (1, Verdict.ERROR), (2, Verdict.PASSED),
    ]  # fmt: skip
    names = [event.name for event in bench.of(AttemptSubmitted)]
    assert [name.rpartition("-")[2] for name in names] == ["1", "2"]


REFUSED = Ending(refusal=StepError("no place for it", verdict=Verdict.ERROR, cause=Cause.CAPACITY))


@pytest.mark.parametrize(
    ("ending", "retries", "attempts", "cause"),
    [
        (BROKEN, {}, 3, Cause.INFRASTRUCTURE),
        (BROKEN, {"infrastructure": 0}, 1, Cause.INFRASTRUCTURE),
        (CRASH, {}, 1, Cause.PRODUCT),
        (CRASH, {"product": 1}, 2, Cause.PRODUCT),
        (Ending(by=EndedBy.TIMEOUT), {}, 1, Cause.TIMEOUT),
        (Ending(by=EndedBy.SILENCE), {"timeout": 2}, 3, Cause.TIMEOUT),
        (REFUSED, {}, 3, Cause.CAPACITY),
        (REFUSED, {"capacity": 1}, 2, Cause.CAPACITY),
        (Ending(by=EndedBy.NOT_STARTED), {}, 1, Cause.CONFIGURATION),
        (Ending(refusal=ZeroDivisionError("our own fault")), {}, 1, Cause.INTERNAL),
        (Ending(lost="no route"), {"infrastructure": 1}, 1, Cause.INFRASTRUCTURE),  # the workload may still be running
        (Ending(code=0, leaves={"m.json": "5"}), {"check": 1}, 2, Cause.CHECK),
    ],
)
def test_the_cause_decides_whether_there_is_another_attempt(
    bench: Bench, ending: Ending, retries: dict[str, int], attempts: int, cause: Cause
) -> None:
    machines = Machines({"a": ending})
    checks = [{"check": "files", "glob": "wanted"}] if ending.leaves else []
    bench.run(["a"], machines, retries={**AT_ONCE, **retries}, checks=checks)
    assert machines.began() == ["a"] * attempts
    assert bench.ends()["a"].cause is cause


def test_each_cause_has_its_own_count(bench: Bench) -> None:
    machines = Machines({"a": [BROKEN, CRASH, BROKEN, CRASH]})
    bench.run(["a"], machines, retries={**AT_ONCE, "infrastructure": 2, "product": 1})
    assert [event.verdict for event in bench.of(AttemptEnded)] == [
        Verdict.ERROR, Verdict.FAILED, Verdict.ERROR, Verdict.FAILED,
    ]  # fmt: skip


def test_another_attempt_prefers_another_target(bench: Bench) -> None:
    machines = Machines({"a": [BROKEN, BROKEN, Ending()]})
    bench.run(["a"], machines, machines.target("one"), machines.target("two"))
    assert machines.targets_of["a"] == ["one", "two", "one"]


@pytest.mark.parametrize("cause", [Cause.INFRASTRUCTURE, Cause.CONFIGURATION])
def test_the_next_cells_avoid_a_target_that_has_refused_a_cell(bench: Bench, cause: Cause) -> None:
    """A target that refuses every cell at once would look free, and get all cells."""
    machines = Machines({"a": Ending(refusal=StepError("no", verdict=Verdict.ERROR, cause=cause))})
    bench.run("abc", machines, machines.target("one"), machines.target("two"), retries={"infrastructure": 0})
    assert [machines.targets_of[name] for name in "abc"] == [["one"], ["two"], ["two"]]


def test_a_pause_before_an_attempt_delays_no_other_cell(bench: Bench) -> None:
    machines = Machines({"a": [BROKEN, Ending()]})
    bench.run(["a", "b", "c"], machines, retries={"backoff": {"first": 0.3}})
    assert machines.began() == ["a", "b", "c", "a"]


def test_an_unreachable_target_may_still_run_the_workload(bench: Bench) -> None:
    bench.run(["a"], Machines({"a": Ending(lost="no route to host")}), retries={"infrastructure": 0})
    message = "the connection was lost, and the workload may still be running: no route to host"
    assert bench.ends()["a"].message.startswith(f"{message}\nattempt 1 stays open: ")


def test_an_unexpected_error_is_logged_with_its_traceback(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.run(["a"], Machines({"a": Ending(refusal=ZeroDivisionError("our own fault"))}))
    assert bench.ends()["a"].message.startswith("ZeroDivisionError: our own fault\nattempt 1 stays open: ")
    assert [record.exc_info is not None for record in caplog.records] == [True]


# Skipped cells and expected failures


def test_a_skipped_cell_has_a_reason_and_is_not_run(bench: Bench) -> None:
    machines = Machines()
    bench.run(["a", "b"], machines, skip=[{"when": {"x": "a"}, "reason": "#7"}])
    assert machines.began() == ["b"]
    assert (bench.ends()["a"].verdict, bench.ends()["a"].message) == (Verdict.SKIPPED, "#7")


def expected(expires: dt.date = TODAY) -> list[dict[str, Any]]:
    return [{"when": {}, "reason": "#7", "owner": "me", "expires": expires}]


@pytest.mark.parametrize(
    ("ending", "verdict", "cause", "message"),
    [
        (CRASH, Verdict.XFAILED, Cause.PRODUCT, "expected to fail until 2026-06-15 (me): #7"),
        (Ending(by=EndedBy.TIMEOUT), Verdict.XFAILED, Cause.TIMEOUT, "expected to fail until"),
        (Ending(), Verdict.XPASSED, Cause.CHECK, "the cell passed, but was expected to fail until 2026-06-15 (me): #7"),
        (REFUSED, Verdict.ERROR, Cause.CAPACITY, "no place for it"),
    ],
)
def test_an_expected_failure_passes_and_an_unexpected_pass_fails(
    bench: Bench, ending: Ending, verdict: Verdict, cause: Cause, message: str
) -> None:
    bench.run(["a"], Machines({"a": ending}), xfail=expected())
    end = bench.ends()["a"]
    assert (end.verdict, end.cause) == (verdict, cause)
    assert end.message.startswith(message)


def test_an_expired_xfail_does_not_apply_and_is_noted(bench: Bench) -> None:
    over = expected(TODAY - dt.timedelta(1))
    bench.run(["a", "b"], Machines({"a": CRASH}), xfail=over)
    assert bench.verdicts() == {"a": "failed", "b": "passed"}
    assert bench.ends()["a"].message.endswith("expected to fail until 2026-06-14 (me: #7): this entry has expired")
    assert bench.ends()["b"].message == ""


# The end of a run


def test_an_outage_ends_all_retries(bench: Bench) -> None:
    machines = Machines(dict.fromkeys("abcdef", BROKEN))
    scheduler = bench.run(list("abcdef"), machines, retries={"infrastructure": 2, "backoff": {"first": 0.2}})
    message = "outage: 3 of 6 cells failed because of the infrastructure; cells are no longer retried"
    assert (scheduler.rules.outage, bench.notes()) == (message, [message])
    assert bench.verdicts() == dict.fromkeys("abcdef", "error")
    assert {word: machines.began().count(word) for word in "cdef"} == dict.fromkeys("cdef", 1)


def test_the_loss_of_one_machine_is_no_outage(bench: Bench) -> None:
    begun = tuple(f"submit {cell}" for cell in "abcd")
    lost = Ending(by=EndedBy.LOST, after=begun, remark={"host": "tpu-1"})
    machines = Machines({cell: [lost, Ending()] for cell in "abcd"})
    scheduler = bench.run(list("abcd"), machines, machines.target("one"), options=Options(jobs=4))
    assert (scheduler.rules.outage, bench.verdicts()) == ("", dict.fromkeys("abcd", "passed"))


def test_a_host_that_no_longer_answers_does_not_end_the_retries_on_another_host(bench: Bench) -> None:
    lost = Ending(lost="no route to host", after=("submit a", "submit b", "submit c"))
    restarted = Ending(by=EndedBy.LOST, after=("submit c",))
    machines = Machines({"a": [lost], "b": [lost], "c": [lost], "d": [restarted, Ending()]})
    targets = machines.target("one", jobs=3), machines.target("two", jobs=1)
    scheduler = bench.run(list("abcdefghi"), machines, *targets, options=Options(jobs=4))
    assert (scheduler.rules.outage, bench.verdicts()["d"]) == ("", "passed")


def test_fail_fast_cancels_running_cells_and_starts_no_more(bench: Bench) -> None:
    machines = Machines({"a": Ending(1, after=["submit b"]), "b": NEVER})
    scheduler = bench.run(["a", "b", "c"], machines, options=Options(jobs=2, fail_fast=True))
    assert verdicts(scheduler) == {"a": "failed", "b": "cancelled"}
    assert scheduler.rules.stopped == "a cell did not pass: no more cells were started"
    assert bench.notes() == [scheduler.rules.stopped]


def test_fail_fast_ignores_expected_failures(bench: Bench) -> None:
    scheduler = bench.run(["a", "b"], Machines({"a": CRASH}), options=Options(1, fail_fast=True), xfail=expected())
    assert (verdicts(scheduler), scheduler.rules.stopped) == (
        {"a": "xfailed", "b": "xpassed"}, "a cell did not pass: no more cells were started",
    )  # fmt: skip


def test_after_max_failures_running_cells_end_and_none_starts(bench: Bench) -> None:
    machines = Machines({"a": CRASH, "b": Ending(1, after=["watch c"]), "c": Ending(after=["release b"])})
    scheduler = bench.run(list("abcd"), machines, options=Options(jobs=2, max_failures=2))
    assert verdicts(scheduler) == {"a": "failed", "b": "failed", "c": "passed"}
    assert "d" not in machines.began()
    assert scheduler.rules.stopped == "2 cells did not pass: no more cells were started"


def test_a_cell_that_waits_for_another_attempt_does_not_get_it_after_the_stop(bench: Bench) -> None:
    machines = Machines({"a": BROKEN, "b": Ending(1, after=["release a"])})
    bench.run(["a", "b"], machines, options=Options(2, max_failures=1), retries={"backoff": {"first": 60}})
    assert bench.verdicts() == {"a": "cancelled", "b": "failed"}
    assert machines.began() == ["a", "b"]


def test_a_cancelled_run_ends_and_records_running_attempts(bench: Bench) -> None:
    machines = Machines({"a": NEVER})

    with cancellation.opened() as scope:

        def cancel(event: Event) -> None:
            if isinstance(event, AttemptSubmitted):
                scope.cancel("the run is ending")

        bench.listeners.append(cancel)
        with pytest.raises(Cancelled, match="the run is ending"):
            bench.run(["a", "b"], machines)
    assert bench.verdicts() == {"a": "cancelled"}
    assert machines.began() == ["a"]
    assert "cancel a" in machines.log


def test_the_reason_for_waiting_is_recorded_once(bench: Bench) -> None:
    events = list[Event]()
    bench.listeners.append(events.append)
    machines = Machines({"a": Ending(waits="waiting for a node", after=("end b",)), "b": Ending(after=("watch a",))})
    bench.run(["a", "b"], machines, options=Options(jobs=2))
    assert [event.reason for event in events if isinstance(event, AttemptWaiting)] == ["waiting for a node"]


def test_a_failing_journal_ends_running_attempts(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    machines = Machines({"a": after("b"), "b": NEVER})
    append = Journal.append

    def fill(self: Journal, event: Any, *, sync: bool = True) -> None:
        if isinstance(event, AttemptEnded):
            raise InfrastructureError("no space left on device")
        append(self, event, sync=sync)

    monkeypatch.setattr(Journal, "append", fill)
    with pytest.raises(InfrastructureError, match="no space left"):
        bench.run(["a", "b", "c"], machines, options=Options(jobs=2))
    assert "end b" in machines.log
    assert "c" not in machines.began()
