"""Toolbox commands over SSH, on a real OpenSSH server on this machine, with its own keys and configuration."""

from __future__ import annotations

import getpass
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.servers import openssh
from toolbox.testing import Outcome, Workspace

pytestmark = pytest.mark.live


def run(server: openssh.Server, workspace: Workspace, *argv: str, env: Mapping[str, str] | None = None) -> Outcome:
    """Run a toolbox command on the server."""
    return workspace.run(*argv, f"--hosts={server.host}", env={**server.environment(), **(env or {})})


def name_of(server: openssh.Server) -> str:
    """Return the name of the server in messages and directories."""
    return f"{openssh.ADDRESS}-{server.port}"


@pytest.fixture
def bare_python(tmp_path: Path) -> str:
    """Return a Python that has only the standard library."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    return str(tmp_path / "bare/bin/python")


def step(workspace: Workspace, name: str) -> Path:
    """Return the directory of the only step with this name."""
    (found,) = workspace.artifacts.glob(f"toolbox/*__{name}")
    return found


def outcome_of(directory: Path) -> tuple[str, str]:
    """Return the verdict and the cause of a step."""
    kept = json.loads((directory / "step.json").read_text())
    return kept["verdict"], kept["cause"]


def test_the_state_of_a_host_is_saved_on_the_controller(server: openssh.Server, workspace: Workspace) -> None:
    outcome = run(server, workspace, "host", "capture_state", "--packages=numpy")
    assert outcome.exit_code == 0, str(outcome)
    kept = step(workspace, "host__capture_state") / f"artifacts/{name_of(server)}/host.json"
    state = json.loads(kept.read_text())
    assert state["os"]["kernel"] == os.uname().release
    assert state["cpu"]
    assert f"[{name_of(server)}]" in outcome.stdout


def test_a_machine_is_prepared_and_cleaned_up(server: openssh.Server, workspace: Workspace, tmp_path: Path) -> None:
    machine = tmp_path / "machine"
    prepared = run(server, workspace, "training", "prepare_corpus", str(machine), "--characters=20000")
    assert prepared.exit_code == 0, str(prepared)
    kept = step(workspace, "training__prepare_corpus") / f"artifacts/{name_of(server)}/corpus.json"
    assert json.loads(kept.read_text())["changed"] is True
    assert (machine / "corpus.txt").stat().st_size >= 20000
    cleaned = run(server, workspace, "training", "cleanup", str(machine))
    assert cleaned.exit_code == 0, str(cleaned)
    assert not machine.exists()


def test_a_task_that_fails_on_a_host_names_the_host_and_a_remedy(
    server: openssh.Server, workspace: Workspace, tmp_path: Path, bare_python: str
) -> None:
    machine = str(tmp_path / "machine")
    outcome = run(server, workspace, "training", "prepare_corpus", machine, f"--python={bare_python}")
    assert outcome.exit_code == 3, str(outcome)
    failure = (step(workspace, "training__prepare_corpus") / "FAILURE").read_text()
    assert f"task `Refuse an interpreter without numpy` failed on {name_of(server)}: {bare_python} has no" in failure
    assert f"no numpy on {name_of(server)}: install it there" in failure


@pytest.mark.parametrize("known", ["another key", "no key"])
def test_a_host_whose_key_is_not_the_known_one_is_refused(
    server: openssh.Server, workspace: Workspace, tmp_path: Path, known: str
) -> None:
    known_hosts = tmp_path / "known_hosts"
    known_hosts.write_text(server.entry(openssh.make_key(tmp_path / "other")) if known == "another key" else "")
    outcome = run(server, workspace, "host", "capture_state", env=server.environment(known_hosts))
    assert outcome.exit_code == 3, str(outcome)
    directory = step(workspace, "host__capture_state")
    assert outcome_of(directory) == ("error", "infrastructure")
    assert "Host key verification failed" in (directory / "FAILURE").read_text()
    assert "Host key verification failed" in outcome.stdout


def test_a_host_that_does_not_answer_is_an_error_of_the_infrastructure(
    server: openssh.Server, workspace: Workspace
) -> None:
    with socket.socket() as unused:
        unused.bind((openssh.ADDRESS, 0))  # bound, but no server listens
        host = f"{getpass.getuser()}@{openssh.ADDRESS}:{unused.getsockname()[1]}"
        outcome = workspace.run("host", "capture_state", f"--hosts={host}", env=server.environment())
    assert outcome.exit_code == 3, str(outcome)
    directory = step(workspace, "host__capture_state")
    assert outcome_of(directory) == ("error", "infrastructure")
    assert "Connection refused" in (directory / "FAILURE").read_text()


def test_a_secret_is_not_left_on_a_host(server: openssh.Server, workspace: Workspace) -> None:
    workspace.write(
        {
            "commands/vault.py": '''
                """Vaults."""
                from toolbox.ground.model.secrets import Secret
                from toolbox.api import role


                class Vault:
                    """Vaults."""

                    @role
                    def open(self, token: Secret) -> None:
                        """
                        Open the vault.

                        Args:
                            token: a secret.
                        """
            ''',
            "token": "correct-horse\n",
            "roles/vault_open/tasks/main.yml": """
                - name: Use the secret
                  ansible.builtin.shell:
                    cmd: 'test "$TOKEN" = correct-horse && echo "$TOKEN"'
                  environment: {TOKEN: "{{ vault_open_token }}"}
            """,
        }
    )
    outcome = run(server, workspace, "vault", "open", "--token=@token")
    assert outcome.exit_code == 0, str(outcome)
    assert "correct-horse" not in outcome.stdout + outcome.stderr
    assert workspace.holding("correct-horse") == []
    left = [path for path in server.directory.rglob("*") if path.is_file()]
    assert [path for path in left if b"correct-horse" in path.read_bytes()] == []


@pytest.mark.parametrize("helpers", ["1", "0"])
def test_a_login_that_hangs_is_ended_after_the_time_limit_and_a_line_says_what_is_waited_for(
    tmp_path: Path, workspace: Workspace, helpers: str
) -> None:
    with openssh.serving(tmp_path, options="ForceCommand exec sleep 500\n") as server:
        env = {"TOPGALLANT_ANSIBLE_WARM": helpers}
        outcome = run(server, workspace, "host", "capture_state", "--timeout=7", env=env)
        assert outcome.exit_code == 3, str(outcome)
        assert f"waiting for the login to {server.host}, up to 7 s" in outcome.stdout
        failure = (step(workspace, "host__capture_state") / "FAILURE").read_text()
        assert f"{name_of(server)}: the login took longer than 7 s. Raise the limit with --timeout" in failure
        assert outcome_of(step(workspace, "host__capture_state")) == ("error", "infrastructure")
        left = [process for session in server.sessions() for process in session.children()]
        assert [process for process in left if process.name() == "sleep"] == []


@pytest.mark.parametrize(
    ("options", "user", "reason"),
    [
        ("ForceCommand echo No account.; exit 1\n", getpass.getuser(), "the command ended with status 1\nNo account."),
        ("Banner {banner}\n", "no-such-user", "via ssh: no-such-user@127.0.0.1: Permission denied"),
    ],
)
def test_the_reason_of_a_failed_login_comes_before_a_banner(
    tmp_path: Path, workspace: Workspace, options: str, user: str, reason: str
) -> None:
    banner = tmp_path / "banner"
    banner.write_text("".join(f"line {n}\n" for n in range(9)))
    with openssh.serving(tmp_path, options=options.format(banner=banner)) as server:
        host = f"{user}@{openssh.ADDRESS}:{server.port}"
        outcome = workspace.run("host", "capture_state", f"--hosts={host}", env=server.environment())
    assert outcome.exit_code == 3, str(outcome)
    failure = (step(workspace, "host__capture_state") / "FAILURE").read_text()
    assert reason in failure
    assert "line 1\n" not in failure


def test_a_home_with_a_long_path_is_no_hindrance(server: openssh.Server, workspace: Workspace, tmp_path: Path) -> None:
    home = tmp_path / ("h" * 90)
    home.mkdir()
    env = {"PATH": server.environment()["PATH"], "HOME": str(home)}
    outcome = workspace.run("host", "capture_state", f"--hosts={server.host}", env=env)
    assert outcome.exit_code == 0, str(outcome)
