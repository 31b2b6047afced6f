"""Toolbox commands over SSH, on a real OpenSSH server on this machine, with its own keys and configuration."""

from __future__ import annotations

import json
import os
import socket
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.servers import openssh
from toolbox.testing import Outcome, Workspace

pytestmark = pytest.mark.live


def run(server: openssh.Server, workspace: Workspace, *argv: str) -> Outcome:
    """Run a toolbox command on the server."""
    return workspace.run(*argv, f"--hosts={server.host}", env=server.environment())


def name_of(server: openssh.Server) -> str:
    """Return the name of the server in messages and directories."""
    return f"{openssh.ADDRESS}-{server.port}"


@pytest.fixture
def bare_python(tmp_path: Path) -> str:
    """Return a Python that has only the standard library."""
    program = tmp_path / "bare"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    program.chmod(0o755)
    return str(program)


def step(workspace: Workspace, name: str) -> Path:
    """Return the directory of the only step with this name."""
    (found,) = workspace.artifacts.glob(f"toolbox/*__{name}")
    return found


def outcome_of(directory: Path) -> tuple[str, str]:
    """Return the verdict and the cause of a step."""
    kept = json.loads((directory / "step.json").read_text())
    return kept["verdict"], kept["cause"]


def test_the_state_of_a_host_is_saved_on_the_controller(
    server: openssh.Server, workspace: Workspace, tmp_path: Path
) -> None:
    home = tmp_path / ("h" * 90)  # longer than the path of a socket may be
    home.mkdir()
    env = {"PATH": server.environment()["PATH"], "HOME": str(home)}
    outcome = workspace.run("host", "capture_state", "--packages=numpy", f"--hosts={server.host}", env=env)
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


def test_each_host_that_cannot_be_reached_is_an_error_of_the_infrastructure_with_its_reason(
    workspace: Workspace, tmp_path: Path
) -> None:
    banner = tmp_path / "banner"
    banner.write_text("".join(f"line {n}\n" for n in range(9)))
    (tmp_path / "server").mkdir()
    options = f"Banner {banner}\nForceCommand echo No account.; exit 1\n"
    with openssh.serving(tmp_path / "server", options=options) as server, socket.socket() as unused:
        unused.bind((openssh.ADDRESS, 0))  # bound, but no server listens
        (tmp_path / "no_keys").write_text("")
        (tmp_path / "other_keys").write_text(server.entry(openssh.make_key(tmp_path / "other")))
        hosts = {
            "silent": f"Port {unused.getsockname()[1]}",
            "unknown": f"UserKnownHostsFile {tmp_path}/no_keys",
            "changed": f"UserKnownHostsFile {tmp_path}/other_keys",
            "stranger": "User no-such-user",
            "expired": "LogLevel ERROR",  # without the banner
        }
        env = server.environment()
        config = server.known_hosts.with_suffix(".bin") / "config"
        lines = [f"Host {host}\n  {line}\n" for host, line in hosts.items()]
        lines += [f"Host {' '.join(hosts)}\n  HostName {openssh.ADDRESS}\n  Port {server.port}\n"]
        config.write_text("".join(lines) + config.read_text())
        outcome = workspace.run("host", "capture_state", f"--hosts={','.join(hosts)}", env=env)
    assert outcome.exit_code == 3, str(outcome)
    directory = step(workspace, "host__capture_state")
    assert outcome_of(directory) == ("error", "infrastructure")
    failure = (directory / "FAILURE").read_text()
    assert [host for host in hosts if host not in failure] == []
    shown = {host: outcome.stdout.partition(f" Log in [{host}] ")[2].splitlines()[1] for host in hosts}
    reasons = {
        "silent": "Connection refused",
        "unknown": "Host key verification failed",
        "changed": "Host key verification failed",
        "stranger": "via ssh: no-such-user@127.0.0.1: Permission denied",  # and not the banner
        "expired": "the command ended with status 1",
    }
    assert {host: text for host, text in shown.items() if reasons[host] not in text} == {}
    assert "No account." in outcome.stdout


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


def test_a_login_that_hangs_is_ended_after_the_time_limit_and_a_line_says_what_is_waited_for(tmp_path: Path) -> None:
    with openssh.serving(tmp_path, options="ForceCommand exec sleep 500\n") as server, ExitStack() as stack:
        running = {}
        for helpers in ("1", "0"):
            workspace = Workspace(tmp_path / f"workspace-{helpers}")
            env = {**server.environment(), "TOPGALLANT_ANSIBLE_WARM": helpers}
            argv = ("host", "capture_state", "--timeout=7", f"--hosts={server.host}")
            running[helpers] = workspace, stack.enter_context(workspace.start(*argv, env=env))
        for workspace, process in running.values():
            outcome = process.wait()
            assert outcome.exit_code == 3, str(outcome)
            assert f"waiting for the login to {server.host}, up to 7 s" in outcome.stdout
            failure = (step(workspace, "host__capture_state") / "FAILURE").read_text()
            assert f"{name_of(server)}: the login took longer than 7 s. Raise the limit with --timeout" in failure
            assert outcome_of(step(workspace, "host__capture_state")) == ("error", "infrastructure")
        left = [process for session in server.sessions() for process in session.children()]
        assert [process for process in left if process.name() == "sleep"] == []
