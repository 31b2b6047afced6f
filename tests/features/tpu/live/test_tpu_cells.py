"""Cells on TPUs: the TPU is created, used and deleted. The API is that of the test server, the workers are real."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.conformance.sites import Attempt, wait_for, workload
from tests.features.tpu.live.tpu_cells import FOUR_WORKERS, OTHER_ZONE, QUEUED, ZONE, Cells
from tests.features.tpu.servers import tpu
from tests.features.tpu.servers.tpu import Fault, Timings
from toolbox.features.tpu import api_endpoint, deletion, fleet, worker_group
from toolbox.features.tpu.api import TpuApi
from toolbox.features.tpu.backends import tpu_vm
from toolbox.ground.model.errors import Cancelled, FilesLost, StepError
from toolbox.ground.model.verdicts import Cause
from toolbox.ground.model.workloads import AttemptState, EndedBy, Handle
from toolbox.ground.system import cancellation
from toolbox.ground.system.cancellation import CancelScope
from toolbox.targets import agent_connection, ssh_machine
from toolbox.targets.host_group import HostGroup

pytestmark = pytest.mark.live

QUOTA = "TPUV5sLitepodPerProjectPerZoneForTPUAPI"
ENDLESS = 'trap "echo ended; exit" TERM; echo up; sleep 600 & wait'
PLACE = 'echo "$TOPGALLANT_SLICE_INDEX/$TOPGALLANT_SLICES $TOPGALLANT_HOST_INDEX/$TOPGALLANT_HOSTS"'


@pytest.fixture(name="server")
def _server(tmp_path: Path) -> Iterator[tpu.Server]:
    with tpu.serving(tmp_path / "server") as running:
        yield running


@pytest.fixture(name="cells")
def _cells(server: tpu.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Cells]]:
    """Yield a function that opens a target with these fields."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(worker_group, "LOST_SECONDS", 2.0)
    monkeypatch.setattr(worker_group, "_PROBE_SECONDS", 1)
    monkeypatch.setattr(tpu_vm, "_LOOK_SECONDS", 0.05)
    for module in (fleet, deletion):
        monkeypatch.setattr(module, "_FIRST_PAUSE", 0.05)
        monkeypatch.setattr(module, "_LONGEST_PAUSE", 0.2)
    opened: list[Cells] = []

    def call(**fields: Any) -> Cells:
        opened.append(Cells(server, tmp_path, **fields))
        return opened[-1]

    yield call
    for bench in opened:
        bench.close()
        bench.shared.backend.close()


def paid_seconds(attempt: Attempt) -> float:
    """Return the time for which a TPU cost money because of an attempt."""
    outcome = attempt.by.backend.poll([attempt.handle])[attempt.handle].outcome
    assert outcome is not None
    assert outcome.paid_seconds is not None
    return outcome.paid_seconds


def places(attempt: Attempt, count: int) -> list[str]:
    """Return the logs of the first workers of an attempt."""
    return [attempt.text(f"hosts/{index}/stdout.log" if index else "stdout.log") for index in range(count)]


def log_of(handle: Handle) -> str:
    """Return what a workload has printed; empty if there is no log yet."""
    log = handle.directory / "stdout.log"
    return log.read_text() if log.exists() else ""


def test_a_cell_runs_on_its_own_node(cells: Callable[..., Cells], server: tpu.Server) -> None:
    bench = cells(startup_script="touch /var/lib/topgallant/prepared")
    attempt, outcome = bench.run("sh", "-c", "test -e /var/lib/topgallant/prepared && echo 1 >result")
    assert (outcome.ended_by, outcome.exit_code, attempt.text("files/result")) == (EndedBy.EXIT, 0, "1\n")
    assert paid_seconds(attempt) > outcome.seconds  # the TPU also costs money while its workers are prepared
    bench.release(attempt)
    assert [record.creator for record in server.history()] == ["CreateNode"]


def test_a_cell_runs_on_all_workers_of_a_slice(cells: Callable[..., Cells]) -> None:
    bench = cells(**FOUR_WORKERS)
    attempt, outcome = bench.run("sh", "-c", PLACE)
    assert outcome.exit_code == 0
    assert places(attempt, 4) == [f"/ {index}/4\n" for index in range(4)]
    bench.release(attempt)


def test_each_worker_gets_the_files_and_one_copy_is_kept(cells: Callable[..., Cells]) -> None:
    bench = cells(**FOUR_WORKERS)
    attempt, outcome = bench.run("cat", "../src/a", text_files={"a": "1"})
    assert (outcome.exit_code, places(attempt, 4)) == (0, ["1"] * 4)
    assert [str(path.relative_to(attempt.directory)) for path in attempt.directory.rglob("src")] == ["src"]


