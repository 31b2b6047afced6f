"""A resumed run does not repeat finished cells, and continues with all other cells."""

import time
from dataclasses import replace
from typing import Any

import pytest

from tests.fakes.backend import BROKEN, CRASH, NEVER, Ending, Machines
from tests.fakes.bench import AT_ONCE, Bench, verdicts
from tests.unit.matrix.test_scheduler_relations import B_WITH_A, compared, took
from toolbox.ground.model.errors import Cancelled
from toolbox.ground.model.events import (
    AttemptEnded,
    AttemptReleased,
    AttemptSubmitted,
    CheckJudged,
    Event,
    MatrixPlanned,
    StepFinished,
    StepStarted,
)
from toolbox.ground.system import cancellation
from toolbox.matrix import scheduler
from toolbox.matrix.scheduler import Options

AGAIN = Options(jobs=1, rerun_failed=True)
ONCE_MORE = {**AT_ONCE, "infrastructure": 1}


def interrupt(bench: Bench, xs: str, machines: Machines, *, at: str, **block: Any) -> None:
    """Run cells, and cancel the run when the attempt of the cell `at` begins."""
    with cancellation.opened() as scope:

        def cancel(event: Event) -> None:
            if isinstance(event, AttemptSubmitted) and event.step.endswith(f"={at}"):
                scope.cancel("the run is ending")

        bench.listeners.append(cancel)
        with pytest.raises(Cancelled):
            bench.run(xs, machines, **block)
    bench.listeners.remove(cancel)
    bench.events.clear()


def test_ended_cells_are_restored_and_not_repeated(bench: Bench) -> None:
    machines = Machines({"b": CRASH})
    before = bench.run("ab", machines)
    bench.events.clear()
    after = bench.run("ab", machines)
    assert machines.began() == ["a", "b"]
    assert after.results == before.results
    assert (bench.of(MatrixPlanned)[0].done, bench.ends()) == (2, {})
    assert bench.of(StepFinished)[-1].verdict == "failed"


def test_the_metrics_of_an_ended_cell_are_restored(bench: Bench) -> None:
    before = bench.run("a", Machines({"a": took(1.5)}), metrics=B_WITH_A["metrics"])
    after = bench.run("a", Machines(), metrics=B_WITH_A["metrics"])
    assert after.results == before.results
    (result,) = after.results.values()
    assert result.metrics["t"].value == 1.5


def test_only_unfinished_cells_are_run(bench: Bench) -> None:
    bench.run("abc", Machines())
    bench.forget(StepStarted, "c")
    machines = Machines()
    bench.run("abc", machines)
    assert machines.began() == ["c"]
    assert bench.of(MatrixPlanned)[0].done == 2


@pytest.mark.parametrize("kind", [AttemptEnded, StepFinished])
def test_a_submitted_attempt_is_found_and_not_started_again(bench: Bench, kind: type[Event]) -> None:
    machines = Machines()
    bench.run("a", machines)
    bench.forget(kind, "a")
    scheduler = bench.run("a", machines)
    assert machines.began() == ["a"]
    assert [(result.attempts, result.outcome.verdict) for result in scheduler.results.values()] == [(1, "passed")]


def left_running(bench: Bench, xs: str) -> Machines:
    """Start cells, lose the orchestrator, and return the machines on which the first cell still runs."""
    return bench.left_running(xs, Machines({xs[0]: Ending(1, after=[f"adopt {xs[0]}"])}))


def test_an_attempt_that_still_runs_is_adopted_and_waited_for(bench: Bench) -> None:
    machines = left_running(bench, "a")
    assert verdicts(bench.run("a", machines)) == {"a": "failed"}
    assert machines.log[:4] == ["submit a", "adopt a", "end a", "watch a"]


def test_an_adopted_attempt_counts_among_the_jobs(bench: Bench) -> None:
    machines = left_running(bench, "ab")
    bench.run("ab", machines)
    assert machines.log.index("end a") < machines.log.index("submit b")


def test_an_attempt_that_was_never_started_is_started_under_its_number(bench: Bench) -> None:
    bench.run("a", Machines())
    bench.forget(AttemptEnded, "a")
    machines = Machines()  # these machines do not know the attempt
    bench.run("a", machines)
    assert machines.began() == ["a"]
    assert bench.of(AttemptSubmitted) == []
    assert bench.of(AttemptEnded)[0].attempt == 1


def test_an_attempt_whose_end_was_recorded_is_judged_again_from_its_files(bench: Bench) -> None:
    bench.run("a", Machines({"a": CRASH}))
    bench.forget(StepFinished, "a")
    machines = Machines()
    assert verdicts(bench.run("a", machines)) == {"a": "failed"}
    assert machines.log == []


