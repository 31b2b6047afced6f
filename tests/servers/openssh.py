"""A real OpenSSH server on the loopback interface, with its own keys and configuration, run by the user of the tests.

`ssh`, `sftp` and `scp` are wrappers that name a configuration of their own, so that neither the user's keys nor their
known hosts have a say; everything else is as for a user. The server can be stopped, which ends its sessions too, and
started again on its port.

    with openssh.Server(directory) as server:
        subprocess.run(["ssh", "-p", str(server.port), "127.0.0.1", "true"], env={**os.environ, **server.environment()})
"""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
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

ADDRESS: Final = "127.0.0.1"
_SEARCH: Final = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])
_TOOLS: Final = {name: shutil.which(name, path=_SEARCH) for name in ("sshd", "ssh", "sftp", "scp", "ssh-keygen")}
_WRAPPED: Final = ("ssh", "sftp", "scp")
_TRIES: Final = 5  # a port that was free may be taken
_START_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.01
# Where a server has it: who fails to come in, or whose sessions are killed, may try again at once.
_PATIENT: Final = "PerSourcePenalties no\n"


class ServerError(Exception):
    """There is no server to be had on this machine; the text says why, and what to do."""


class Server:
    """A server that listens while it is started; as a context manager, inside of that.

    Args:
        directory: for its keys and its configuration, and for those of its clients; the home of who comes in.
        path: where programs are looked for there; the Python of who starts it is the first when left out.
        options: lines of its configuration that come before ours: the first one of a name counts.
    """

    def __init__(self, directory: Path, *, path: str | None = None, options: str = "") -> None:
        if missing := [name for name, found in _TOOLS.items() if found is None]:
            raise ServerError(f"no {', '.join(missing)} here: install OpenSSH's server and client")
        self.directory = directory
        self.known_hosts = directory / "known_hosts"
        self.port = 0
        self._path = path or os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"])
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._sockets = tempfile.TemporaryDirectory(prefix="tg-")  # the path of a socket has to be short
        make_key(directory / "user_key")
        self._host_key = make_key(directory / "host_key")

    @property
    def host(self) -> str:
        """Where Ansible finds it: `USER@ADDRESS:PORT`."""
        return f"{getpass.getuser()}@{ADDRESS}:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._sockets.cleanup()

    def start(self) -> None:
        """Listen: on a free port the first time, on the same one from then on.

        Raises:
            ServerError: it does not start; the text holds what it says.
        """
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # what the system's own service makes
        failure = ""
        for _ in range(_TRIES):
            port = self.port or _free_port()
            failure = self._listen(port)
            if not failure:
                self.port = port
                self.known_hosts.write_text(self.entry(self._host_key))
                return
            if "Address already in use" not in failure:
                break
        raise ServerError(f"the SSH server of this machine does not start: {failure}")

    def stop(self) -> None:
        """End the server and its sessions at once, as a crash does. What they have started is left to itself."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGSTOP)  # from here on it takes nobody in
            for one in _family(process.pid):
                with suppress(psutil.NoSuchProcess):
                    one.kill()
        process.wait()

    def sessions(self) -> list[psutil.Process]:
        """Return the processes of the sessions, without those that they have started."""
        return _family(self._process.pid)[1:] if self._process is not None else []

    def entry(self, key: str) -> str:
        """Return the line of known hosts that says of a key that it is this server's."""
        return f"[{ADDRESS}]:{self.port} {key}"

    def environment(self, known_hosts: Path | None = None) -> dict[str, str]:
        """Return the variables with which a client that may come in is found first.

        Args:
            known_hosts: what the client knows, if that is not this server.
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
            wrapper.write_text(f'#!/bin/sh\nexec {_TOOLS[name]} -F {folder}/config "$@"\n')
            wrapper.chmod(0o755)
        # Over a connection that is open already, nothing would be checked.
        sockets = Path(self._sockets.name) / ("strangers" if known_hosts else "friends")
        path = os.pathsep.join([str(folder), os.environ.get("PATH", os.defpath)])
        return {"PATH": path, "ANSIBLE_SSH_CONTROL_PATH_DIR": str(sockets)}

    def _listen(self, port: int) -> str:
        """Start the server on a port, and return what it says if that fails."""
        config, log = self.directory / "sshd_config", self.directory / "sshd.log"
        config.write_text(
            f"{self._options}Port {port}\nListenAddress {ADDRESS}\nHostKey {self.directory}/host_key\nPidFile none\n"
            f"AuthorizedKeysFile {self.directory}/user_key.pub\nStrictModes no\nUsePAM no\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n"
            "MaxSessions 1000\nMaxStartups 1000\nSubsystem sftp internal-sftp\n"
            f"SetEnv PATH={self._path} HOME={self.directory}\n"
        )
        command = [str(_TOOLS["sshd"]), "-f", str(config)]
        if subprocess.run([*command, "-t", "-o", _PATIENT.strip()], capture_output=True, check=False).returncode == 0:
            config.write_text(config.read_text() + _PATIENT)
        log.write_text("")
        self._process = subprocess.Popen([*command, "-D", "-E", str(log)])
        deadline = time.monotonic() + _START_SECONDS
        while f"Server listening on {ADDRESS}" not in log.read_text():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                return log.read_text() or f"it does not listen within {_START_SECONDS:g} s"
            time.sleep(_LOOK_SECONDS)
        return ""


def make_key(file: Path) -> str:
    """Make a key, and return its public half."""
    subprocess.run([str(_TOOLS["ssh-keygen"]), "-q", "-t", "ed25519", "-N", "", "-f", str(file)], check=True)
    return file.with_suffix(".pub").read_text()


def _family(pid: int) -> list[psutil.Process]:
    """Return a server with its sessions: they are of its name, and what they have started is not."""
    found = [psutil.Process(pid)]
    for process in found:
        with suppress(psutil.NoSuchProcess):
            found += [child for child in process.children() if child.name().startswith("sshd")]
    return found


@contextmanager
def serving(directory: Path, *, options: str = "") -> Iterator[Server]:
    """Run a server for a test, which is skipped if no server can be started here."""
    try:
        with Server(directory, options=options) as server:
            yield server
    except ServerError as error:
        pytest.skip(str(error))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((ADDRESS, 0))
        port: int = probe.getsockname()[1]
        return port