def test_a_cell_runs_on_chosen_workers(cells: Callable[..., Cells]) -> None:
    attempt, _ = cells(**FOUR_WORKERS, workers="1-2").run("sh", "-c", PLACE)
    assert places(attempt, 2) == ["/ 0/2\n", "/ 1/2\n"]
    assert not (attempt.directory / "hosts/2").exists()


def test_a_cell_runs_on_all_slices(cells: Callable[..., Cells], server: tpu.Server) -> None:
    bench = cells(slices=2)
    attempt, _ = bench.run("sh", "-c", PLACE)
    assert places(attempt, 2) == ["0/2 0/1\n", "1/2 0/1\n"]
    bench.release(attempt)
    assert len(server.history()) == 2


def test_the_failure_of_one_worker_fails_the_cell(cells: Callable[..., Cells]) -> None:
    attempt, outcome = cells(**FOUR_WORKERS).run("sh", "-c", "test $TOPGALLANT_HOST_INDEX != 2 || exit 255; sleep 60")
    assert (outcome.ended_by, outcome.exit_code, outcome.message) == (EndedBy.EXIT, 255, "worker 2: exit status 255")
    assert (attempt.text("exit_code"), attempt.text("hosts/2/exit_code")) == ("255\n", "255\n")
    assert attempt.text("hosts/0/exit_code") == "143\n"


def test_a_stock_out_moves_on_to_the_next_zone(cells: Callable[..., Cells], server: tpu.Server) -> None:
    server.set_capacity(ZONE, nodes=0)
    bench = cells(zone=[ZONE, OTHER_ZONE])
    attempt, outcome = bench.run("true")
    assert outcome.exit_code == 0
    zones = [record.name.split("/")[3] for record in server.history()]
    assert zones == [ZONE, OTHER_ZONE]
    bench.release(attempt)


def test_a_cell_without_capacity_in_any_zone_is_reported(cells: Callable[..., Cells], server: tpu.Server) -> None:
    for zone in (ZONE, OTHER_ZONE):
        server.set_capacity(zone, nodes=0)
    bench = cells(zone=[ZONE, OTHER_ZONE])
    attempt = bench.start("true")
    outcome = attempt.wait()
    assert outcome.ended_by is EndedBy.NO_CAPACITY
    assert outcome.message.startswith("no zone has capacity for tg-conformance-")
    bench.release(attempt)


def test_a_used_up_quota_has_the_cause_capacity(cells: Callable[..., Cells], server: tpu.Server) -> None:
    server.set_quota(QUOTA, 0)
    bench = cells()
    with pytest.raises(StepError, match="Quota limit") as caught:
        bench.start("true")
    assert caught.value.cause is Cause.CAPACITY
    assert bench.ledger.open_resources() == []


def test_a_refused_permission_is_a_configuration_error(cells: Callable[..., Cells], server: tpu.Server) -> None:
    server.add_fault(Fault("CreateNode", "PERMISSION_DENIED", times=None))
    bench = cells()
    with pytest.raises(StepError, match="PERMISSION_DENIED") as caught:
        bench.start("true")
    assert caught.value.cause is Cause.CONFIGURATION
    assert bench.ledger.open_resources() == []


def test_a_queued_resource_waits_for_capacity(cells: Callable[..., Cells], server: tpu.Server) -> None:
    server.set_capacity(ZONE, nodes=0)
    bench = cells(**QUEUED)
    attempt = bench.start("true")
    bench.waits(attempt, "WAITING_FOR_RESOURCES")
    assert attempt.by.status(attempt.handle).state is AttemptState.SUBMITTED
    server.set_capacity(ZONE, nodes=None)
    assert attempt.wait().exit_code == 0
    bench.release(attempt)


def test_a_failed_startup_script_is_shown(cells: Callable[..., Cells]) -> None:
    bench = cells(startup_script="echo there is no such package >&2\nexit 3")
    attempt = bench.start("true")
    outcome = attempt.wait()
    assert outcome.ended_by is EndedBy.NOT_STARTED
    assert "worker 0: the startup script ended with status 3:\nthere is no such package" in outcome.message
    bench.release(attempt)


