"""No helper of Ansible, no play and no module is left after a signal to the command line or to a helper."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.functional.test_interruption import Fifo
from toolbox.testing import Outcome, Running, Workspace

pytestmark = pytest.mark.usefixtures("ansible_servers_as_programs")

TASKS = 5
MODULE_SERVER, PLAYBOOK_SERVER = "module_server.py", "playbook_server.py"
HELPERS = (MODULE_SERVER, PLAYBOOK_SERVER)
_SECONDS = 30.0
_PLAYS_SECONDS = 3.0  # what the short tasks of a command line take here, with the start of its helpers
FILES = {
    "commands/moments.py": '''
        """Moments of a play."""
        from pathlib import Path

        from toolbox.api import role


        class Moments:
            """Moments of a play."""

            @role
            def pass_by(self, fifo: Path | None = None) -> None:
                """
                Execute some short tasks.

                Args:
                    fifo: a named pipe; with it, the last task writes to the pipe, and does not end.
                """
    ''',
    "roles/moments_pass_by/tasks/main.yml": """
        - name: Pass by
          ansible.builtin.include_tasks: moment.yml
          loop: [1, 2, 3, 4, 5]
        - name: Wait
          ansible.builtin.command:
            argv: [sh, -c, 'setsid sleep 300 & echo begun >"$1"; sleep 300', wait, "{{ moments_pass_by_fifo }}"]
          changed_when: false
          when: moments_pass_by_fifo is not none
    """,
    "roles/moments_pass_by/tasks/moment.yml": """
        - name: "Moment {{ item }}"
          ansible.builtin.command: "echo moment-{{ item }}"
          changed_when: false
    """,
    "projects/moments/orchestration.py": '''
        """Executes short tasks, and then a long one."""
        from toolbox.orchestration import config, run


        def test():
            for _ in range(2):
                run.run_toolbox("moments", "pass_by")
            run.run_toolbox("moments", "pass_by", fifo=config.project.get_config("fifo"))
    ''',
    "command_args/moments.yaml.j2": "",
}


@pytest.fixture
def fifo(workspace: Workspace) -> Iterator[Fifo]:
    """Yield the pipe of the long task of the project `moments`."""
    path = workspace.directory / "fifo"
    workspace.write({**FILES, "config/moments.yaml": f"fifo: {path}\n"})
    pipe = Fifo(path)
    yield pipe
    pipe.close()
    for process in remaining(workspace.directory):
        process.kill()


def remaining(directory: Path) -> list[psutil.Process]:
    """Return the processes in whose environment a directory is, for example as `HOME`."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, psutil.NoSuchProcess):  # the process has ended
            if os.fsencode(directory) in (path / "environ").read_bytes():
                found.append(psutil.Process(int(path.name)))
    return found


def expect_none(directory: Path, word: str = "") -> None:
    """Wait for the end of all processes with a directory in the environment and a word in the command line."""
    deadline = time.monotonic() + _SECONDS
    while processes := [process for process in remaining(directory) if word in command_line(process)]:
        assert time.monotonic() < deadline, list(map(command_line, processes))
        time.sleep(0.02)


def command_line(process: psutil.Process) -> str:
    """Return the words of a process; nothing if the process has ended."""
    with suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


def helper(running: Running, name: str) -> psutil.Process:
    """Return the process of a helper, which is a child process of the command line."""
    children = psutil.Process(running.pid).children()
    (found,) = [child for child in children if any(name in word for word in child.cmdline())]
    return found


def expect_exit_code(outcome: Outcome, number: signal.Signals, when: str = "") -> None:
    """Expect that a signal has ended a command line."""
    assert outcome.exit_code == (-number if number == signal.SIGKILL else 128 + number), f"{when}: {outcome}"


def send_at_any_moment(running: Running, number: signal.Signals, first: str) -> None:
    """Send a signal at a random moment after the first text that the command line prints, and wait for the end."""
    seconds = random.uniform(0, _PLAYS_SECONDS)
    running.wait_for(first)
    time.sleep(seconds)
    running.send(number)
    expect_exit_code(running.wait(60), number, f"{number.name} after {seconds:.3f} s")


def wait_for_moment(running: Running, fifo: Fifo, moment: int) -> None:
    """Wait for the end of a short task, or for the beginning of the long task."""
    if moment > TASKS:
        fifo.wait()
    else:
        running.wait_for(f"moment-{moment}")


def moments(seed: str) -> list[int]:
    """Return a short task, and the long task."""
    return [random.Random(seed).randint(1, TASKS), TASKS + 1]


@pytest.mark.parametrize(
    ("number", "moment"),
    [(signal.SIGINT, TASKS + 1), (signal.SIGTERM, 2), (signal.SIGKILL, TASKS + 1)],
)
def test_a_signal_to_the_command_line_leaves_nothing(
    workspace: Workspace, fifo: Fifo, number: signal.Signals, moment: int
) -> None:
    with workspace.start("project", "run", "moments") as running:
        wait_for_moment(running, fifo, moment)
        for name in HELPERS:
            assert helper(running, name).is_running()
        running.send(number)
        expect_exit_code(running.wait(60), number)
        expect_none(workspace.directory)


@pytest.mark.usefixtures("fifo")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_at_any_moment_leaves_nothing(workspace: Workspace, number: signal.Signals) -> None:
    with workspace.start("project", "run", "moments") as running:
        send_at_any_moment(running, number, "> test")
        expect_none(workspace.directory)


@pytest.mark.parametrize(("name", "moment"), [(name, moment) for name in HELPERS for moment in moments(name)])
def test_a_command_ends_after_a_helper_was_killed(workspace: Workspace, fifo: Fifo, name: str, moment: int) -> None:
    fifos = [f"--fifo={workspace.directory / 'fifo'}"] if moment > TASKS else []
    with workspace.start("moments", "pass_by", *fifos) as running:
        wait_for_moment(running, fifo, moment)
        helper(running, name).kill()
        outcome = running.wait(60)
    assert "Traceback" not in outcome.stderr, str(outcome)
    if name == MODULE_SERVER and not fifos:
        assert outcome.exit_code == 0, str(outcome)
        assert f"moment-{TASKS}" in outcome.stdout
    elif outcome.exit_code != 0 or fifos:
        assert outcome.exit_code == 3, str(outcome)
        assert ("task `Wait` failed" if name == MODULE_SERVER else "moments pass_by: ") in str(outcome)
    expect_none(workspace.directory)
