"""A machine that becomes unreachable while a workload runs there: no second attempt runs beside the first one."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.functional.grid import Grid
from tests.servers import openssh
from toolbox.ground.system import processes
from toolbox.testing import Outcome, Workspace

pytestmark = pytest.mark.live


# The first attempt that executes the command waits while `hold-a` exists.
COMMAND = """
    echo begin {@cell.x} >>{@root}/cells
    if mkdir {@root}/first; then while [ -e {@root}/hold-{@cell.x} ]; do sleep 0.02; done; fi
    echo end {@cell.x} >>{@root}/cells
"""


@dataclass
class Machines:
    """The project `grid` on `far`, a machine over SSH, or on `near`, this machine, if `far` is unreachable."""

    grid: Grid
    server: openssh.Server

    def configure(self) -> Machines:
        """Write the configuration with one cell, `a`, whose first attempt waits while `hold-a` exists."""
        far = {"backend": "ssh", "host": openssh.ADDRESS, "port": self.server.port}
        matrix: dict[str, Any] = {
            "target": ["far", "near"],
            "timeouts": {"wait": 3, "run": 300, "grace": 1},
            "retries": {"infrastructure": 2, "backoff": {"first": 0.1}},
            "workload": {"command": COMMAND, "sample_seconds": None},
        }
        self.grid.configure("a", blocks={"targets": {"far": far, "near": {"backend": "local"}}}, **matrix)
        return self

    def lose(self) -> None:
        """Kill the orchestrator while the cell runs on `far`, and stop the SSH server of `far`."""
        self.grid.mark("hold-a")
        with self.grid.workspace.start("project", "run", "grid", env=self.server.environment()) as running:
            self.grid.wait_for("begin a")
            running.send(signal.SIGKILL)
            running.wait()
        self.server.stop()

    def resume(self, *flags: str) -> Outcome:
        """Resume the run."""
        argv = ("project", "resume", str(self.grid.directory), *flags)
        return self.grid.workspace.run(*argv, env=self.server.environment())

    def status(self) -> str:
        """Return what `project status` prints."""
        return self.grid.workspace.run("project", "status", str(self.grid.directory)).stdout

    def attempts(self) -> list[tuple[str, str | None, bool]]:
        """Return the target and the verdict of each attempt, and whether the attempt was abandoned."""
        (cell,) = (step for step in self.grid.workspace.summary()["steps"] if step["kind"] == "cell")
        return [(each["target"], each["verdict"], each["abandoned"]) for each in cell["attempts"]]

    def left(self) -> list[Path]:
        """Return the directories of attempts that remain on `far`."""
        return list((self.server.directory / ".cache/topgallant/attempts").iterdir())

    def alive(self) -> list[int]:
        """Return the ids of the processes of workloads on `far`."""
        return [pid for directory in self.left() for pid in processes.marked(directory)]


@pytest.fixture
def machines(workspace: Workspace, tmp_path: Path) -> Iterator[Machines]:
    directory = tmp_path / "server"
    directory.mkdir()
    with openssh.serving(directory) as server:
        found = Machines(Grid(workspace), server).configure()
        yield found
        for attempt in found.left():
            processes.end_marked(attempt, grace=0.1)
        processes.end_marked(workspace.directory)


def test_an_attempt_on_an_unreachable_machine_stays_open_in_a_resumed_run(machines: Machines) -> None:
    machines.lose()
    outcome = machines.resume()
    assert outcome.exit_code == 3, str(outcome)
    assert machines.attempts() == [("far", None, False)]
    assert machines.grid.lines == ["begin a"]
    assert machines.alive()
    machines.server.start()
    machines.grid.unmark("hold-a")
    outcome = machines.resume()
    assert outcome.exit_code == 0, str(outcome)
    assert (machines.attempts(), machines.grid.lines) == ([("far", "passed", False)], ["begin a", "end a"])
    assert machines.left() == []


def test_an_open_attempt_is_named_with_its_target_and_a_remedy(machines: Machines) -> None:
    machines.lose()
    outcome = machines.resume()
    for text in (outcome.stdout, machines.status()):
        assert "error (infrastructure)" in text
        assert (
            f"attempt 1 of x=a on far may be running: `./run_toolbox.py project resume {machines.grid.directory}`"
            in text
        )
        assert "--abandon" in text
    assert machines.grid.workspace.summary()["open_attempts"] == [{"cell": "x=a", "attempt": 1, "target": "far"}]


def test_an_abandoned_attempt_is_tried_elsewhere_and_removed_later(machines: Machines) -> None:
    machines.lose()
    machines.resume()
    left = machines.alive()
    outcome = machines.resume("--abandon=x=*")
    assert outcome.exit_code == 0, str(outcome)
    assert machines.attempts() == [("far", None, True), ("near", "passed", False)]
    assert "attempt 1 of x=a on far was given up, and may have left files or processes" in machines.status()
    machines.server.start()
    outcome = machines.resume()
    assert outcome.exit_code == 0, str(outcome)
    assert (machines.left(), [pid for pid in left if psutil.pid_exists(pid)]) == ([], [])
    assert machines.grid.lines == ["begin a", "begin a", "end a"]  # the abandoned attempt never ended by itself
    assert "was given up" not in machines.status()


def test_a_pattern_that_names_no_open_attempt_starts_nothing(machines: Machines) -> None:
    machines.lose()
    journal = (machines.grid.directory / "journal.jsonl").read_bytes()
    outcome = machines.resume("--abandon=x=b")
    assert (outcome.exit_code, outcome.stdout) == (2, ""), str(outcome)
    assert "--abandon=x=b: no matching cell has an open attempt: did you mean x=a?" in outcome.stderr
    assert (machines.grid.directory / "journal.jsonl").read_bytes() == journal


def test_an_abandoned_attempt_ends_before_the_next_one_if_its_machine_answers(machines: Machines) -> None:
    machines.lose()
    machines.server.start()
    left = machines.alive()
    outcome = machines.resume("--abandon")
    assert outcome.exit_code == 0, str(outcome)
    assert (machines.left(), [pid for pid in left if psutil.pid_exists(pid)]) == ([], [])
    assert [verdict for _, verdict, _ in machines.attempts()] == [None, "passed"]
