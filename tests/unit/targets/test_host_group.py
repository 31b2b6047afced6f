"""A group of machines runs each attempt on all of them, and ends the attempt when one of them fails."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conformance.sites import wait_for
from tests.fakes.ledger import MemoryLedger
from toolbox.ground.model.errors import Cancelled, LimitExceeded, StepError, SubmissionUnknown
from toolbox.ground.model.workloads import (
    AttemptState,
    AttemptStatus,
    EndedBy,
    Handle,
    TargetContext,
    Timeouts,
    Workload,
    WorkloadOutcome,
)
from toolbox.ground.system import filesystem
from toolbox.targets import host_group
from toolbox.targets.host_group import HostGroup, Member

WORK = Workload(("true",), env={"A": "1"}, timeouts=Timeouts(wait=5, grace=0.1))
GOOD = WorkloadOutcome(EndedBy.EXIT, 0, seconds=1.0)
CANCELLED = WorkloadOutcome(EndedBy.CANCELLED, 143)
RUNNING = AttemptStatus(AttemptState.RUNNING)


class Machine:
    """A machine on which a test decides how each attempt ends. Its methods are those of a backend.

    The errors of a machine name the machine, as those of every backend do.

    Args:
        refusal: the error with which the machine refuses each attempt.
        is_deaf: whether a cancelled attempt does not end.
        on_submit: called during each submission.
    """

    def __init__(self) -> None:
        self.context: TargetContext
        self.refusal: BaseException | None = None
        self.is_deaf = False
        self.on_submit: Callable[[], None] = lambda: None
        self.statuses: dict[str, AttemptStatus] = {}
        self.workloads: list[Workload] = []
        self.collected: list[Path] = []
        self.released: list[str] = []
        self.is_closed = False

    def open(self, context: TargetContext) -> Machine:
        self.context = context
        return self

    def submit(self, workload: Workload, name: str, directory: Path) -> Handle:
        self.on_submit()
        if self.refusal is not None:
            raise self.refusal
        self.workloads.append(workload)
        self.statuses[name] = RUNNING
        return Handle(name, directory)

    def poll(self, handles: Iterable[Handle]) -> Mapping[Handle, AttemptStatus]:
        return {handle: self.statuses[handle.name] for handle in handles}

    def collect(self, handle: Handle, workload: Workload) -> None:  # noqa: ARG002  # the protocol requires it
        if self.refusal is not None:
            raise self.refusal
        self.collected.append(handle.directory)
        filesystem.write_text(handle.directory / "exit_code", "0\n")

    def cancel(self, handle: Handle) -> None:
        if self.refusal is not None:
            raise self.refusal
        if not self.is_deaf:
            self.end(CANCELLED, handle.name)

    def release(self, handle: Handle) -> None:
        self.released.append(handle.name)

    def find(self, workload: Workload, name: str, directory: Path) -> Handle | None:  # noqa: ARG002
        if self.refusal is not None:
            raise self.refusal
        return Handle(name, directory) if name in self.statuses else None

    def close(self) -> None:
        self.is_closed = True

    def end(self, outcome: WorkloadOutcome, name: str = "cell") -> None:
        self._become(AttemptStatus(AttemptState.ENDED, outcome), name)

    def lose(self, reason: str) -> None:
        self._become(AttemptStatus(AttemptState.UNREACHABLE, message=reason), "cell")

    def _become(self, status: AttemptStatus, name: str) -> None:
        if not self.statuses[name].state.is_over:
            self.statuses[name] = status
            self.context.notify(name)


class Group:
    """A group of three machines, and its reports.

    Args:
        directory: the directory of the attempt.
    """

    def __init__(self, directory: Path, threads: ThreadPoolExecutor) -> None:
        self.directory = directory
        self.machines = [Machine(), Machine(), Machine()]
        self.notified: list[str] = []
        self._threads = threads
        self.group = self.reopen()

    def reopen(self) -> HostGroup:
        """Return another group of the same machines, as in a resumed run."""
        context = TargetContext("tpus", "run", self.directory / "mark", {}, list, self.notified.append, MemoryLedger())
        members = [Member(f"worker {i}", each.open, {"PLACE": str(i)}) for i, each in enumerate(self.machines)]
        self.group = HostGroup(context, members, self._threads, lost_seconds=3)
        return self.group

    def submit(self) -> Handle:
        return self.group.submit(WORK, "cell", self.directory)

    def status(self) -> AttemptStatus:
        handle = Handle("cell", self.directory)
        return self.group.poll([handle])[handle]

    def end(self) -> WorkloadOutcome:
        """Wait until the attempt is over, and return its outcome."""
        wait_for(lambda: self.status().state.is_over, "the end of the attempt")
        outcome = self.status().outcome
        assert outcome is not None, self.status()
        return outcome


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    with ThreadPoolExecutor() as threads:
        made = Group(tmp_path / "attempt-1", threads)
        yield made
        made.group.close()


def test_each_machine_gets_the_workload_with_its_variables(group: Group) -> None:
    group.submit()
    assert [machine.workloads[0].env for machine in group.machines] == [{"PLACE": str(i), "A": "1"} for i in range(3)]
    assert {machine.workloads[0].timeouts.wait for machine in group.machines} == {3}
    assert [machine.context.name for machine in group.machines] == [f"tpus, worker {i}" for i in range(3)]
    assert group.status() == RUNNING


def test_an_attempt_passes_when_it_has_passed_on_all_machines(group: Group) -> None:
    group.submit()
    group.machines[2].end(dataclasses.replace(GOOD, seconds=2.0, leftovers=1, changed_startup_files="~/.bashrc"))
    group.machines[0].end(dataclasses.replace(GOOD, changed_startup_files="~/.bashrc"))
    assert group.status() == RUNNING
    group.machines[1].end(dataclasses.replace(GOOD, cpu_seconds=3.0))
    assert group.end() == dataclasses.replace(
        GOOD, seconds=2.0, leftovers=1, cpu_seconds=3.0, changed_startup_files="~/.bashrc"
    )
    assert group.notified == ["cell"]


def test_a_failure_on_one_machine_ends_the_others_and_is_named(group: Group) -> None:
    group.submit()
    group.machines[1].end(WorkloadOutcome(EndedBy.EXIT, 3))
    outcome = group.end()
    assert (outcome.ended_by, outcome.exit_code, outcome.message) == (EndedBy.EXIT, 3, "worker 1: exit status 3")
    assert group.machines[0].statuses["cell"].outcome == CANCELLED


def test_a_lost_machine_is_worse_than_the_failures_that_follow(group: Group) -> None:
    group.submit()
    group.machines[2].is_deaf = True
    group.machines[0].end(WorkloadOutcome(EndedBy.EXIT, 1))
    group.machines[2].lose("tpus, worker 2: no route to host")
    outcome = group.end()
    assert (outcome.ended_by, outcome.may_remain) == (EndedBy.LOST, True)
    assert outcome.message == "tpus, worker 2: no route to host"


def test_a_failure_is_named_even_if_its_message_contains_the_name_of_the_machine(group: Group) -> None:
    group.submit()
    group.machines[1].end(WorkloadOutcome(EndedBy.NOT_STARTED, message="`worker 1: x` cannot be started"))
    assert group.end().message == "worker 1: `worker 1: x` cannot be started"


def test_the_first_of_two_failures_counts(group: Group) -> None:
    group.submit()
    group.machines[0].is_deaf = True
    group.machines[2].end(WorkloadOutcome(EndedBy.SIGNAL, 139, "it was killed by SIGSEGV"))
    group.machines[0].end(WorkloadOutcome(EndedBy.EXIT, 1))
    assert group.end().message == "worker 2: it was killed by SIGSEGV"


def test_a_machine_that_does_not_end_its_workload_is_lost(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_group, "_END_SECONDS", 0.0)
    group.submit()
    group.machines[1].is_deaf = True
    group.machines[0].end(WorkloadOutcome(EndedBy.EXIT, 1))
    outcome = group.end()
    assert (outcome.ended_by, outcome.may_remain) == (EndedBy.LOST, True)
    assert outcome.message.startswith("worker 1: the workload did not end within 0 s after it was cancelled")


def test_a_machine_that_cannot_be_cancelled_is_lost(group: Group) -> None:
    group.submit()
    group.machines[1].refusal = StepError("tpus, worker 1: no route to host")
    group.machines[0].end(WorkloadOutcome(EndedBy.EXIT, 1))
    assert group.end().message == "tpus, worker 1: no route to host"


def test_an_attempt_is_unreachable_if_no_machine_answers(group: Group) -> None:
    """Then the network of this machine has probably failed, and the workload may continue."""
    group.submit()
    for machine in group.machines:
        machine.is_deaf = True
    for machine in group.machines:
        machine.lose("network is unreachable")
    wait_for(lambda: group.status().state.is_over, "the end of the attempt")
    assert group.status() == AttemptStatus(AttemptState.UNREACHABLE, message="network is unreachable")


def test_a_cancelled_attempt_is_cancelled_on_all_machines(group: Group) -> None:
    handle = group.submit()
    group.machines[0].is_deaf = True
    group.group.cancel(handle)
    wait_for(lambda: group.machines[1].statuses["cell"].state.is_over, "the end on the other machines")
    group.machines[0].end(WorkloadOutcome(EndedBy.EXIT, 1))  # its workload has lost its peers
    assert group.end().ended_by is EndedBy.CANCELLED


def test_a_cancellation_after_the_end_changes_nothing(group: Group) -> None:
    handle = group.submit()
    for machine in group.machines:
        machine.end(GOOD)
    group.group.cancel(handle)
    assert group.end() == GOOD


def test_an_attempt_that_one_machine_refuses_is_ended(group: Group) -> None:
    group.machines[1].refusal = StepError("tpus, worker 1: the disk is full")
    group.submit()
    assert group.end().message == "tpus, worker 1: the disk is full"
    assert group.machines[2].statuses["cell"].outcome == CANCELLED


def test_an_error_of_the_orchestrator_is_named_too(group: Group) -> None:
    group.machines[1].refusal = OSError("no space left on device")
    group.submit()
    assert group.end().message == "worker 1: no space left on device"


def test_an_attempt_that_all_machines_refuse_was_never_started(group: Group) -> None:
    for machine in group.machines:
        machine.refusal = StepError("the disk is full")
    with pytest.raises(StepError, match="the disk is full"):
        group.submit()
    for machine in group.machines:
        machine.refusal = None
    assert group.group.find(WORK, "cell", group.directory) is None


def test_a_submission_without_any_answer_may_have_started_the_workload(group: Group) -> None:
    for machine in group.machines:
        machine.refusal = SubmissionUnknown("no answer")
    group.submit()
    wait_for(lambda: group.status().state.is_over, "the end of the attempt")
    assert group.status().state is AttemptState.UNREACHABLE


def test_a_submission_that_the_end_of_the_run_interrupts_is_cancelled(group: Group) -> None:
    group.machines[1].refusal = Cancelled("interrupted by SIGINT")
    group.submit()
    assert group.end().ended_by is EndedBy.CANCELLED


def test_a_running_attempt_is_adopted(group: Group) -> None:
    group.submit()
    group.reopen()
    assert group.group.find(WORK, "cell", group.directory) == Handle("cell", group.directory)
    for machine in group.machines:
        machine.end(GOOD)
    assert group.end() == GOOD


def test_an_adopted_attempt_that_was_not_started_everywhere_is_ended(group: Group) -> None:
    group.submit()
    group.machines[1].statuses.clear()
    group.reopen().find(WORK, "cell", group.directory)
    assert group.end().message == "worker 1: the attempt was never started there"


def test_a_search_fails_if_a_machine_does_not_answer(group: Group) -> None:
    group.submit()
    group.machines[1].refusal = StepError("no route to host")
    with pytest.raises(StepError, match="no route to host"):
        group.reopen().find(WORK, "cell", group.directory)


def test_the_files_of_each_machine_have_their_own_directory(group: Group) -> None:
    handle = group.submit()
    for machine in group.machines:
        machine.end(GOOD)
    group.group.collect(handle, WORK)
    places = [group.directory, group.directory / "hosts/1", group.directory / "hosts/2"]
    assert [machine.collected for machine in group.machines] == [[place] for place in places]
    group.group.release(handle)
    assert [machine.released for machine in group.machines] == [["cell"]] * 3


def test_the_exit_status_of_the_attempt_and_of_each_machine_are_kept(group: Group) -> None:
    handle = group.submit()
    group.machines[0].end(GOOD)
    group.machines[1].end(WorkloadOutcome(EndedBy.EXIT, 3))
    group.end()
    group.group.collect(handle, WORK)
    assert (group.directory / "exit_code").read_text() == "3\n"
    assert filesystem.read_json(group.directory / "outcome.json")["message"] == "worker 1: exit status 3"
    assert (group.directory / "hosts/0/exit_code").read_text() == "0\n"


def test_a_lost_attempt_has_no_exit_status(group: Group) -> None:
    handle = group.submit()
    group.machines[0].end(GOOD)
    group.machines[1].lose("no route to host")
    group.end()
    group.group.collect(handle, WORK)
    assert not (group.directory / "exit_code").exists()
    assert not group.machines[1].collected


def _all_good(group: Group) -> None:
    for machine in group.machines:
        machine.end(GOOD)


def _one_failed(group: Group) -> None:
    group.machines[0].end(WorkloadOutcome(EndedBy.EXIT, 1))


@pytest.mark.parametrize(
    ("end", "refusal", "is_raised"),
    [
        (_all_good, StepError("gone"), True),
        (_one_failed, StepError("gone"), False),
        (_one_failed, LimitExceeded("too many files"), True),
    ],
)
def test_missing_files_are_an_error_unless_the_attempt_has_failed_anyway(
    group: Group, end: Callable[[Group], None], refusal: StepError, is_raised: bool
) -> None:
    handle = group.submit()
    end(group)
    group.end()
    group.machines[2].refusal = refusal
    if is_raised:
        with pytest.raises(StepError, match=str(refusal)):
            group.group.collect(handle, WORK)
    else:
        group.group.collect(handle, WORK)


def test_all_attempts_end_with_the_machines(group: Group) -> None:
    group.submit()
    group.group.end_all(WorkloadOutcome(EndedBy.EVICTED, message="the node was preempted"))
    assert group.end().message == "the node was preempted"
    group.machines[0].end(GOOD)  # late news changes nothing
    assert group.end().ended_by is EndedBy.EVICTED
    assert group.notified == ["cell"]


def test_machines_that_are_lost_during_a_submission_end_the_attempt(group: Group) -> None:
    evicted = WorkloadOutcome(EndedBy.EVICTED, message="the node was preempted")
    group.machines[1].on_submit = lambda: group.group.end_all(evicted)
    group.submit()
    assert group.end() == evicted


def test_a_closed_group_reports_nothing_and_its_workloads_continue(group: Group) -> None:
    group.submit()
    group.group.close()
    group.machines[0].end(WorkloadOutcome(EndedBy.EXIT, 1))
    assert group.notified == []
    assert group.machines[1].statuses["cell"] == RUNNING
    assert all(machine.is_closed for machine in group.machines)