def test_judging_again_keeps_the_cause_that_a_check_named(bench: Bench) -> None:
    block: dict[str, Any] = {
        "checks": [{"check": "exit_status", "infrastructure": [75]}],
        "retries": {"infrastructure": 0},
    }
    bench.run("a", Machines({"a": Ending(75)}), **block)
    bench.forget(StepFinished, "a")
    assert verdicts(bench.run("a", Machines(), **block)) == {"a": "error"}
    assert bench.ends()["a"].cause == "infrastructure"


def test_judging_again_keeps_the_image_and_the_values_out_of_their_ranges(bench: Bench) -> None:
    block: dict[str, Any] = {
        "metrics": B_WITH_A["metrics"],
        "checks": [{"check": "metric", "metric": "t", "upper": 1}],
    }
    ending = replace(took(1.5), remark={"image": "jax@sha256:1"})
    bench.run("a", Machines({"a": ending}), **block)
    bench.forget(StepFinished, "a")
    bench.run("a", Machines(), **block)
    assert [event.image for event in bench.of(AttemptEnded)] == ["jax@sha256:1"]
    assert [event.out_of_range for event in bench.of(CheckJudged) if event.passed is False] == [True]


def test_earlier_failures_use_retries(bench: Bench) -> None:
    bench.run("a", Machines({"a": BROKEN}), retries=ONCE_MORE)
    bench.forget(StepFinished, "a")
    machines = Machines({"a": BROKEN})
    bench.run("a", machines, retries=ONCE_MORE)
    assert machines.began() == []
    assert bench.ends()["a"].message.count("the verdict of attempt 1 was error") == 1


def test_a_cell_that_waited_for_another_attempt_gets_it(bench: Bench) -> None:
    bench.run("a", Machines({"a": BROKEN}), retries=AT_ONCE | {"infrastructure": 0})
    bench.forget(StepFinished, "a")
    machines = Machines()
    scheduler = bench.run("a", machines, retries=ONCE_MORE)
    assert machines.began() == ["a"]
    (result,) = scheduler.results.values()
    assert (result.attempts, result.outcome.message.splitlines()[0]) == (2, "the cell passed at attempt 2")


def test_attempts_that_were_lost_with_the_machine_are_no_outage(bench: Bench) -> None:
    bench.run("abc", Machines(), options=Options(3))
    bench.forget(AttemptEnded)
    machines = Machines({x: [BROKEN, Ending()] for x in "abc"})
    scheduler = bench.run("abc", machines, options=Options(3))
    assert (scheduler.rules.outage, verdicts(scheduler)) == ("", {"a": "passed", "b": "passed", "c": "passed"})
    assert [result.attempts for result in scheduler.results.values()] == [2, 2, 2]


def test_a_cell_that_was_cancelled_is_run_again_under_the_next_number(bench: Bench) -> None:
    machines = Machines({"a": [NEVER, Ending()]})
    interrupt(bench, "a", machines, at="a")
    scheduler = bench.run("a", machines)
    assert [event.attempt for event in bench.of(AttemptSubmitted)] == [2]
    (result,) = scheduler.results.values()
    assert (result.outcome.verdict, result.outcome.message, result.attempts) == ("passed", "", 2)


def test_an_attempt_that_was_being_cancelled_is_followed_by_another(bench: Bench) -> None:
    machines = Machines({"a": [NEVER, Ending()]})
    interrupt(bench, "a", machines, at="a")
    bench.forget(AttemptEnded, "a")
    assert verdicts(bench.run("a", machines)) == {"a": "passed"}
    assert machines.began() == ["a", "a"]


def test_rerun_failed_repeats_failed_cells(bench: Bench) -> None:
    skip = [{"when": {"x": "c"}, "reason": "#7"}]
    bench.run("abc", Machines({"b": CRASH}), skip=skip)
    machines = Machines()
    scheduler = bench.run("abc", machines, options=AGAIN, skip=skip)
    assert machines.began() == ["b"]
    assert verdicts(scheduler) == {"a": "passed", "b": "passed", "c": "skipped"}
    (again,) = [result for result in scheduler.results.values() if result.name == "x=b"]
    assert again.attempts == 2
    assert not (again.directory / "FAILURE").exists()
    assert (again.directory / "attempt-1").is_dir()


def test_rerun_failed_repeats_failed_attempts_of_unfinished_cells(bench: Bench) -> None:
    bench.run("a", Machines({"a": CRASH}))
    bench.forget(StepFinished, "a")
    machines = Machines()
    assert verdicts(bench.run("a", machines, options=AGAIN)) == {"a": "passed"}
    assert machines.began() == ["a"]


