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
                Write a word to a file, and read it.

                Args:
                    word: the word.
                    file: the file.
                """
    ''',
    "roles/word_write/tasks/main.yml": """
        - name: Write
          ansible.builtin.copy: {content: "{{ word_write_word }}", dest: "{{ word_write_file }}", mode: "0600"}
        - name: Read
          ansible.builtin.command:
            argv: [grep, -xF, "{{ word_write_word }}", "{{ word_write_file }}"]
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


@pytest.fixture(scope="module", params=SHELLS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[openssh.Server]:
    """Yield a server that passes each command to a shell, as `sshd` passes it to a login shell."""
    shell, *words = request.param.split()
    path = shutil.which(shell) or pytest.skip(f"{shell} is not installed")
    options = f'ForceCommand exec {" ".join([path, *words])} -c "$SSH_ORIGINAL_COMMAND"\n'
    with openssh.serving(tmp_path_factory.mktemp("server"), options=options) as running:
        yield running


@pytest.fixture
def environment(server: openssh.Server, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return variables with which `ssh` has options for logins by hand. The variable `PATH` of this process is set."""
    variables = server.environment()
    with (server.known_hosts.with_suffix(".bin") / "config").open("a") as config:
        config.write("  RemoteCommand exec tmux new -A\n  RequestTTY force\n")
    monkeypatch.setenv("PATH", variables["PATH"])
    return variables


@pytest.mark.parametrize("folder", ["plain", "it's a folder!", "a\\'b\\\\ $HOME `id` \"#~", "two\nlines\té"])
@pytest.mark.usefixtures("environment")
def test_a_cell_runs_with_each_login_shell(server: openssh.Server, tmp_path: Path, folder: str) -> None:
    target = ssh.Target(host=openssh.ADDRESS, port=server.port, directory=str(server.directory / folder))
    bench = Bench(Orchestrator(Site("ssh", target, server.directory / folder, server), tmp_path), tmp_path)
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
    argv = ["word", "write", word, str(server.directory / "it's! a file"), f"--hosts={server.host}"]
    outcome = workspace.write(ROLE).run(*argv, env=environment)
    assert outcome.exit_code == 0, str(outcome)
