"""Cells and toolbox commands on a machine, whatever the login shell of its user is."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.sites import Bench, Orchestrator, Site
from tests.servers import openssh
from toolbox.targets.backends import ssh
from toolbox.testing import Workspace

pytestmark = pytest.mark.live

ROLE = {
    "commands/word.py": '''
        """Write words."""
        from toolbox.api import role


        class Word:
            """Write words."""

            @role
            def write(self, word: str, file: str) -> None:
                """
                Write a word to a file of each host, and read it.

                Args:
                    word: the word.
                    file: the file, without the name of the host.
                """
    ''',
    "roles/word_write/tasks/main.yml": """
        - name: Write
          ansible.builtin.copy:
            {content: "{{ word_write_word }}", dest: "{{ word_write_file }} {{ inventory_hostname }}", mode: "0600"}
        - name: Read
          ansible.builtin.command:
            argv: [grep, -xF, "{{ word_write_word }}", "{{ word_write_file }} {{ inventory_hostname }}"]
            expand_argument_vars: false
          changed_when: false
        - name: Read in a shell
          ansible.builtin.shell: "printf '%s\\n' {{ word_write_word | quote }}"
          register: _word_write_printed
          failed_when: _word_write_printed.stdout != word_write_word
          changed_when: false
    """,
}
SHELLS = ("bash", "dash", "zsh", "ksh", "fish", "tcsh", "bsd-csh", "busybox sh")
INSTALLED = {
    name: f"{path}{name[len(name.split()[0]) :]}" for name in SHELLS if (path := shutil.which(name.split()[0]))
}
FOLDER = "it's a folder!/a\\'b\\\\ $HOME `id` \"#~/two\nlines\té"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[openssh.Server]:
    """Yield a server that passes each command to the shell in $LOGIN_SHELL, as `sshd` passes it to a login shell."""
    options = """AcceptEnv LOGIN_SHELL\nForceCommand exec sh -c 'exec $LOGIN_SHELL -c "$SSH_ORIGINAL_COMMAND"'\n"""
    with openssh.serving(tmp_path_factory.mktemp("server"), options=options) as running:
        yield running


@pytest.fixture
def environment(server: openssh.Server, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return variables with which `ssh` has a host for each shell, and options for logins by hand. Also set `PATH`."""
    variables = server.environment()
    with (server.known_hosts.with_suffix(".bin") / "config").open("a") as config:
        config.write("  RemoteCommand exec tmux new -A\n  RequestTTY force\n")
        for shell, command in INSTALLED.items():
            config.write(f"Host {host(shell)}\n  HostName {openssh.ADDRESS}\n  Port {server.port}\n")
            config.write(f'  SetEnv "LOGIN_SHELL={command}"\n')
    monkeypatch.setenv("PATH", variables["PATH"])
    return variables


def host(shell: str) -> str:
    """Return the name of the host whose user has a shell."""
    return f"host-{shell.replace(' ', '-')}"


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.usefixtures("environment")
def test_a_cell_runs_with_each_login_shell(server: openssh.Server, tmp_path: Path, shell: str) -> None:
    if shell not in INSTALLED:
        pytest.skip(f"{shell} is not installed")
    directory = server.directory / shell / FOLDER
    target = ssh.Target(host=host(shell), directory=str(directory))
    bench = Bench(Orchestrator(Site("ssh", target, directory, server), tmp_path), tmp_path)
    try:
        script = 'cat "$TOPGALLANT_SRC/sent" > "it is! b"'
        attempt, outcome = bench.run("sh", "-c", script, text_files={"sent": "a file\n"})
        assert outcome.exit_code == 0
        assert attempt.text("files/it is! b") == "a file\n"
    finally:
        bench.close()
        bench.shared.backend.close()


def test_a_toolbox_command_runs_with_each_login_shell(
    server: openssh.Server, environment: dict[str, str], workspace: Workspace
) -> None:
    word = 'it\'s a "word"! \\ $HOME `id` #~ é'
    hosts = ",".join(map(host, INSTALLED))
    argv = ["word", "write", word, str(server.directory / "it's! a file"), f"--hosts={hosts}"]
    outcome = workspace.write(ROLE).run(*argv, env=environment)
    assert outcome.exit_code == 0, str(outcome)
    assert len(list(server.directory.glob("it's! a file *"))) == len(INSTALLED)