def test_a_cell_with_another_fingerprint_is_run_again(bench: Bench) -> None:
    bench.run("ab", Machines())
    machines = Machines()
    bench.run("ab", machines, checks=[{"check": "exit_status", "expected": 0, "when": {"x": "b"}}])
    assert machines.began() == ["b"]


# Comparisons


EXCUSED = {"xfail": [{"when": {"x": "a"}, "reason": "#7", "owner": "me", "expires": "2030-01-01"}]}


@pytest.mark.parametrize(
    ("ending", "fields", "passed"),
    [
        (took(1), {}, True),
        (CRASH, {}, False),
        (CRASH, EXCUSED, False),
        pytest.param(took(1), EXCUSED, True),
        pytest.param(took(1), {"skip": [{"when": {"x": "a"}, "reason": "#7"}]}, None),
        pytest.param(took(9), compared("a/c", "b/a"), True),
    ],
    ids=["passed", "failed", "failed as expected", "passed unexpectedly", "skipped", "failed a comparison"],
)
def test_a_cell_is_compared_with_a_restored_cell(
    bench: Bench, ending: Ending, fields: dict[str, Any], passed: bool | None
) -> None:
    machines = Machines({"c": took(1), "a": ending, "b": took(1)})
    block = {**B_WITH_A, **fields}
    bench.run("cab", machines, **block)
    whole = bench.relation("b")[0]
    bench.forget(AttemptEnded, "b")
    bench.run("cab", machines, **block)
    assert (whole, bench.relation("b")[0]) == (passed, passed)


def test_a_resumed_run_makes_postponed_comparisons(bench: Bench) -> None:
    machines = Machines({"b": took(1), "a": [took(1, "never"), took(1)]})
    interrupt(bench, "ba", machines, at="a", **B_WITH_A)
    scheduler = bench.run("ba", machines, **B_WITH_A)
    assert bench.relation("b")[0] is True
    assert verdicts(scheduler) == {"a": "passed", "b": "passed"}
    assert machines.began() == ["b", "a", "a"]


def test_an_unreachable_attempt_is_adopted_by_a_resumed_run(bench: Bench) -> None:
    assert verdicts(bench.run("a", Machines({"a": Ending(lost="no route")}))) == {"a": "error"}
    assert bench.of(AttemptEnded) == []
    (submitted,) = bench.of(AttemptSubmitted)
    bench.events.clear()
    machines = Machines({"a": CRASH})
    assert verdicts(bench.run("a", machines)) == {"a": "failed"}
    assert bench.of(AttemptSubmitted) == []  # no other attempt was submitted
    assert [event.attempt for event in bench.of(AttemptEnded)] == [submitted.attempt]


def test_a_resumed_run_removes_the_remains_of_ended_attempts(bench: Bench) -> None:
    machines = Machines()
    bench.run("a", machines)
    bench.forget(AttemptReleased)
    for released in (["a"], []):
        bench.run("a", machines)
        assert [event.step[-1] for event in bench.of(AttemptReleased)] == released
        bench.events.clear()


def test_an_attempt_that_ends_too_late_is_left_to_a_resumed_run(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "_STOP_SECONDS", 0.2)
    machines = Slow({"a": NEVER})
    interrupt(bench, "a", machines, at="a")
    assert ("cancel a" in machines.log, "release a" in machines.log) == (True, False)


class Slow(Machines):
    """Machines that need 0.6 seconds to cancel an attempt."""

    def cancel(self, name: str) -> None:
        time.sleep(0.6)
        super().cancel(name)


def in_image(digest: str) -> Ending:
    """Return the end of a workload that ran in an image with this digest."""
    return Ending(remark={"image": f"registry.example/x:1@sha256:{digest}"})


def test_a_changed_image_digest_is_reported(bench: Bench) -> None:
    bench.run("ab", Machines({"a": in_image("one"), "b": in_image("one")}))
    bench.forget(StepStarted, "b")
    bench.run("ab", Machines({"b": in_image("two")}))
    (ended,) = bench.of(AttemptEnded)
    assert ended.image == "registry.example/x:1@sha256:two"
    assert bench.ends()["b"].message == (
        "the image registry.example/x:1 is sha256:two, but was sha256:one in an earlier attempt of the run"
    )


def test_an_unchanged_image_digest_is_not_reported(bench: Bench) -> None:
    bench.run("ab", Machines({"a": in_image("one"), "b": in_image("one")}))
    assert [end.message for end in bench.ends().values()] == ["", ""]
