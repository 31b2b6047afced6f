"""Toolbox commands over SSH, by a real OpenSSH server on this machine, with its own keys and configuration.

The server runs as the user of the tests. `ssh` and `sftp` of the tests are wrappers that name a configuration of
their own, so that neither the user's keys nor their known hosts have a say; everything else is as for a user.
"""

from __future__ import annotations

import getpass
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest

from toolbox.testing import Outcome, Workspace

pytestmark = pytest.mark.live

SSHD = shutil.which("sshd", path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"]))
TOOLS = {name: shutil.which(name) for name in ("ssh", "sftp", "scp", "ssh-keygen")}
MISSING = [name for name, path in {"sshd": SSHD, **TOOLS}.items() if path is None]

if MISSING:
    pytest.skip(f"no {', '.join(MISSING)} here: install OpenSSH's server and client", allow_module_level=True)


@dataclass(frozen=True)
class Server:
    """A server that listens.

    Args:
        directory: its keys and configuration, and the client's.
        host: what `--hosts` names it.
        control: where the sockets of ssh's shared connections go; a path of a socket has to be short.
    """

    directory: Path
    host: str
    control: Path
    known_hosts: Path

    @property
    def name(self) -> str:
        """What messages and directories name it."""
        return f"127.0.0.1-{self.host.rpartition(':')[2]}"

    def environment(self) -> dict[str, str]:
        """Return the variables with which the tests' own ssh is found first."""
        folder = self.known_hosts.with_suffix(".bin")
        folder.mkdir(exist_ok=True)
        config = f"""
            Host *
              IdentityFile {self.directory}/user_key
              IdentitiesOnly yes
              UserKnownHostsFile {self.known_hosts}
              GlobalKnownHostsFile /dev/null
              StrictHostKeyChecking yes
        """
        (folder / "config").write_text(config)
        for name in ("ssh", "sftp", "scp"):
            wrapper = folder / name
            wrapper.write_text(f'#!/bin/sh\nexec {TOOLS[name]} -F {folder}/config "$@"\n')
            wrapper.chmod(0o755)
        path = os.pathsep.join([str(folder), os.environ.get("PATH", os.defpath)])
        return {"PATH": path, "ANSIBLE_SSH_CONTROL_PATH_DIR": str(self.control)}

    def run(self, workspace: Workspace, *argv: str, env: dict[str, str] | None = None) -> Outcome:
        """Run a toolbox command on the server."""
        return workspace.run(*argv, f"--hosts={self.host}", env={**self.environment(), **(env or {})})


def make_key(file: Path) -> str:
    """Make a key, and return its public half."""
    subprocess.run([str(TOOLS["ssh-keygen"]), "-q", "-t", "ed25519", "-N", "", "-f", file], check=True)
    return file.with_suffix(".pub").read_text()


def listening(directory: Path, remote_path: str) -> tuple[subprocess.Popen[str], int]:
    """Start a server on a free port, and wait until it listens."""
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # what the system's own service makes
    for _ in range(5):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        config = directory / "sshd_config"
        config.write_text(
            f"Port {port}\nListenAddress 127.0.0.1\nHostKey {directory}/host_key\nPidFile none\n"
            f"AuthorizedKeysFile {directory}/user_key.pub\nStrictModes no\nUsePAM no\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n"
            f"Subsystem sftp internal-sftp\nSetEnv PATH={remote_path} HOME={directory}\n"
        )
        server = subprocess.Popen([str(SSHD), "-D", "-e", "-f", config], stderr=subprocess.PIPE, text=True)
        assert server.stderr is not None
        said = []
        for line in server.stderr:
            said.append(line)
            if line.startswith("Server listening on"):
                return server, port
        server.wait()
        if "Address already in use" not in "".join(said):
            pytest.skip(f"the SSH server of this machine does not start: {''.join(said)}")
    raise AssertionError("no free port was found")


def serve(directory: Path, remote_path: str) -> Iterator[Server]:
    """Run a server."""
    make_key(directory / "user_key")
    host_key = make_key(directory / "host_key")
    process, port = listening(directory, remote_path)
    # What it says goes nowhere from here on; a full pipe would stop it.
    assert process.stderr is not None
    drain = subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL)
    process.stderr.close()
    known_hosts = directory / "known_hosts"
    known_hosts.write_text(f"[127.0.0.1]:{port} {host_key}")
    with tempfile.TemporaryDirectory(prefix="tg-") as control:
        yield Server(directory, f"{getpass.getuser()}@127.0.0.1:{port}", Path(control), known_hosts)
        # Connections are shared for a while after a command: ssh ends them when the server's side has gone.
        ours = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
        for one in ours:
            one.terminate()
        psutil.wait_procs(ours, timeout=10)
        process.wait()
        drain.terminate()
        drain.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server on which the Python of the tests, which has numpy, is found first."""
    path = os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"])
    yield from serve(tmp_path_factory.mktemp("server"), path)


@pytest.fixture
def bare_python(tmp_path: Path) -> str:
    """A Python with nothing but its standard library."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    return str(tmp_path / "bare/bin/python")


def step(workspace: Workspace, name: str) -> Path:
    """Return the directory of the one step of a name."""
    (found,) = workspace.artifacts.glob(f"toolbox/*__{name}")
    return found


def outcome_of(directory: Path) -> tuple[str, str]:
    """Return the verdict and the cause of a step."""
    kept = json.loads((directory / "step.json").read_text())
    return kept["verdict"], kept["cause"]


