"""The blocking parts of an attempt run in threads, and the calling thread handles their results."""

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.fakes.backend import BROKEN, NEVER, Ending, FakeBackend, Machines
from tests.unit.matrix.conftest import Planned
from toolbox.ground.model.errors import Cancelled, FilesLost, Interrupted, LimitExceeded, StepError
from toolbox.ground.model.events import Event, Note, StepKind
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.ground.model.workloads import AttemptState, AttemptStatus, EndedBy, Handle, Workload, WorkloadOutcome
from toolbox.ground.system import cancellation, signals
from toolbox.ground.system.redaction import Redactor
from toolbox.matrix.cell_run import CellRun, Conclusion
from toolbox.matrix.target_calls import TargetCalls
from toolbox.records.runs.recorder import Recorder
from toolbox.records.runs.steps import Outcome, Step


class Desk:
    """The calls of one cell, and their results."""

    def __init__(self, root: Path, planned: Planned, machines: Machines) -> None:
        target = machines.target("one")
        self.events: list[Event] = []
        self.redactor = Redactor()
        parent = Step(root, Recorder(root, self.redactor, [self.events.append]), "test")
        metrics = {"t": {"source": "json_file", "file": "m.json", "path": "t"}}
        relation = {"check": "relation", "metric": "t", "to": {"x": "b"}, "upper": 2}
        plan = planned({"axes": {"x": ["a"]}, "metrics": metrics, "checks": [relation]}, target)
        self.run = CellRun(plan.cells[0], parent.locate("x=a", StepKind.CELL), parent, "r-1")
        self.run.submit("one")
        self.changed: list[str] = []
        self.calls = TargetCalls(
            {"one": target}, parent.recorder, {"N": "1"}, {}, jobs=1, on_change=self.changed.append
        )
        self.results: list[Any] = []

    def wait(self) -> Any:
        """Handle results until one arrives, and return it."""
        for _ in range(300):
            if self.results:
                return self.results.pop()
            self.calls.handle_results(0.1)
        raise AssertionError("no result arrived")

    def start(self) -> Any:
        """Start the attempt, and return its handle or its error."""
        self.calls.start(self.run, self.results.append, self.results.append)
        started = self.wait()
        if isinstance(started, Handle):
            self.run.handle = started
        return started

    def collect(self) -> Conclusion:
        """Start the attempt, collect its files, and return its conclusion."""
        self.start()
        self.calls.collect(self.run, self.calls.status(self.run), self.results.append)
        found: Conclusion = self.wait()
        return found


@pytest.fixture
def desks(tmp_path: Path, planned: Planned) -> Iterator[Any]:
    opened: list[Desk] = []

    def call(ending: Ending) -> Desk:
        opened.append(Desk(tmp_path / str(len(opened)), planned, Machines({"a": ending})))
        return opened[-1]

    yield call
    for desk in opened:
        desk.calls.close()


def test_results_are_handled_in_the_calling_thread(desks: Any) -> None:
    desk = desks(Ending())
    notified: list[threading.Thread] = []
    desk.calls._on_change = lambda _: notified.append(threading.current_thread())
    desk.start()
    desk.calls.handle_results(0.01)
    assert notified == [threading.main_thread()]


def test_handle_results_returns_after_the_timeout(desks: Any) -> None:
    desks(Ending()).calls.handle_results(0.001)


def test_an_ended_attempt_is_judged_without_comparisons(desks: Any) -> None:
    conclusion = desks(Ending(1, leaves={"m.json": '{"t": 4}'})).collect()
    assert conclusion.metrics["t"].value == 4
    assert [(name, judged.passed) for name, judged in conclusion.judgements] == [("exit_status", False)]
    assert (conclusion.outcome, conclusion.seconds) == (None, 1.5)
    assert conclusion.outcome_before_comparisons().cause is Cause.PRODUCT


