"""An attempt that may be running stays open: it is not repeated until its target answers or a user abandons it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fakes.backend import NEVER, Ending, FakeBackend, Machines
from tests.fakes.bench import AT_ONCE, Bench, verdicts
from tests.unit.matrix.test_scheduler_resume import interrupt
from toolbox.ground.model.errors import Cancelled, StepError, SubmissionUnknown
from toolbox.ground.model.events import AttemptAbandoned, AttemptEnded, AttemptReleased, AttemptSubmitted, Note
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.ground.model.workloads import Handle, Workload
from toolbox.ground.system import cancellation
from toolbox.records.runs import journal
from toolbox.records.runs.journal import Journal

OFTEN: dict[str, Any] = {**AT_ONCE, "infrastructure": 2, "capacity": 2}


def lost(kind: type[StepError]) -> Ending:
    """Return a submission that fails with an error of this kind."""
    return Ending(refusal=kind("no answer", verdict=Verdict.ERROR, cause=Cause.INFRASTRUCTURE))


def left_running(bench: Bench, ending: Ending = NEVER) -> Machines:
    """Start the cell `a`, lose the orchestrator, and return the machines on which its attempt still runs."""
    return bench.left_running("a", Machines({"a": [ending, Ending()]}))


def give_up(bench: Bench) -> None:
    """Abandon the latest attempt of the cell, as a user does."""
    submitted = [e.event for e in journal.read(bench.root) if isinstance(e.event, AttemptSubmitted)][-1]
    with Journal(bench.root) as opened:
        opened.append(AttemptAbandoned(submitted.step, submitted.attempt))
    bench.events.clear()


@pytest.mark.parametrize(("kind", "attempts"), [(SubmissionUnknown, 1), (StepError, 3)])
def test_only_a_submission_that_started_nothing_is_tried_again(
    bench: Bench, kind: type[StepError], attempts: int
) -> None:
    machines = Machines({"a": lost(kind)})
    assert verdicts(bench.run("a", machines, retries=OFTEN)) == {"a": "error"}
    assert len(bench.of(AttemptSubmitted)) == attempts
    assert len(bench.of(AttemptEnded)) == attempts - (kind is SubmissionUnknown)


def test_an_unexpected_error_leaves_the_attempt_open(bench: Bench) -> None:
    bench.run("a", Machines({"a": Ending(refusal=ZeroDivisionError("ours"))}), retries={**OFTEN, "product": 2})
    assert (len(bench.of(AttemptSubmitted)), bench.of(AttemptEnded)) == (1, [])


def test_an_adopted_attempt_on_an_unreachable_target_is_not_repeated(bench: Bench) -> None:
    machines = left_running(bench)
    machines.away.add("one")
    scheduler = bench.run("a", machines, machines.target("one"), machines.target("two"), retries=OFTEN)
    assert verdicts(scheduler) == {"a": "error"}
    assert (bench.of(AttemptSubmitted), bench.of(AttemptEnded)) == ([], [])
    assert machines.began() == ["a"]


def test_the_message_of_an_open_attempt_says_where_it_is_and_what_to_do(bench: Bench) -> None:
    machines = left_running(bench)
    machines.away.add("one")
    bench.run("a", machines)
    end = bench.ends()["a"]
    assert end.cause is Cause.INFRASTRUCTURE
    assert "may be running: no route to host" in end.message
    assert f"project resume {bench.root}` continues the attempt when `one` answers" in end.message
    assert "--abandon" in end.message


def test_an_open_attempt_is_adopted_when_its_target_answers_again(bench: Bench) -> None:
    machines = left_running(bench, Ending(after=["adopt a"]))
    machines.away.add("one")
    bench.run("a", machines)
    machines.away.clear()
    assert verdicts(bench.run("a", machines)) == {"a": "passed"}
    assert (machines.began(), [event.attempt for event in bench.of(AttemptEnded)]) == (["a"], [1])


def test_a_run_that_is_cancelled_while_it_adopts_an_attempt_leaves_it_open(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines, adopt = left_running(bench), FakeBackend.find
    with cancellation.opened() as scope:

        def find(self: FakeBackend, workload: Workload, name: str, directory: Path) -> Handle | None:
            if not scope.reason:
                scope.cancel("the run is ending")
                cancellation.current().sleep(60)
                raise AssertionError("the wait has not ended")
            return adopt(self, workload, name, directory)

        monkeypatch.setattr(FakeBackend, "find", find)
        with pytest.raises(Cancelled):
            bench.run("a", machines)
    assert bench.of(AttemptEnded) == []
    assert "cancel a" in machines.log  # a later session reads the outcome


def test_a_run_that_is_interrupted_ends_its_open_attempts_too(bench: Bench) -> None:
    machines = Machines({"a": [Ending(lost="no route"), Ending()], "b": [NEVER, Ending()]})
    interrupt(bench, "ab", machines, at="b")
    assert machines.log.count("cancel a") == 1
    assert bench.ends() == {}


def test_an_open_attempt_on_an_unreachable_target_does_not_delay_the_end(bench: Bench) -> None:
    machines = Machines({"a": Ending(lost="no route"), "b": NEVER})
    bench.listeners.append(
        lambda event: (
            machines.away.add("one") if isinstance(event, AttemptSubmitted) and event.step[-1] == "b" else None
        )
    )
    interrupt(bench, "ab", machines, at="b")
    assert "cancel a" not in machines.log


# Attempts that a user abandons


def test_a_cell_is_repeated_after_its_abandoned_attempt_is_removed(bench: Bench) -> None:
    machines = left_running(bench)
    give_up(bench)
    scheduler = bench.run("a", machines)
    assert verdicts(scheduler) == {"a": "passed"}
    assert machines.log[:7] == ["submit a", "adopt a", "watch a", "cancel a", "end a", "release a", "submit a"]
    assert [event.attempt for event in bench.of(AttemptSubmitted)] == [2]
    assert [event.attempt for event in bench.of(AttemptReleased)] == [1, 2]
    assert "leave one" in machines.log


def test_an_unreachable_attempt_is_removed_by_a_later_session(bench: Bench) -> None:
    machines = left_running(bench)
    targets = machines.target("one"), machines.target("two")
    give_up(bench)
    machines.away.add("one")
    scheduler = bench.run("a", machines, *targets)
    assert (verdicts(scheduler), machines.targets_of["a"]) == ({"a": "passed"}, ["one", "two"])
    assert [event.attempt for event in bench.of(AttemptReleased)] == [2]
    assert "leave one" not in machines.log
    machines.away.clear()
    bench.events.clear()
    bench.run("a", machines, *targets)
    assert [event.attempt for event in bench.of(AttemptReleased)] == [1]
    assert (machines.log.count("cancel a"), machines.began()) == (1, ["a", "a"])


def test_the_removal_of_an_unreachable_attempt_is_repeated_at_the_end(bench: Bench) -> None:
    machines = left_running(bench)
    give_up(bench)
    machines.away.add("one")
    bench.listeners.append(lambda event: machines.away.clear() if isinstance(event, AttemptEnded) else None)
    bench.run("a", machines, machines.target("one"), machines.target("two"))
    assert {event.attempt for event in bench.of(AttemptReleased)} == {1, 2}


def test_an_abandoned_attempt_uses_no_retry(bench: Bench) -> None:
    machines = left_running(bench, Ending(code=1, after=["adopt a"]))
    give_up(bench)
    (result,) = bench.run("a", machines, retries={"infrastructure": 0}).results.values()
    assert (result.outcome.verdict, result.outcome.message, result.attempts) == ("passed", "", 2)


def test_an_unreachable_target_delays_no_other_cell(bench: Bench) -> None:
    machines = left_running(bench)
    give_up(bench)
    machines.away.add("one")
    scheduler = bench.run("ab", machines, machines.target("one"), machines.target("two"))
    assert verdicts(scheduler) == {"a": "passed", "b": "passed"}
    assert not [event for event in bench.of(Note) if "outage" in event.text]