@pytest.mark.parametrize("reuse", ["run", "cell"])
def test_further_cells_fail_without_a_tpu_after_a_failed_startup_script(
    cells: Callable[..., Cells], server: tpu.Server, reuse: str
) -> None:
    bench = cells(reuse=reuse, startup_script="echo there is no such package >&2\nexit 3")
    assert bench.start("true").wait().ended_by is EndedBy.NOT_STARTED
    with pytest.raises(
        StepError, match=r"not started, because .*/cell has failed on this target: worker 0: "
    ) as caught:
        bench.start("true", name="b")
    assert "there is no such package" in str(caught.value)
    assert caught.value.cause is Cause.CONFIGURATION
    assert len(server.history()) == 1
    # A resumed run tries again.
    assert bench.start("true", name="c", by=bench.orchestrator()).wait().ended_by is EndedBy.NOT_STARTED


def test_a_cell_waits_for_the_startup_script(cells: Callable[..., Cells], server: tpu.Server) -> None:
    bench = cells(startup_script="until test -e /var/lib/topgallant/go; do sleep 0.1; done")
    attempt = bench.start("true")
    bench.waits(attempt, "worker 0: the startup script is running")
    (worker,) = server.workers(bench.node())
    (worker.directory / "disk/topgallant/go").touch()
    assert attempt.wait().exit_code == 0


@pytest.mark.parametrize("harm", [tpu.Server.lose_worker, tpu.Server.break_worker])
def test_a_worker_that_disappears_ends_the_cell_on_all_workers(
    cells: Callable[..., Cells],
    server: tpu.Server,
    monkeypatch: pytest.MonkeyPatch,
    harm: Callable[[tpu.Server, str, int], None],
) -> None:
    monkeypatch.setattr(ssh_machine, "_OPTIONS", ("BatchMode=yes", "ConnectTimeout=1"))
    bench = cells(**FOUR_WORKERS)
    attempt = bench.begin("echo made > file; sleep 600")
    harm(server, bench.node(), 2)
    outcome = attempt.wait()
    assert outcome.ended_by is EndedBy.LOST
    assert outcome.message.count("worker 2: the host cannot be reached") == 1
    assert "READY" in outcome.message
    attempt.collect()
    assert (attempt.text(), attempt.text("files/file")) == ("up\n", "made\n")
    bench.release(attempt)


@pytest.mark.parametrize(
    ("take", "words"),
    [
        (tpu.Server.preempt, "was preempted"),
        (tpu.Server.maintain, "maintenance"),
        (tpu.Server.repair, "is being repaired"),
    ],
)
def test_a_node_that_is_taken_away_ends_the_cell(
    cells: Callable[..., Cells], server: tpu.Server, take: Callable[[tpu.Server, str], None], words: str
) -> None:
    bench = cells()
    attempt = bench.begin()
    take(server, bench.node())
    outcome = attempt.wait()
    assert outcome.ended_by is EndedBy.EVICTED
    assert words in outcome.message
    assert outcome.seconds == 0  # the workload could not tell how long it ran
    assert paid_seconds(attempt) > 0
    attempt.collect()
    bench.release(attempt)


def test_a_preempted_slice_ends_the_cell_on_all_slices(cells: Callable[..., Cells], server: tpu.Server) -> None:
    bench = cells(slices=2)
    attempt = bench.begin()
    server.preempt(str(server.nodes()[1]["name"]))
    assert attempt.wait().ended_by is EndedBy.EVICTED
    bench.release(attempt)


def test_files_that_are_lost_with_their_node_are_reported(cells: Callable[..., Cells], server: tpu.Server) -> None:
    bench = cells()
    attempt = bench.start("true")
    attempt.wait()
    server.preempt(bench.node())
    with pytest.raises(FilesLost, match="was preempted"):
        attempt.collect()
    bench.release(attempt)


def test_requests_to_an_api_that_fails_occasionally_are_repeated(
    cells: Callable[..., Cells], server: tpu.Server
) -> None:
    faults = [Fault("*", "UNAVAILABLE", first=first) for first in (1, 3, 4, 8, 9, 12)]
    server.add_fault(*faults, Fault("CreateNode", "UNAVAILABLE", when="after"))
    bench = cells()
    attempt, outcome = bench.run("true")
    assert outcome.exit_code == 0
    bench.release(attempt)
    assert len(server.history()) == 1


def test_a_slow_creation_is_followed(cells: Callable[..., Cells], server: tpu.Server) -> None:
    server.set_timings(Timings(create=600.0, boot=60.0))
    bench = cells()
    attempt = bench.start("true")
    bench.waits(attempt, "CREATING")
    server.advance(600)
    bench.waits(attempt, "does not answer by SSH")
    server.advance(60)
    assert attempt.wait().exit_code == 0


