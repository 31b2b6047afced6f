"""A real OpenSSH server on the loopback interface, with its own keys and configuration, run by the user of the tests.

`ssh`, `sftp` and `scp` are wrappers that pass their own configuration, so that the user's keys and known hosts have no
effect. Everything else is as for a user. The server can be stopped together with its sessions, and started again on
the same port.

    with openssh.Server(directory) as server:
        subprocess.run(["ssh", "-p", str(server.port), "127.0.0.1", "true"], env={**os.environ, **server.environment()})
"""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self

import psutil
import pytest

from tests.servers import reserved_ports

ADDRESS: Final = "127.0.0.1"
_SEARCH: Final = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])
TOOLS: Final = {name: shutil.which(name, path=_SEARCH) for name in ("sshd", "ssh", "sftp", "scp", "ssh-keygen")}
_WRAPPED: Final = ("ssh", "sftp", "scp")
_START_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.01
# New servers delay a client after failed logins or killed sessions. This option lets it connect again at once.
_PATIENT: Final = "PerSourcePenalties no\n"
_COMMON: Final = (
    "PidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
    "PermitRootLogin prohibit-password\nMaxSessions 1000\nMaxStartups 1000\nSubsystem sftp internal-sftp\n"
)


class ServerError(Exception):
    """No server can be started on this machine. The message gives the reason and the remedy."""


class Server:
    """A server that listens from `start` until `stop`, or inside a `with` block.

    Args:
        directory: directory for the keys and configurations of the server and its clients; home of the remote user.
        path: PATH of remote commands; by default, it begins with the directory of this Python.
        options: lines at the beginning of the server's configuration. The first line with an option's name counts.
    """

    def __init__(self, directory: Path, *, path: str | None = None, options: str = "") -> None:
        if missing := [name for name, found in TOOLS.items() if found is None]:
            raise ServerError(f"{', '.join(missing)} not found: install OpenSSH's server and client")
        self.directory = directory
        self.known_hosts = directory / "known_hosts"
        self._reserved = reserved_ports.reserve(ADDRESS)
        self.port: int = self._reserved.getsockname()[1]
        self._path = path or os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"])
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._sockets = tempfile.TemporaryDirectory(prefix="tg-")  # the path of a socket has to be short
        make_key(directory / "user_key")
        self._host_key = make_key(directory / "host_key")

    @property
    def host(self) -> str:
        """Address of the server for Ansible: `USER@ADDRESS:PORT`."""
        return f"{getpass.getuser()}@{ADDRESS}:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._reserved.close()
        self._sockets.cleanup()

    def start(self) -> None:
        """Listen, always on the same port.

        Raises:
            ServerError: the server does not start. The message contains its log.
        """
        make_directory_of_sshd()
        if failure := self._listen():
            raise ServerError(f"the SSH server of this machine does not start: {failure}")
        self.known_hosts.write_text(self.entry(self._host_key))

    def stop(self) -> None:
        """Kill the server and its sessions, as a crash does. The processes that the sessions have started go on."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGSTOP)  # it accepts no more connections
            for one in _family(process.pid):
                with suppress(psutil.NoSuchProcess):
                    one.kill()
        process.wait()

    def sessions(self) -> list[psutil.Process]:
        """Return the processes of the sessions, without the commands that run in them."""
        return _family(self._process.pid)[1:] if self._process is not None else []

    def entry(self, key: str) -> str:
        """Return the line of a known hosts file that assigns a key to this server."""
        return f"[{ADDRESS}]:{self.port} {key}"

    @contextmanager
    def replaced(self, program: str, script: str) -> Iterator[None]:
        """Let the start file of the shell put a script before a program of the machine, inside a `with` block."""
        file, shell = self.directory / "bin" / program, self.directory / ".bashrc"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
        shell.write_text(f"PATH={file.parent}:$PATH\n")
        yield
        shell.unlink()
        file.unlink()

    def environment(self, known_hosts: Path | None = None) -> dict[str, str]:
        """Return the environment variables with which programs use the wrappers of `ssh`, which can log in.

        Args:
            known_hosts: known hosts of the client; by default, they contain this server.
        """
        known = known_hosts or self.known_hosts
        folder = known.with_suffix(".bin")
        folder.mkdir(exist_ok=True)
        (folder / "config").write_text(
            f"Host *\n  IdentityFile {self.directory}/user_key\n  IdentitiesOnly yes\n  UserKnownHostsFile {known}\n"
            "  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n"
        )
        for name in _WRAPPED:
            wrapper = folder / name
            wrapper.write_text(f'#!/bin/sh\nexec {TOOLS[name]} -F {folder}/config "$@"\n')
            wrapper.chmod(0o755)
        # Over a shared connection that is already open, `ssh` would not check the host key.
        sockets = Path(self._sockets.name) / ("strangers" if known_hosts else "friends")
        path = os.pathsep.join([str(folder), os.environ.get("PATH", os.defpath)])
        return {"PATH": path, "ANSIBLE_SSH_CONTROL_PATH_DIR": str(sockets)}

    def _listen(self) -> str:
        """Start the server, and return the text of its failure, or an empty text."""
        config, log = self.directory / "sshd_config", self.directory / "sshd.log"
        config.write_text(
            f"{self._options}Port {self.port}\nListenAddress {ADDRESS}\nHostKey {self.directory}/host_key\n"
            f"AuthorizedKeysFile {self.directory}/user_key.pub\n"
            f"SetEnv PATH={self._path} HOME={self.directory}\n{common_options(self.directory / 'host_key')}"
        )
        command = [str(TOOLS["sshd"]), "-f", str(config)]
        log.write_text("")
        self._process = subprocess.Popen([*command, "-D", "-E", str(log)])
        deadline = time.monotonic() + _START_SECONDS
        while f"Server listening on {ADDRESS}" not in log.read_text():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                return log.read_text() or f"the server does not listen within {_START_SECONDS:g} s"
            time.sleep(_LOOK_SECONDS)
        return ""


def common_options(host_key: Path) -> str:
    """Return the lines of a server's configuration that all test servers need, as far as this `sshd` supports them.

    Args:
        host_key: any host key, which `sshd` needs to check its options.
    """
    check = [str(TOOLS["sshd"]), "-t", "-f", os.devnull, "-h", str(host_key), "-o", _PATIENT.strip()]
    known = subprocess.run(check, capture_output=True, check=False).returncode == 0
    return _COMMON + (_PATIENT if known else "")


def make_directory_of_sshd() -> None:
    """Make the directory that `sshd` needs as root; the system's SSH service makes it too."""
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)


def make_key(file: Path) -> str:
    """Make a key pair, and return the public key."""
    subprocess.run([str(TOOLS["ssh-keygen"]), "-q", "-t", "ed25519", "-N", "", "-f", str(file)], check=True)
    return file.with_suffix(".pub").read_text()


def _family(pid: int) -> list[psutil.Process]:
    """Return the process of a server and those of its sessions, whose names begin with `sshd`."""
    found = [psutil.Process(pid)]
    for process in found:
        with suppress(psutil.NoSuchProcess):
            found += filter(_is_sshd, process.children())
    return found


def _is_sshd(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.name().startswith("sshd")
    return False


@contextmanager
def serving(directory: Path, *, options: str = "") -> Iterator[Server]:
    """Run a server for a test, which is skipped if no server can be started here."""
    try:
        with Server(directory, options=options) as server:
            yield server
    except ServerError as error:
        pytest.skip(str(error))
