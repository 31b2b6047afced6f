"""Runs on TPUs: failures of TPUs are retried, and nothing is left or created twice, whatever ends the run."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.features.tpu.live.tpu_cells import OTHER_ZONE, QUEUED, ZONE, target_of
from tests.features.tpu.servers import tpu
from tests.features.tpu.servers.tpu import Fault, Timings
from tests.functional.grid import Grid, wait
from toolbox.ground.system import processes
from toolbox.testing import Outcome, Running, Workspace

pytestmark = pytest.mark.live


class Runs:
    """The project `grid` on TPUs of the test server, whose workers see the workspace."""

    def __init__(self, grid: Grid, server: tpu.Server) -> None:
        self.grid = grid
        self.server = server

    def configure(self, x: str, *targets: dict[str, Any], **matrix: Any) -> Runs:
        """Write the configuration with these cells and targets: `tpu-0`, `tpu-1` and so on."""
        # root may use the directory of the workspace
        ssh = {"user": "root", "port": self.server.ssh_port}
        named = {
            f"tpu-{index}": {"backend": "tpu_vm", **target_of(self.server, **{"ssh": ssh, **fields})}
            for index, fields in enumerate(targets or ({},))
        }
        settings: dict[str, Any] = {
            "target": list(named),
            "timeouts": {"wait": 60, "run": 300, "grace": 1},
            "retries": {"infrastructure": 2, "capacity": 0, "backoff": {"first": 0.1}},
            **matrix,
        }
        self.grid.configure(x, blocks={"targets": named}, **settings)
        return self

    def start(self, *flags: str) -> Running:
        """Start a run."""
        return self.grid.start(*flags)

    def cells(self) -> dict[str, Any]:
        """Return the steps of the cells, by value of `x`."""
        steps = self.grid.workspace.summary()["steps"]
        return {step["name"].removeprefix("x="): step for step in steps if step["kind"] == "cell"}

    def status(self) -> str:
        """Return what `project status` prints."""
        return self.grid.workspace.run("project", "status", str(self.grid.directory)).stdout

    def waits(self, text: str) -> None:
        """Wait until the journal has a reason for which a cell waits."""
        wait(lambda: text in self._journal(), f"{text!r} in the journal")

    def check_clean(self) -> None:
        """Check that no TPU and no key is left, and that no name was used for two TPUs."""
        assert self.server.leftovers() == []
        assert self.server.created_twice() == []
        assert list(self.grid.workspace.home.rglob("id_ed25519")) == []

    def _journal(self) -> str:
        found = list(self.grid.workspace.artifacts.glob("*/*/journal.jsonl"))
        return found[0].read_text() if found else ""


@pytest.fixture(name="runs")
def _runs(workspace: Workspace, tmp_path: Path) -> Iterator[Runs]:
    with tpu.serving(tmp_path / "server", shared=workspace.directory) as server:
        yield Runs(Grid(workspace), server)
    processes.end_marked(workspace.directory)


def test_a_preempted_cell_is_tried_again(runs: Runs) -> None:
    runs.configure("a").grid.mark("hold-a")
    with runs.start() as running:
        runs.grid.wait_for("begin a")
        runs.server.preempt(str(runs.server.nodes()[0]["name"]))
        wait(lambda: runs.grid.lines.count("begin a") == 2, "another attempt")
        runs.grid.unmark("hold-a")
        outcome = running.wait()
    assert outcome.exit_code == 0, str(outcome)
    first, second = runs.cells()["a"]["attempts"]
    assert (first["verdict"], first["cause"], second["verdict"]) == ("error", "infrastructure", "passed")
    assert "was preempted" in first["message"]
    runs.check_clean()


def test_a_cell_that_waits_in_the_queue_shows_why(runs: Runs) -> None:
    runs.server.set_capacity(ZONE, nodes=0)
    with runs.configure("a", QUEUED).start() as running:
        runs.waits("WAITING_FOR_RESOURCES")
        assert "WAITING_FOR_RESOURCES" in runs.status()
        runs.server.set_capacity(ZONE, nodes=None)
        outcome = running.wait()
    assert outcome.exit_code == 0, str(outcome)
    runs.check_clean()


def test_a_creation_that_fails_on_one_target_is_tried_again(runs: Runs) -> None:
    runs.server.add_fault(Fault("CreateNode", "INTERNAL", zone=OTHER_ZONE, when="operation"))
    outcome = runs.configure("abcd", {}, {"zone": OTHER_ZONE}).grid.run()
    assert outcome.exit_code == 0, str(outcome)
    assert sorted(len(cell["attempts"]) for cell in runs.cells().values()) == [1, 1, 1, 2]
    runs.check_clean()


def test_a_wrong_runtime_version_is_found_before_anything_starts(runs: Runs) -> None:
    outcome = runs.configure("a", {"runtime_version": "v9"}).grid.run()
    assert outcome.exit_code == 2, str(outcome)
    assert f"the target `tpu-0`: the zone {ZONE} has no runtime version v9" in outcome.stderr
    assert runs.server.history() == []


def test_a_run_that_ends_during_a_creation_leaves_nothing(runs: Runs) -> None:
    runs.server.set_timings(Timings(create=600.0))
    with runs.configure("a").start() as running:
        runs.waits("CREATING")
        running.send(signal.SIGINT)
        outcome = running.wait()
    assert outcome.exit_code == 130, str(outcome)
    runs.check_clean()


@pytest.mark.parametrize(("is_resumed", "reuse"), [(False, "run"), (True, "cell")])
def test_a_run_that_ends_before_its_workers_are_ready_leaves_nothing(runs: Runs, is_resumed: bool, reuse: str) -> None:
    runs.configure("a", {"reuse": reuse, "startup_script": "sleep 600"})
    if is_resumed:
        kill(runs, "the startup script is running")
    command = ("resume", str(runs.grid.directory)) if is_resumed else ("run", "grid")
    with runs.grid.workspace.start("project", *command) as running:
        wait(lambda: connects(running.pid), "a connection")
        running.send(signal.SIGINT)
        outcome = running.wait(40)
    assert outcome.exit_code == 130, str(outcome)
    (attempt,) = runs.cells()["a"]["attempts"]
    assert (attempt["verdict"], attempt["cause"]) == ("cancelled", "interrupted")
    assert runs.grid.workspace.summary()["open_attempts"] == []
    runs.check_clean()


@pytest.mark.parametrize("moment", ["begin a", "end a"])
def test_the_third_signal_ends_a_run_whose_deletion_hangs(runs: Runs, moment: str) -> None:
    runs.server.add_fault(Fault("DeleteNode", hang=True, times=None))
    runs.configure("a")
    if moment == "begin a":
        runs.grid.mark("hold-a")
    with runs.start() as running:
        runs.grid.wait_for(moment)
        if moment == "begin a":
            running.send(signal.SIGINT)
        wait(lambda: runs.server.requests("DeleteNode"), "the deletion")
        if moment == "end a":
            running.send(signal.SIGINT)
        running.send(signal.SIGTERM)  # a second SIGINT could arrive together with the first
        running.wait_for("send 1 more to stop the cleanup")
        running.send(signal.SIGINT)
        outcome = running.wait(15)
    assert outcome.exit_code == 130, str(outcome)
    assert "1 remote resource may still exist, because a signal ended the cleanup" in str(outcome)
    assert runs.grid.phases == ["prepare"]
    (entry,) = runs.grid.workspace.run("resources", "list", "--format=json").json
    assert (entry["kind"], len(runs.server.leftovers())) == ("tpu_node", 1)
    runs.server.clear_faults()
    reaped = runs.grid.workspace.run("resources", "reap")
    assert reaped.exit_code == 0, str(reaped)
    runs.check_clean()


def test_a_failed_deletion_makes_the_run_an_error(runs: Runs) -> None:
    runs.server.add_fault(Fault("DeleteNode", "PERMISSION_DENIED", times=None))
    outcome = runs.configure("a").grid.run()
    assert outcome.exit_code == 3, str(outcome)
    assert runs.grid.verdicts == {"a": "passed"}
    assert "PERMISSION_DENIED" in str(outcome)
    runs.server.clear_faults()
    reaped = runs.grid.workspace.run("resources", "reap")
    assert reaped.exit_code == 0, str(reaped)
    runs.check_clean()


def test_cells_after_a_failed_startup_script_cost_nothing(runs: Runs) -> None:
    outcome = runs.configure("ab", {"startup_script": "exit 3"}, jobs=1).grid.run()
    assert outcome.exit_code == 3, str(outcome)
    assert {(step["verdict"], step["cause"]) for step in runs.cells().values()} == {("error", "configuration")}
    messages = [step["message"] for step in runs.cells().values()]
    assert ["__x=a/attempt-1 has failed on this target" in message for message in messages] == [False, True]
    assert len(runs.server.history()) == 1
    runs.check_clean()


def test_a_cell_that_breaks_the_shell_is_named_and_the_next_cells_pass(runs: Runs) -> None:
    breaks = "[ {@cell.x} != a ] || echo 'exit 1' > ~/.bashrc; echo {@cell.x} > file"
    target = {"reuse": "run"}
    block = {"jobs": 1, "workload": {"command": breaks, "sample_seconds": None}, "retries": {"infrastructure": 0}}
    outcome = runs.configure("ab", target, **block).grid.run()
    assert outcome.exit_code == 3, str(outcome)
    assert runs.grid.verdicts == {"a": "error", "b": "passed"}
    assert "startup files of the shell changed while" in runs.cells()["a"]["message"]
    assert "~/.bashrc" in runs.cells()["a"]["message"]
    assert len(runs.server.history()) == 2
    assert runs.server.leftovers() == []


def connects(pid: int) -> bool:
    """Return whether a process has a child process `ssh`."""
    found = psutil.process_iter(["ppid", "name"])  # without an error for a process that ends meanwhile
    return any((each.info["ppid"], each.info["name"]) == (pid, "ssh") for each in found)


def kill(runs: Runs, moment: str) -> None:
    """Start a run with one cell that waits, and kill the orchestrator at a moment."""
    runs.grid.mark("hold-a")
    with runs.start() as running:
        if moment == "begin a":
            runs.grid.wait_for("begin a")
        else:
            runs.waits(moment)
        running.send(signal.SIGKILL)
        running.wait()


def finish(runs: Runs) -> Outcome:
    """Let the cell end, and resume the run."""
    runs.grid.unmark("hold-a")
    return runs.grid.resume()


@pytest.mark.parametrize(
    ("moment", "reuse"),
    [
        ("AttemptSubmitted", "cell"),
        ("CREATING", "run"),
        ("the startup script is running", "cell"),
        ("begin a", "run"),
    ],
)
def test_a_killed_run_is_resumed_with_the_same_node(runs: Runs, moment: str, reuse: str) -> None:
    runs.server.set_timings(Timings(create=600.0 if moment in ("AttemptSubmitted", "CREATING") else 0.0))
    script = "until test -e /var/lib/topgallant/go; do sleep 0.1; done" if "script" in moment else "sleep 0.1"
    runs.configure("a", {"reuse": reuse, "startup_script": script})
    kill(runs, moment)
    runs.server.set_timings(Timings())
    runs.server.advance(600)
    if "script" in moment:
        (worker,) = runs.server.workers(str(runs.server.nodes()[0]["name"]))
        (worker.directory / "disk/topgallant/go").touch()
    outcome = finish(runs)
    assert outcome.exit_code == 0, str(outcome)
    assert runs.grid.lines == ["begin a", "end a"]
    assert len(runs.server.history()) == 1
    runs.check_clean()


def test_a_killed_run_that_waits_in_the_queue_is_resumed(runs: Runs) -> None:
    runs.server.set_capacity(ZONE, nodes=0)
    runs.configure("a", QUEUED)
    kill(runs, "WAITING_FOR_RESOURCES")
    runs.server.set_capacity(ZONE, nodes=None)
    outcome = finish(runs)
    assert outcome.exit_code == 0, str(outcome)
    assert len(runs.server.history()) == 1
    runs.check_clean()


def test_the_tpus_of_a_killed_run_can_be_deleted(runs: Runs) -> None:
    kill(runs.configure("a"), "begin a")
    reaped = runs.grid.workspace.run("resources", "reap", "--older_than=1s")
    assert reaped.exit_code == 0, str(reaped)
    runs.check_clean()


@pytest.mark.parametrize("commands", [["resume"], ["reap", "reap"]])
def test_a_node_that_is_created_long_after_its_run_was_killed_is_deleted(runs: Runs, commands: list[str]) -> None:
    runs.configure("a").server.add_fault(Fault("CreateNode", "UNAVAILABLE", when="late", delay=1800))
    runs.server.add_fault(Fault("CreateNode", "UNAVAILABLE", times=None))
    with runs.start() as running:
        wait(lambda: runs.server.requests("CreateNode"), "the request")
        running.send(signal.SIGKILL)
        running.wait()
    runs.server.clear_faults()
    if commands[1:]:
        reaped = runs.grid.workspace.run("resources", "reap")
        assert reaped.exit_code == 0, str(reaped)
        assert "does not exist, but its request may still be carried out until" in reaped.stdout
    assert runs.server.leftovers() == []
    runs.server.advance(1800)
    assert len(runs.server.leftovers()) == 1
    outcome = runs.grid.resume() if commands[-1] == "resume" else runs.grid.workspace.run("resources", "reap")
    assert outcome.exit_code == 0, str(outcome)
    assert runs.grid.workspace.run("resources", "list").stdout.startswith("there are no remote resources")
    assert runs.server.leftovers() == []
    assert list(runs.grid.workspace.home.rglob("id_ed25519")) == []


def test_an_abandoned_attempt_is_ended_and_repeated(runs: Runs) -> None:
    kill(runs.configure("a", {"reuse": "run"}), "begin a")
    with runs.grid.workspace.start("project", "resume", str(runs.grid.directory), "--abandon") as running:
        wait(lambda: runs.grid.lines.count("begin a") == 2, "another attempt")
        runs.grid.unmark("hold-a")
        outcome = running.wait()
    assert outcome.exit_code == 0, str(outcome)
    assert runs.grid.lines == ["begin a", "begin a", "end a"]
    runs.check_clean()


def test_a_run_that_is_resumed_on_another_machine_leaves_nothing(runs: Runs, tmp_path: Path) -> None:
    kill(runs.configure("a"), "begin a")
    runs.grid.unmark("hold-a")
    resume = ("project", "resume", str(runs.grid.directory), "--abandon")
    outcome = runs.grid.workspace.run(*resume, env={"HOME": str(tmp_path / "another-home")})
    assert outcome.exit_code == 0, str(outcome)
    assert runs.grid.lines.count("begin a") == 2
    assert runs.server.leftovers() == []


def test_tpus_without_a_ledger_are_found_by_their_labels(runs: Runs) -> None:
    kill(runs.configure("a"), "begin a")
    shutil.rmtree(runs.grid.directory)
    shutil.rmtree(runs.grid.workspace.home)
    reap = ("resources", "reap", "--project=grid", "--older_than=1s")
    shown = runs.grid.workspace.run(*reap, "--dry_run")
    assert "tpu_node" in shown.stdout
    assert len(runs.server.nodes()) == 1
    reaped = runs.grid.workspace.run(*reap)
    assert reaped.exit_code == 0, str(reaped)
    assert runs.server.leftovers() == []


def test_a_resumed_run_repeats_a_cell_whose_tpu_was_lost(runs: Runs) -> None:
    kill(runs.configure("a"), "begin a")
    runs.server.preempt(str(runs.server.nodes()[0]["name"]))
    outcome = finish(runs)
    assert outcome.exit_code == 0, str(outcome)
    assert [each["cause"] for each in runs.cells()["a"]["attempts"]] == ["infrastructure", None]
    runs.check_clean()