def test_a_cell_that_is_cancelled_during_the_creation_leaves_nothing(
    cells: Callable[..., Cells], server: tpu.Server
) -> None:
    server.set_timings(Timings(create=600.0))
    bench = cells()
    attempt = bench.start("true")
    bench.waits(attempt, "CREATING")
    assert attempt.cancel().ended_by is EndedBy.CANCELLED
    attempt.collect()
    bench.release(attempt)


@pytest.mark.parametrize("reuse", ["cell", "run"])
@pytest.mark.parametrize("is_adopted", [False, True])
def test_a_cell_is_cancelled_while_its_workers_are_not_ready(
    cells: Callable[..., Cells], server: tpu.Server, reuse: str, is_adopted: bool
) -> None:
    server.set_timings(Timings(create=1.0))
    bench = cells(reuse=reuse, startup_script="sleep 600")
    by = bench.orchestrator()
    attempt = bench.start("true", by=by)
    if is_adopted:
        by.backend.close()
        by = bench.orchestrator()
        assert by.backend.find(attempt.workload, attempt.handle.name, attempt.directory) == attempt.handle
    wait_for(lambda: "the startup script is running" in by.status(attempt.handle).message, "the script")
    by.backend.cancel(attempt.handle)
    outcome = by.end_of(attempt.handle).outcome
    assert outcome is not None
    assert outcome.ended_by is EndedBy.CANCELLED
    by.backend.collect(attempt.handle, attempt.workload)
    by.backend.release(attempt.handle)
    by.backend.teardown_run()  # type: ignore[attr-defined]  # not every backend has the method
    assert (server.leftovers(), bench.ledger.open_resources()) == ([], [])


def test_a_cell_is_cancelled_while_its_agent_does_not_start(
    cells: Callable[..., Cells], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_connection, "_HELLO_SECONDS", 0.5)
    monkeypatch.setattr(worker_group, "LOST_SECONDS", 600.0)
    python = "/var/lib/topgallant/python"
    bench = cells(startup_script=f"printf '#!/bin/sh\nsleep 600' >{python}; chmod +x {python}", python=python)
    attempt = bench.start("true")
    backend: Any = bench.shared.backend
    wait_for(lambda: any(each.is_starting for each in backend._book.attempts()), "the start of the agent")
    assert attempt.cancel().ended_by is EndedBy.CANCELLED
    attempt.collect()
    bench.release(attempt)


