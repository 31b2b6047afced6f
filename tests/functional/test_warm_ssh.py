"""Modules on SSH hosts end with the play, with the connection and with each process between, and are executed once."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.functional.test_interruption import Fifo
from tests.functional.test_warm_interruption import command_line, expect_none, remaining, send_at_any_moment
from tests.servers import openssh
from toolbox.testing import Running, Workspace

pytestmark = pytest.mark.usefixtures("ansible_servers_as_programs")

LINK, HOST_PROGRAM = "ssh_relay.py", "closefd=False"
FILES = {
    "commands/remote.py": '''
        """Execute modules on hosts."""
        from pathlib import Path

        from toolbox.api import role


        class Remote:
            """Execute modules on hosts."""

            @role
            def modules(self, fifo: Path | None = None, before: str = "true", session: str = "true") -> None:
                """
                Execute short tasks, and one that may not end.

                Args:
                    fifo: a named pipe; with it, the task `Wait` writes to the pipe, and does not end.
                    before: a shell command of a module.
                    session: a shell command of a session.
                """
    ''',
    "roles/remote_modules/tasks/main.yml": """
        - name: Begin
          parent:
        - name: Prepare
          ansible.builtin.shell: "{{ remote_modules_before }}"
          changed_when: false
        - name: Start a session
          ansible.builtin.raw: "{{ remote_modules_session }}"
          changed_when: false
        - name: Wait
          ansible.builtin.command:
            argv: [sh, -c, 'echo x >>~/executed; echo begun >"$1"; exec sleep 300', wait, "{{ remote_modules_fifo }}"]
          changed_when: false
          when: remote_modules_fifo is not none
        - name: Continue
          parent:
    """,
    "roles/remote_modules/library/parent.py": """
        #!/usr/bin/python
        import os
        from ansible.module_utils.basic import AnsibleModule

        with open("/proc/%d/cmdline" % os.getppid()) as stream:
            parent = stream.read()
        # The parent of a module is the shell of its session, or the program on the host.
        AnsibleModule({}).exit_json(msg="in a new session" if parent.startswith("/bin/sh") else "in a fork")
    """,
}


class Site:
    """A workspace, and a host whose processes and files can be found.

    Args:
        server: the SSH server of the host.
    """

    def __init__(self, workspace: Workspace, server: openssh.Server) -> None:
        self.workspace = workspace
        self.server = server
        self.fifo = Fifo(workspace.directory / "fifo")

    def start(self, *flags: str, waits: bool = True) -> Running:
        """Start the command."""
        fifo = [f"--fifo={self.workspace.directory / 'fifo'}"] if waits else []
        argv = ("remote", "modules", f"--hosts={self.server.host}", *fifo, *flags)
        return self.workspace.start(*argv, env=self.server.environment())

    def run(self, *flags: str) -> list[str]:
        """Run the command without the long task, and return how the first and the last task were executed."""
        with self.start(*flags, waits=False) as running:
            outcome = running.wait(60)
        assert outcome.exit_code == 0, str(outcome)
        (log,) = self.workspace.artifacts.rglob("_ansible.log")
        return re.findall(r'"msg": "(in a [a-z ]+)"', log.read_text())

    def executions(self) -> int:
        """Return how often the task that does not end has been executed."""
        return len((self.server.directory / "executed").read_text().splitlines())

    def processes(self, word: str) -> list[psutil.Process]:
        """Return the processes whose command line contains a word, in the order of their starts."""
        found = [process for process in remaining(self.server.directory) if word in command_line(process)]
        return sorted(found, key=lambda process: (process.create_time(), process.pid))

    def expect_none(self, word: str = "") -> None:
        """Wait for the end of all processes of the workspace, and of those of the host with a word."""
        expect_none(self.workspace.directory)
        expect_none(self.server.directory, word)


@pytest.fixture
def site(workspace: Workspace, tmp_path: Path) -> Iterator[Site]:
    """Yield a host that serves no other test."""
    workspace.write(FILES)
    directory = tmp_path / "server"
    directory.mkdir()
    with openssh.serving(directory) as server:
        site = Site(workspace, server)
        yield site
        site.fifo.close()
        for process in [*remaining(workspace.directory), *remaining(directory)]:
            process.kill()


def test_modules_are_executed_in_forks(site: Site) -> None:
    assert site.run() == ["in a fork", "in a fork"]
    site.expect_none()


def test_a_killed_command_line_leaves_nothing(site: Site) -> None:
    with site.start() as running:
        site.fifo.wait()
        assert len(site.processes(LINK)) == 1
        running.send(signal.SIGKILL)
        running.wait(60)
    site.expect_none()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_signal_at_any_moment_leaves_nothing(site: Site, number: signal.Signals) -> None:
    with site.start() as running:
        send_at_any_moment(running, number, "> ")
    site.expect_none()


@pytest.mark.parametrize(
    ("word", "index"),
    [(LINK, 0), (HOST_PROGRAM, 0), (HOST_PROGRAM, 1), (HOST_PROGRAM, 2), (HOST_PROGRAM, 3)],
    ids=["link", "ssh", "shell", "relay", "module server"],
)
def test_a_module_is_executed_once_if_a_process_between_is_killed(site: Site, word: str, index: int) -> None:
    with site.start() as running:
        site.fifo.wait()
        site.processes(word)[index].kill()
        outcome = running.wait(60)
    assert outcome.exit_code == 3, str(outcome)
    assert "was lost while a module was running" in outcome.stdout, str(outcome)
    assert site.executions() == 1
    # What a module has started cannot be found if the module server was killed.
    site.expect_none(HOST_PROGRAM if index == 3 else "")


def test_the_end_of_the_connection_is_that_of_the_host(site: Site) -> None:
    with site.start() as running:
        site.fifo.wait()
        site.server.stop()
        outcome = running.wait(60)
    assert outcome.exit_code == 3, str(outcome)
    assert "was lost while a module was running" in outcome.stdout
    assert site.executions() == 1
    site.expect_none()


@pytest.mark.parametrize("text", ["echo hello", "[[ $BASH_EXECUTION_STRING == *closefd* ]] && exit 1"])
def test_a_host_without_a_link_takes_the_ordinary_way(site: Site, text: str) -> None:
    (site.server.directory / ".bashrc").write_text(f"{text}\n")
    assert site.run() == ["in a new session", "in a new session"]
    site.expect_none()


@pytest.mark.parametrize("file", ["~/.bashrc", "~/.config/fish/config.fish"])
def test_a_change_of_a_startup_file_starts_new_sessions(site: Site, file: str) -> None:
    before = f"mkdir -p $(dirname {file}); echo '# changed' >>{file}"
    assert site.run(f"--before={before}") == ["in a fork", "in a new session"]
    site.expect_none()


def test_the_next_module_is_executed_after_the_program_on_the_host_was_killed(site: Site) -> None:
    flags = ["--before=cut -d' ' -f4 /proc/$PPID/stat >~/server", "--session=kill -KILL $(cat ~/server)"]
    assert site.run(*flags) == ["in a fork", "in a new session"]
    site.expect_none()