@pytest.mark.parametrize("by", [EndedBy.TIMEOUT, EndedBy.LOST, EndedBy.CANCELLED])
def test_an_attempt_that_did_not_end_by_itself_is_not_judged(desks: Any, by: EndedBy) -> None:
    conclusion = desks(Ending(by=by, leaves={"m.json": '{"t": 4}'})).collect()
    assert conclusion.outcome is not None
    assert (conclusion.metrics, conclusion.judgements) == ({}, ())


def test_what_the_supervisor_noticed_becomes_a_remark(desks: Any) -> None:
    remark: dict[str, int | str] = {"leftovers": 2, "log_dropped": 7, "changed_startup_files": "~/.bashrc"}
    conclusion = desks(Ending(remark=remark)).collect()
    assert conclusion.remark == (
        "2 processes of the workload had to be killed; "
        "startup files of the shell changed while the workload ran: ~/.bashrc; "
        "the logs have reached their size limit: 7 bytes were dropped"
    )
    assert desks(Ending(remark={"leftovers": 1})).collect().remark.startswith("a process of the workload")


@pytest.mark.parametrize(("kills", "count"), [(1, "a process"), (3, "3 processes")])
def test_killed_children_of_a_workload_that_ended_well_are_a_remark(desks: Any, kills: int, count: str) -> None:
    conclusion = desks(Ending(remark={"oom_kills": kills})).collect()
    assert (
        conclusion.remark == f"the kernel killed {count} for want of memory in a cgroup of the workload, maybe shared"
    )


def test_the_remark_about_a_failed_workload_names_its_machine(desks: Any) -> None:
    assert desks(Ending(3, remark={"message": "worker 2: exit status 3"})).collect().remark == "worker 2: exit status 3"


def test_processes_that_may_run_on_are_noted_in_the_journal(desks: Any) -> None:
    desk = desks(Ending(by=EndedBy.LOST, remark={"may_remain": True}))
    desk.collect()
    (note,) = [event.text for event in desk.events if isinstance(event, Note)]
    assert note == "processes of r-1-" + desk.run.cell.id + "-1 may still run on one, because the supervisor was killed"


def test_a_secret_in_the_files_of_an_attempt_is_masked_and_noted(desks: Any) -> None:
    desk = desks(Ending(leaves={"stdout.log": "the token is hunter2\n"}))
    desk.redactor.add(["hunter2"])
    desk.collect()
    assert (desk.run.directory / "stdout.log").read_text() == "the token is ***\n"
    assert [event.text for event in desk.events if isinstance(event, Note)] == ["a secret was masked in stdout.log"]


def test_a_failed_start_ends_the_attempt(desks: Any) -> None:
    refusal = StepError("no place", verdict=Verdict.ERROR, cause=Cause.CAPACITY)
    assert desks(Ending(refusal=refusal)).start() == Conclusion(Outcome(Verdict.ERROR, Cause.CAPACITY, "no place"))


NO_ROUTE = StepError("no route", verdict=Verdict.ERROR, cause=Cause.INFRASTRUCTURE)


@pytest.mark.parametrize(
    ("error", "outcome", "is_open", "is_logged"),
    [
        (OSError(28, "No space left on device"), (Verdict.ERROR, Cause.INFRASTRUCTURE), True, False),
        (PermissionError(13, "Permission denied"), (Verdict.ERROR, Cause.INTERNAL), True, False),
        (LimitExceeded("it left more than 5 bytes"), (Verdict.ERROR, Cause.CONFIGURATION), False, False),
        (FilesLost("the machine was deleted"), (Verdict.ERROR, Cause.INFRASTRUCTURE), False, False),
        (Cancelled("it ends"), (Verdict.CANCELLED, Cause.INTERRUPTED), True, False),
        (KeyError("x"), (Verdict.ERROR, Cause.INTERNAL), False, True),
        (NO_ROUTE, (Verdict.ERROR, Cause.INFRASTRUCTURE), True, False),
    ],
)
def test_any_error_becomes_the_outcome_of_the_attempt(
    desks: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: BaseException,
    outcome: tuple[Verdict, Cause],
    is_open: bool,
    is_logged: bool,
) -> None:
    monkeypatch.setattr(FakeBackend, "collect", Mock(side_effect=error))
    found = desks(Ending()).collect()
    assert (found.outcome.verdict, found.outcome.cause) == outcome
    assert (found.is_open, bool(caplog.records)) == (is_open, is_logged)