def test_a_cell_is_cancelled_before_its_start_is_recorded(
    cells: Callable[..., Cells], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, submit = cells(), HostGroup.submit

    def submit_and_cancel(*arguments: Any) -> Handle:
        handle = submit(*arguments)
        wait_for(lambda: log_of(handle) == "up\n", "the trap of the workload")
        bench.shared.backend.cancel(handle)
        return handle

    monkeypatch.setattr(HostGroup, "submit", submit_and_cancel)
    attempt = bench.start("sh", "-c", ENDLESS, run=600)
    assert attempt.wait().ended_by is EndedBy.CANCELLED
    assert attempt.text() == "up\nended\n"


def test_a_cell_whose_start_is_cancelled_too_late_is_ended(cells: Callable[..., Cells]) -> None:
    bench = cells(reuse="run")
    bench.run("true", name="first")  # from now on, a submission waits for the start of its workload
    handle = bench.handle()

    class LateScope(CancelScope):
        def wait(self, event: threading.Event, seconds: float) -> None:
            super().wait(event, seconds)
            wait_for(lambda: log_of(handle) == "up\n", "the trap of the workload")
            raise Cancelled("the run ends")

    with cancellation.entered(LateScope()), pytest.raises(Cancelled):
        bench.start("sh", "-c", ENDLESS, run=600)
    wait_for(lambda: log_of(handle) == "up\nended\n", "the end of the workload")


def test_a_connection_that_is_opened_while_its_tpu_is_deleted_leaves_no_files(
    cells: Callable[..., Cells], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, deleted = threading.Event(), threading.Event()
    groups: list[Any] = []
    open_group = worker_group.open_group

    def open_and_wait(*arguments: Any) -> Any:
        groups.append(open_group(*arguments))
        opened.set()
        assert deleted.wait(60)
        return groups[0]

    monkeypatch.setattr(worker_group, "open_group", open_and_wait)
    bench = cells()
    attempt = bench.start("true")
    assert opened.wait(60)
    directory = groups[0]._machines[0]._control.parent
    assert directory.exists()
    attempt.cancel()
    bench.release(attempt)
    deleted.set()
    wait_for(lambda: not directory.exists(), "the removal of the directory")


def test_cells_share_the_node_of_the_run(cells: Callable[..., Cells], server: tpu.Server) -> None:
    bench = cells(reuse="run")
    attempts = bench.start_all([["sh", "-c", f"exit {code}"] for code in (0, 3)])
    assert [attempt.wait().exit_code for attempt in attempts] == [0, 3]
    for attempt in attempts:
        attempt.collect()
        attempt.by.backend.release(attempt.handle)
    assert len(server.nodes()) == 1
    bench.shared.backend.teardown_run()  # type: ignore[attr-defined]  # not every backend has the method
    assert (len(server.history()), server.leftovers(), bench.ledger.open_resources()) == (1, [], [])


FAKE_TOOLS = """
mkdir ~/fake; printf '#!/bin/sh\\necho a fake' > ~/fake/tar; chmod +x ~/fake/tar; cp ~/fake/tar ~/fake/python3
echo 'PATH=~/fake:$PATH' > ~/.bashrc
"""


@pytest.mark.parametrize(("change", "reuse"), [("echo 'exit 1' > ~/.bashrc", "cell"), (FAKE_TOOLS, "run")])
def test_a_cell_that_breaks_the_shell_of_its_workers_loses_only_its_own_files(
    cells: Callable[..., Cells], server: tpu.Server, change: str, reuse: str
) -> None:
    bench = cells(reuse=reuse)
    first = bench.start("sh", "-c", change)
    outcome = first.wait()
    assert (outcome.exit_code, outcome.changed_startup_files) == (0, "~/.bashrc")
    with pytest.raises(FilesLost, match=r"startup files of the shell changed while .*/cell ran: ~/\.bashrc"):
        first.collect()
    first.by.backend.release(first.handle)
    second, outcome = bench.run("sh", "-c", "cp ../src/sent made; python3 -V", name="b", text_files={"sent": "sent"})
    assert (outcome.exit_code, second.text("files/made")) == (0, "sent")
    assert "Python 3" in second.text()
    assert len(server.history()) == 2


def test_a_cell_with_other_startup_files_keeps_its_results_and_the_next_cell_gets_another_tpu(
    cells: Callable[..., Cells], server: tpu.Server
) -> None:
    bench = cells(reuse="run")
    first, outcome = bench.run("sh", "-c", "echo made > file; echo 'export A=1' >> ~/.bashrc")
    assert (outcome.changed_startup_files, first.text("files/file")) == ("~/.bashrc", "made\n")
    second, _ = bench.run("sh", "-c", 'echo "A is ${A-unset}"', name="b")
    assert second.text() == "A is unset\n"
    assert len(server.history()) == 2


def test_the_node_of_the_run_is_replaced_when_it_was_lost(cells: Callable[..., Cells], server: tpu.Server) -> None:
    bench = cells(reuse="run")
    attempt = bench.begin()
    server.preempt(bench.node())
    assert attempt.wait().ended_by is EndedBy.EVICTED
    attempt.by.backend.release(attempt.handle)
    assert bench.run("true", name="another")[1].exit_code == 0
    assert [record.deleted is None for record in server.history()] == [False, True]


@pytest.mark.parametrize(
    "limit", [lambda server: server.set_quota(QUOTA, 8), lambda server: server.set_capacity(ZONE, nodes=1)]
)
def test_a_cell_waits_for_the_capacity_of_a_node_that_is_being_deleted(
    cells: Callable[..., Cells], server: tpu.Server, limit: Callable[[tpu.Server], None]
) -> None:
    limit(server)
    server.set_timings(Timings(delete=600.0))
    bench = cells()
    first, _ = bench.run("true")
    with ThreadPoolExecutor() as threads:
        deleting = threads.submit(first.by.backend.release, first.handle)
        server.wait_for_state(str(server.nodes()[0]["name"]), "DELETING")
        second = threads.submit(bench.run, "true", name="second")
        wait_for(lambda: server.requests("CreateNode")[1:], "a request without capacity")
        server.advance(600)
        assert second.result()[1].exit_code == 0
        deleting.result()


def test_a_node_is_adopted_while_it_is_created(cells: Callable[..., Cells], server: tpu.Server) -> None:
    server.set_timings(Timings(create=600.0))
    bench = cells()
    first = bench.start("true", by=bench.orchestrator())
    first.by.backend.close()
    second = bench.orchestrator()
    assert second.backend.find(first.workload, first.handle.name, first.directory) == first.handle
    server.advance(600)
    assert second.end_of(first.handle).outcome is not None
    assert len(server.history()) == 1


def delete(server: tpu.Server, node: str) -> None:
    """Delete a node, as another user does."""
    with TpuApi(api_endpoint.parse(server.endpoint)) as api:
        api.delete(node)
    server.wait_for_state(node, None)


@pytest.mark.parametrize("take", [tpu.Server.preempt, delete])
def test_a_node_that_was_lost_without_an_orchestrator_ends_its_cell(
    cells: Callable[..., Cells], server: tpu.Server, take: Callable[[tpu.Server, str], None]
) -> None:
    bench = cells()
    attempt = bench.begin(by=bench.orchestrator())
    attempt.by.backend.close()
    take(server, bench.node())
    second = bench.orchestrator()
    assert second.backend.find(attempt.workload, attempt.handle.name, attempt.directory) == attempt.handle
    outcome = second.end_of(attempt.handle).outcome
    assert outcome is not None
    assert outcome.ended_by is EndedBy.EVICTED
    second.backend.release(attempt.handle)
    assert bench.ledger.open_resources() == []


def test_a_cell_that_was_never_requested_is_not_found(cells: Callable[..., Cells], tmp_path: Path) -> None:
    assert cells().shared.backend.find(workload("true"), "nothing", tmp_path) is None


def test_a_workload_that_a_shutdown_ends_is_not_cancelled(
    cells: Callable[..., Cells], server: tpu.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processes of a machine get SIGTERM before the API reports that the node is taken away."""
    monkeypatch.setattr(tpu_vm, "_SHUTDOWN_SECONDS", 60.0)
    bench = cells()
    attempt = bench.begin("kill -TERM $PPID; sleep 600")
    server.preempt(bench.node())
    assert attempt.wait().ended_by is EndedBy.EVICTED


def test_a_bug_in_the_start_of_a_cell_does_not_let_the_run_wait_forever(
    cells: Callable[..., Cells], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(worker_group, "open_group", Mock(side_effect=KeyError("a bug")))
    bench = cells()
    attempt = bench.start("true")
    outcome = attempt.wait()
    assert (outcome.ended_by, "a bug" in outcome.message) == (EndedBy.LOST, True)
    assert "an attempt could not be started or ended" in caplog.text
    bench.release(attempt)


def test_a_request_that_fails_leaves_no_node(cells: Callable[..., Cells], server: tpu.Server) -> None:
    server.add_fault(Fault("CreateNode", "PERMISSION_DENIED", when="after"))
    bench = cells()
    with pytest.raises(StepError, match="PERMISSION_DENIED"):
        bench.start("true")
    wait_for(lambda: not server.leftovers() and not bench.ledger.open_resources(), "the deletion of the node")


def test_a_tpu_of_the_run_is_replaced_before_it_expires(cells: Callable[..., Cells], server: tpu.Server) -> None:
    bench = cells(reuse="run", ttl=3600)
    for name, seconds, nodes in (("a", 60, 1), ("b", 60, 1), ("c", 3595, 2)):
        assert bench.run("true", name=name, run=seconds)[1].exit_code == 0
        assert len(server.history()) == nodes


def test_a_tpu_of_the_run_is_not_replaced_while_it_runs_a_cell(cells: Callable[..., Cells], server: tpu.Server) -> None:
    bench = cells(reuse="run")
    first = bench.begin()
    backend: Any = bench.shared.backend
    (machines,) = backend._attempts._machines.values()
    machines.unusable = "a worker has processes of another attempt"
    with ThreadPoolExecutor(1) as threads:
        starting = threads.submit(bench.start, "true", name="b")
        wait_for(backend._requesting.locked, "the next request")
        assert first.by.status(first.handle).state is AttemptState.RUNNING
        backend.cancel(first.handle)
        assert first.wait().ended_by is EndedBy.CANCELLED
        assert starting.result().wait().exit_code == 0
    assert len(server.history()) == 2


def test_work_that_the_end_of_the_run_interrupts_is_not_an_error(
    cells: Callable[..., Cells], caplog: pytest.LogCaptureFixture
) -> None:
    backend: Any = cells().shared.backend
    begun, closed = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert closed.wait(60)
        backend._requests.submit(print)

    backend._do(work)
    assert begun.wait(60)
    backend.close()
    closed.set()
    backend._starters.shutdown()
    assert caplog.text == ""
