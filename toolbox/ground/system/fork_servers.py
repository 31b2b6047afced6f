"""Starts servers that execute requests in forks (`toolbox.ground.kit.fork_server`), and the processes of requests."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Final

from toolbox.ground.kit import fork_server
from toolbox.ground.system import processes, signals
from toolbox.ground.system.fork_connections import Connection, Refused

SOCKET: Final = "requests.sock"
"""The name of a server's socket in the directory of the server."""


class ForkServer:
    """A server, which is started by `start` or `launch`. The requests of other processes wait for this.

    Args:
        args: the program and its arguments. The program gets the number of a descriptor as its last argument.
        env: the environment variables of the server.
        directory: a private directory for the socket and the messages of the server, and its working directory.
    """

    def __init__(self, args: Sequence[str], env: Mapping[str, str], directory: Path) -> None:
        self.path = directory / SOCKET
        self._args = list(args)
        self._env = {**env, fork_server.RESERVED: "x" * fork_server.RESERVED_BYTES}
        self._messages = directory / "messages.log"
        self._messages.touch()
        self._lock = threading.Lock()
        self._process: processes.Server | None = None
        self._listener = socket.socket(socket.AF_UNIX)
        try:
            self._listener.bind(str(self.path))
            self._listener.listen(socket.SOMAXCONN)
        except BaseException:
            self._listener.close()
            raise

    def launch(self) -> None:
        """Start the server, unless it was started or closed before.

        Raises:
            OSError: the program cannot be started. All requests are refused from now on.
        """
        with self._lock, self._listener:
            number = self._listener.fileno()
            if number >= 0:
                with self._messages.open("wb") as messages:
                    args = [*self._args, str(number)]
                    directory = self.path.parent
                    self._process = processes.start_server(args, self._env, directory, messages, keep=number)

    def start(self, message: Mapping[str, Any], env: Mapping[str, str], cwd: Path) -> ForkedProcess:
        """Start a process, whose standard input is empty.

        Raises:
            OSError: the server cannot be started, has ended, or cannot become the process.
        """
        self.launch()
        try:
            return ForkedProcess(self.path, {**message, "env": dict(env), "cwd": str(cwd)})
        except Refused as error:
            raise Refused(f"{error}\n{self.messages()}".strip()) from None

    @property
    def was_killed(self) -> bool:
        """Whether a signal has ended the server. Its forks have ended too, but not the descendants of its forks."""
        return self._process is not None and (self._process.poll() or 0) < 0

    def messages(self) -> str:
        """Return what the server has printed."""
        return self._messages.read_text(encoding="utf-8", errors="replace").strip()

    def close(self) -> None:
        """End the server, and the processes that it has started and that have not ended."""
        with signals.deferred(), self._lock, self._listener:
            process = self._process
        if process is not None:
            processes.stop_server(process)


class ForkedProcess:
    """A process that a server has forked, with the interface of `subprocess.Popen`. Its standard input is empty.

    Args:
        path: the socket of the server.
        message: see `Connection`.

    Raises:
        OSError: the server has ended, does not answer, or cannot execute the request.
    """

    def __init__(self, path: Path | str, message: Mapping[str, Any], payload: bytes = b"") -> None:
        self.returncode: int | None = None
        with ExitStack() as ours, ExitStack() as theirs:
            streams: list[IO[bytes]] = [theirs.enter_context(Path(os.devnull).open("rb"))]
            self.stdout, self.stderr = (_pipe(ours, theirs, streams) for _ in ("stdout", "stderr"))
            self._connection = Connection(path, message, payload, [stream.fileno() for stream in streams])
            self.pid = self._connection.pid
            ours.pop_all()

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process, and return its exit code: negative for a signal.

        Raises:
            TimeoutExpired: the process has not ended after `timeout` seconds.
        """
        if self.returncode is None:
            status = self._connection.status(timeout)
            if status is None:
                raise processes.TimeoutExpired(str(self.pid), timeout or 0)
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    @property
    def lost(self) -> str | None:
        """Why the server has ended before the process, which may be empty; None if the server has not ended."""
        return self._connection.lost

    def close(self) -> None:
        """Close the pipes and the connection. This ends the process if it is still running."""
        self.stdout.close()
        self.stderr.close()
        self._connection.close()


def _pipe(ours: ExitStack, theirs: ExitStack, streams: list[IO[bytes]]) -> IO[bytes]:
    """Make a pipe, append its write end to `streams`, and return its read end."""
    read_end, write_end = os.pipe()
    streams.append(theirs.enter_context(os.fdopen(write_end, "wb")))
    return ours.enter_context(os.fdopen(read_end, "rb"))