def test_the_state_of_a_host_lands_on_the_controller(server: Server, workspace: Workspace) -> None:
    outcome = server.run(workspace, "host", "capture_state", "--packages=numpy")
    assert outcome.exit_code == 0, str(outcome)
    state = json.loads((step(workspace, "host__capture_state") / f"artifacts/{server.name}/host.json").read_text())
    assert state["os"]["kernel"] == os.uname().release
    assert state["cpu"]
    assert f"[{server.name}]" in outcome.stdout


def test_a_training_runs_on_a_host_and_its_artifacts_come_back(
    server: Server, workspace: Workspace, tmp_path: Path
) -> None:
    machine = tmp_path / "machine"
    prepared = server.run(workspace, "training", "prepare_corpus", str(machine), "--characters=20000")
    assert prepared.exit_code == 0, str(prepared)
    trained = server.run(
        workspace, "training", "run", str(machine), "--name=far", "--layers=1", "--width=32", "--heads=2", "--steps=10"
    )
    assert trained.exit_code == 0, str(trained)
    artifacts = step(workspace, "training__run") / "artifacts" / server.name
    assert (artifacts / "exit_code").read_text() == "0\n"
    assert "Finished training run" in (artifacts / "train.log").read_text()
    assert json.loads((artifacts / "train_metrics.json").read_text())["step_time_seconds"] > 0
    assert len(list(artifacts.glob("profile/**/*.xplane.pb"))) == 1
    assert (machine / "runs/far").is_dir()
    cleaned = server.run(workspace, "training", "cleanup", str(machine), "--keep_corpus=false")
    assert cleaned.exit_code == 0, str(cleaned)
    assert sorted(path.name for path in machine.iterdir()) == [".topgallant-training"]


def test_a_host_without_numpy_is_named_with_what_to_do(
    server: Server, workspace: Workspace, tmp_path: Path, bare_python: str
) -> None:
    env = {"ANSIBLE_PYTHON_INTERPRETER": bare_python}
    machine = str(tmp_path / "machine")
    assert server.run(workspace, "training", "prepare_corpus", machine, "--characters=2000", env=env).exit_code == 0
    outcome = server.run(workspace, "training", "run", machine, env=env)
    assert outcome.exit_code == 3, str(outcome)
    failure = (step(workspace, "training__run") / "FAILURE").read_text()
    assert f"{bare_python} has no numpy on {server.name}: install it there." in failure


def test_a_task_that_fails_on_a_host_names_the_host(server: Server, workspace: Workspace, tmp_path: Path) -> None:
    outcome = server.run(workspace, "training", "run", str(tmp_path / "nothing"))
    assert outcome.exit_code == 3
    said = f"task `Refuse a directory with no corpus` failed on {server.name}: There is no corpus.txt in"
    assert said in (step(workspace, "training__run") / "FAILURE").read_text()


@pytest.mark.parametrize("known", ["another key", "no key"])
def test_a_host_whose_key_is_not_the_known_one_is_refused(
    server: Server, workspace: Workspace, tmp_path: Path, known: str
) -> None:
    port = server.host.rpartition(":")[2]
    known_hosts = tmp_path / "known_hosts"
    known_hosts.write_text(f"[127.0.0.1]:{port} {make_key(tmp_path / 'other')}" if known == "another key" else "")
    control = server.control / known.replace(" ", "-")  # a connection that is open already is not checked again
    stranger = replace(server, known_hosts=known_hosts, control=control)
    outcome = stranger.run(workspace, "host", "capture_state")
    assert outcome.exit_code == 3, str(outcome)
    directory = step(workspace, "host__capture_state")
    assert outcome_of(directory) == ("error", "infrastructure")
    assert "Host key verification failed" in (directory / "FAILURE").read_text()
    assert "Host key verification failed" in outcome.stdout


def test_a_host_that_does_not_answer_is_an_error_of_the_infrastructure(server: Server, workspace: Workspace) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, and nobody listens
        host = f"{getpass.getuser()}@127.0.0.1:{unused.getsockname()[1]}"
        outcome = replace(server, host=host).run(workspace, "host", "capture_state")
    assert outcome.exit_code == 3, str(outcome)
    directory = step(workspace, "host__capture_state")
    assert outcome_of(directory) == ("error", "infrastructure")
    assert "Connection refused" in (directory / "FAILURE").read_text()


def test_a_secret_is_not_left_on_a_host(server: Server, workspace: Workspace) -> None:
    workspace.write(
        {
            "commands/vault.py": '''
                """Vaults."""
                from toolbox.model.secrets import Secret
                from toolbox.roles import role


                class Vault:
                    """Vaults."""

                    @role
                    def open(self, token: Secret) -> None:
                        """
                        Open the vault.

                        Args:
                            token: opens it.
                        """
            ''',
            "roles/vault_open/tasks/main.yml": """
                - name: Use the secret
                  ansible.builtin.shell:
                    cmd: 'test "$TOKEN" = correct-horse && echo "$TOKEN"'
                  environment: {TOKEN: "{{ vault_open_token }}"}
            """,
        }
    )
    outcome = server.run(workspace, "vault", "open", "--token=correct-horse")
    assert outcome.exit_code == 0, str(outcome)
    assert "correct-horse" not in outcome.stdout + outcome.stderr
    assert workspace.holding("correct-horse") == []
    left = [path for path in server.directory.rglob("*") if path.is_file()]
    assert [path for path in left if b"correct-horse" in path.read_bytes()] == []
