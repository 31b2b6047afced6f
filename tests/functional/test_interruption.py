"""A signal ends a run and all its processes, and the records are correct, also after the run itself was killed."""

from __future__ import annotations

import json
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional.grid import Grid, wait
from tests.functional.grid import grid as grid  # noqa: PLC0414  # re-exports the fixture
from toolbox.ground.system import processes
from toolbox.testing import Running, Workspace

# One process stays a child, and one leaves its parent and its session.
LONG = "setsid sleep 300 & echo beg''un; sleep 300"
STUBBORN = f"(trap '' TERM; sleep 300) & {LONG}"

WAITING = {
    "commands/machine.py": '''
        """Machines."""
        from pathlib import Path

        from toolbox.api import role


        class Machine:
            """Machines."""

            @role
            def wait(self, fifo: Path) -> None:
                """
                Wait for a long time.

                Args:
                    fifo: the named pipe to write to at the beginning.
            """
    ''',
    "roles/machine_wait/tasks/main.yml": """
        - name: Wait
          ansible.builtin.command:
            argv: [sh, -c, 'echo begun >"$1"; setsid sleep 300 & sleep 300', wait, "{{ machine_wait_fifo }}"]
          changed_when: false
    """,
    "projects/waiting/orchestration.py": '''
        """Waits in a role."""
        from toolbox.orchestration import config, env, run


        def test():
            with run.Parallel("wait") as parallel:
                for name in ("one", "other"):
                    fifo = config.project.get_config("fifo") + name
                    parallel.task(name, run.run_toolbox, "machine", "wait", fifo=fifo)


        def post_cleanup():
            (env.ARTIFACT_DIR / "cleaned").touch()
    ''',
}


class Fifo:
    """A named pipe by which a process signals its progress."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._descriptor = os.open(path, os.O_RDWR)  # as a writer too, so that it never reads an end of file

    def wait(self) -> None:
        """Wait until a process writes to the pipe."""
        ready, _, _ = select.select([self._descriptor], [], [], 60)
        assert ready, "nothing was written"

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._descriptor)


@pytest.fixture
def waiting(workspace: Workspace) -> Iterator[tuple[Workspace, list[Fifo]]]:
    """Yield a project whose test phase runs two roles that wait, and the pipes by which they signal their start."""
    fifo = workspace.directory / "fifo-"
    workspace.write({**WAITING, "config/waiting.yaml": f"fifo: {fifo}\n", "command_args/waiting.yaml.j2": ""})
    fifos = [Fifo(Path(f"{fifo}{name}")) for name in ("one", "other")]
    yield workspace, fifos
    for pipe in fifos:
        pipe.close()
    processes.end_marked(workspace.directory)


def check_the_end(workspace: Workspace, running: Running, number: signal.Signals) -> None:
    """Check that an interrupted run ends with its cleanup, a correct summary and no processes."""
    outcome = running.wait()
    assert outcome.exit_code == 128 + number, str(outcome)
    summary = workspace.summary()
    assert (summary["state"], summary["verdict"], summary["cause"]) == ("finished", "cancelled", "interrupted")
    assert summary["exit_code"] == 128 + number
    assert number.name in summary["message"]
    phases = {step["name"]: step["verdict"] for step in summary["steps"] if step["kind"] == "phase"}
    assert (phases["test"], phases["post_cleanup"]) == ("cancelled", "passed")
    assert list(workspace.run_directory().glob("*__post_cleanup/cleaned"))
    assert processes.marked(workspace.directory) == []
    assert "Traceback" not in outcome.stdout + outcome.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_program_and_its_child_processes(small: Workspace, number: signal.Signals) -> None:
    with small.start("project", "run", "small", f"--overrides={json.dumps({'commands.test': [STUBBORN]})}") as running:
        running.wait_for("begun")
        assert processes.marked(small.directory), "the processes to be ended have not started"
        running.send(number)
        check_the_end(small, running, number)


def test_a_signal_ends_parallel_roles(waiting: tuple[Workspace, list[Fifo]]) -> None:
    workspace, fifos = waiting
    with workspace.start("project", "run", "waiting") as running:
        for fifo in fifos:
            fifo.wait()
        running.send(signal.SIGTERM)
        check_the_end(workspace, running, signal.SIGTERM)


def test_a_signal_ends_a_toolbox_command_outside_of_a_run(waiting: tuple[Workspace, list[Fifo]]) -> None:
    workspace, (fifo, _) = waiting
    with workspace.start("machine", "wait", f"{workspace.directory}/fifo-one") as running:
        fifo.wait()
        running.send(signal.SIGINT)
        outcome = running.wait()
    assert outcome.exit_code == 128 + signal.SIGINT, str(outcome)
    assert processes.marked(workspace.directory) == []
    assert "interrupted by SIGINT" in outcome.stdout + outcome.stderr


def test_a_second_signal_does_not_stop_the_cleanup(small: Workspace) -> None:
    gate = Fifo(small.directory / "gate")
    done = small.directory / "done"
    os.mkfifo(done)
    cleanup = f"echo >{small.directory}/gate; echo clean''ing; cat {done}; touch $ARTIFACT_DIR/cleaned"
    changes = {"commands.test": [LONG], "commands.cleanup": [cleanup]}
    with small.start("project", "run", "small", f"--overrides={json.dumps(changes)}") as running:
        running.wait_for("begun")
        running.send(signal.SIGINT)
        gate.wait()
        running.send(signal.SIGINT)
        running.wait_for("is cleaning up")
        done.write_text("go on")
        check_the_end(small, running, signal.SIGINT)
    gate.close()


def test_status_shows_a_run_as_running_and_after_a_kill_as_dead(small: Workspace) -> None:
    with small.start("project", "run", "small", f"--overrides={json.dumps({'commands.test': [LONG]})}") as running:
        running.wait_for("begun")
        directory = small.run_directory()
        assert small.run("project", "status", str(directory), "--format=json").json["state"] == "running"
        assert "is going on" in status(small, directory)
        assert "still running" not in status(small, directory)
        running.send(signal.SIGKILL)
        assert running.wait().exit_code == -signal.SIGKILL
        try:
            assert small.run("project", "status", str(directory), "--format=json").json["state"] == "dead"
            text = status(small, directory)
            assert "is dead" in text, "a remaining process does not make a run alive"
            (line,) = [line for line in text.splitlines() if "processes of the run are still running: " in line]
            named = {int(word) for word in line.partition(": ")[2].split() if word.isdigit()}
            assert named == set(processes.marked(directory)) != set()
        finally:
            processes.end_marked(small.directory)
        assert "still running" not in status(small, directory)


def status(workspace: Workspace, directory: Path) -> str:
    """Return the output of `project status` for a run."""
    return workspace.run("project", "status", str(directory)).stdout


SLEEPING = """
    from toolbox.orchestration import env, run


    def sleep():
        run.run("echo beg''un")
        run.sleep(3600)


    def test():
        with run.Parallel("sleep") as parallel:
            parallel.delayed(sleep)


    def post_cleanup():
        (env.ARTIFACT_DIR / "cleaned").touch()
