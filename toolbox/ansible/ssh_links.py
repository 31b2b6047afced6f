"""Executes modules on SSH hosts in forks of interpreters that run as long as the play.

The connection plugin `ssh` calls this module in the processes of a play. The first module for a host starts a link
(`ssh_relay`), whose socket the later processes find by its name. Nothing else is shared between the processes.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from toolbox.ansible import ssh_relay, warm_modules
from toolbox.ansible.warm_modules import Ended
from toolbox.ground.system import environ, processes
from toolbox.ground.system.context_values import ContextValue
from toolbox.targets import bootstrap

_END_SECONDS: Final = 10.0


class Links:
    """The links of one play.

    Args:
        directory: a private directory, which is removed at the end of the play.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        # Each link reads from one socket of the pair. It ends when this process shuts the other socket down, or when no
        # process of the play has the other socket any more.
        self._own_end, self._end_of_links = socket.socketpair()
        self._started: list[object] = []

    def execute(self, command: str, payload: bytes, ssh: Sequence[bytes]) -> Ended | None:
        """Execute the payload of a module on a host. Return None if Ansible has to execute the command.

        Args:
            command: the command of ansible-core, which reads the payload from its standard input.
            ssh: the command line that connects to the host, without the remote command.
        """
        interpreter = warm_modules.interpreter_of(command)
        if interpreter is None or not self._marker(ssh).exists():
            return None
        path = self._socket(ssh, interpreter)
        if not path.exists():  # otherwise the link was started before, and may have ended since
            try:
                self._start(path, [*ssh, _remote_command(interpreter).encode()])
            except OSError:
                return None
        return warm_modules.request(str(path), {"interpreter": interpreter}, payload)

    def allow(self, ssh: Sequence[bytes]) -> None:
        """Allow a link to a host, because a command has reached the host. So an unreachable host costs no attempt."""
        self._marker(ssh).touch()

    def end(self, ssh: Sequence[bytes]) -> None:
        """End the links to a host after their running modules. A new link is allowed after the next command that
        reaches the host.
        """
        self._marker(ssh).unlink(missing_ok=True)
        for path in self._directory.glob(f"{self._marker(ssh).name}-*"):
            with socket.socket(socket.AF_UNIX) as connection, suppress(OSError):  # the link has ended
                connection.connect(str(path))
                connection.sendall(ssh_relay.END)
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """End all links, and wait for their ends."""
        self._end_of_links.close()
        with self._own_end, suppress(OSError):  # the time is over
            self._own_end.shutdown(socket.SHUT_WR)
            self._own_end.settimeout(_END_SECONDS)
            self._own_end.recv(1)

    def _marker(self, ssh: Sequence[bytes]) -> Path:
        return self._directory / _digest(b"\0".join(ssh))

    def _socket(self, ssh: Sequence[bytes], interpreter: str) -> Path:
        return self._directory / f"{self._marker(ssh).name}-{_digest(interpreter.encode())}"

    def _start(self, path: Path, ssh: Sequence[bytes]) -> None:
        """Start a link. Only one process can create the socket.

        Raises:
            OSError: another process has created the socket, or a program cannot be started.
        """
        env = environ.everything()
        with ExitStack() as stack:
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(path))
            listener.listen(socket.SOMAXCONN)

            def pipe() -> tuple[int, int]:
                ends = os.pipe()
                for end in ends:
                    stack.callback(os.close, end)
                return ends

            (stdin, sink), (source, stdout), (errors, stderr) = pipe(), pipe(), pipe()
            process = processes.start_connected(ssh, env, [stdin, stdout, stderr])
            keep = [listener.fileno(), sink, source, errors]
            args = [sys.executable, str(ssh_relay.__file__), *map(str, [*keep, process.pid])]
            nothing = os.open(os.devnull, os.O_WRONLY)
            stack.callback(os.close, nothing)
            link = processes.start_connected(args, env, [self._end_of_links.fileno(), nothing, nothing], keep=keep)
            self._started += [process, link]


current: Final[ContextValue[Links]] = ContextValue("ssh_links")
"""The links of this play."""


@contextmanager
def opened(directory: Path) -> Iterator[None]:
    """Make links possible for the play in the body, which ends them."""
    directory.mkdir(mode=0o700)
    with closing(Links(directory)) as links, current.entered_by_process(links):
        yield


def _remote_command(interpreter: str) -> str:
    """Return a command that starts the interpreter as the command of ansible-core does."""
    return f"/bin/sh -c {shlex.quote(bootstrap.shell_command(interpreter) + ' && sleep 0')}"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]