def test_an_attempt_whose_checks_are_cancelled_stays_on_its_target(desks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TargetCalls, "_judge", Mock(side_effect=Cancelled("it ends")))
    found = desks(Ending()).collect()
    assert (found.outcome.verdict, found.is_open) == (Verdict.CANCELLED, True)


def test_an_attempt_out_of_reach_is_not_collected(desks: Any) -> None:
    desk = desks(Ending(lost="no route"))
    conclusion = desk.collect()
    assert (conclusion.outcome.cause, "no route" in conclusion.outcome.message) == (Cause.INFRASTRUCTURE, True)
    assert not (desk.run.directory / "outcome.json").exists()


def test_only_a_started_workload_is_cancelled(desks: Any) -> None:
    desk = desks(NEVER)
    desk.calls.cancel(desk.run)
    desk.start()
    assert desk.calls.status(desk.run) == AttemptStatus(AttemptState.RUNNING)
    desk.calls.cancel(desk.run)
    desk.calls.close()
    assert desk.calls.status(desk.run).outcome == WorkloadOutcome(EndedBy.CANCELLED, 143)


def test_a_failed_removal_is_logged(
    desks: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for method in ("cancel", "release"):
        monkeypatch.setattr(FakeBackend, method, Mock(side_effect=NO_ROUTE))
    desk = desks(BROKEN)
    desk.start()
    desk.calls.cancel(desk.run)
    desk.calls.release("one", desk.run.handle, pytest.fail)
    desk.calls.close()
    desk.calls.handle_results(0)
    assert sorted(caplog.messages) == [
        f"files of {desk.run.name} remain on one: no route",
        "the workload of x=a could not be ended: no route",
    ]  # fmt: skip


def test_stop_starting_ends_the_wait_for_a_target(desks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(_self: FakeBackend, _workload: Workload, _name: str, _directory: Path) -> Handle:
        cancellation.current().sleep(60)
        raise AssertionError("the wait has not ended")

    monkeypatch.setattr(FakeBackend, "submit", wait)
    desk = desks(Ending())
    desk.calls.start(desk.run, desk.results.append, desk.results.append)
    desk.calls.stop_starting("the run is ending")
    assert desk.wait().outcome == Outcome(Verdict.CANCELLED, Cause.INTERRUPTED, "the run is ending")


def test_a_target_is_opened_once_and_closed_at_the_end(desks: Any) -> None:
    desk = desks(Ending())
    desk.collect()
    desk.calls.close()
    backend = desk.calls._backends["one"]
    assert (backend.machines.closed, backend.context.name) == (["one"], "one")
    assert backend.context.variables == {"N": "1"}
    assert backend.context.mark.name == "one"


def test_a_signal_that_ends_the_wait_for_a_removal_cancels_it(desks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, errors = threading.Event(), []

    def release(_self: FakeBackend, _handle: Handle) -> None:
        begun.set()
        try:
            cancellation.current().sleep(60)
        except Cancelled as error:
            errors.append(str(error))

    def check() -> None:
        assert begun.wait(60)
        raise Interrupted(signal.SIGINT)

    monkeypatch.setattr(FakeBackend, "release", release)
    desk = desks(Ending())
    desk.start()
    desk.calls.release("one", desk.run.handle, tuple)
    monkeypatch.setattr(signals, "check", check)
    with pytest.raises(Interrupted):
        desk.calls.settle()
    assert errors == []
    with pytest.raises(Interrupted):
        desk.calls.close()
    assert errors == ["interrupted by SIGINT"]
    assert desk.calls._backends["one"].machines.closed == ["one"]