"""


def test_a_signal_ends_a_task_that_sleeps(small: Workspace) -> None:
    small.write({"projects/small/orchestration.py": SLEEPING})
    with small.start("project", "run", "small") as running:
        running.wait_for("begun")
        running.send(signal.SIGTERM)
        check_the_end(small, running, signal.SIGTERM)


def test_sighup_ends_a_run_like_sigterm(small: Workspace) -> None:
    with small.start("project", "run", "small", f"--overrides={json.dumps({'commands.test': [LONG]})}") as running:
        running.wait_for("begun")
        running.send(signal.SIGHUP)
        outcome = running.wait()
    assert outcome.exit_code == 143, str(outcome)
    assert "SIGHUP" in small.summary()["message"]
    assert list(small.run_directory().glob("*__post_cleanup/cleaned"))
    assert processes.marked(small.directory) == []


# Its cells run on this machine. Their release waits for a file, and cannot be cancelled.
STUCK = """
    import os
    import time

    from pydantic import ConfigDict

    from toolbox.targets.backends import local


    class Target(local.Target):
        model_config = ConfigDict(extra="forbid")
        keeps_attempts = True
        begun: str
        end: str

        def open(self, context):
            return Stuck(self, super().open(context))


    class Stuck:
        def __init__(self, target, backend):
            self.target, self.backend = target, backend

        def __getattr__(self, name):
            return getattr(self.backend, name)

        def release(self, handle):
            open(self.target.begun, "w").close()
            while not os.path.exists(self.target.end):
                time.sleep(0.02)
            self.backend.release(handle)
"""


def test_the_third_signal_does_not_wait_for_a_target(grid: Grid) -> None:
    begun, end = (grid.root / name for name in ("release-begun", "release-end"))
    grid.workspace.write({"backends/stuck.py": STUCK})
    grid.configure(
        "a", target="there", blocks={"targets": {"there": {"backend": "stuck", "begun": str(begun), "end": str(end)}}}
    )
    grid.mark("hold-a")
    with grid.start() as running:
        grid.wait_for("begin a")
        running.send(signal.SIGINT)
        wait(begun.exists, "the release")
        running.send(signal.SIGTERM)
        running.wait_for("send 1 more to stop the cleanup")
        running.send(signal.SIGINT)
        outcome = running.wait(60)
    assert outcome.exit_code == 130, str(outcome)
    assert "Traceback" not in outcome.stdout + outcome.stderr
    assert (grid.verdicts, grid.phases, grid.alive()) == ({"a": "cancelled"}, ["prepare"], [])
    assert (grid.directory / "report.html").exists()
    end.touch()
    grid.unmark("hold-a")
    assert grid.resume().exit_code == 0
    assert (grid.verdicts, grid.phases) == ({"a": "passed"}, ["prepare", "cleanup"])
