"""Starts servers that execute requests in forks (`toolbox.agent.fork_server`), and sends requests to them."""

from __future__ import annotations

import array
import json
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any, Final

from toolbox.agent import fork_server
from toolbox.system import processes, signals

SOCKET: Final = "requests.sock"
"""The name of a server's socket in the directory of the server."""
_START_SECONDS: Final = 60.0


class Refused(OSError):
    """The server cannot execute the request, or does not answer."""


class ForkServer:
    """A server, which is started by `start` or `launch`. The requests of other processes wait for this.

    Args:
        args: the program and its arguments. The program gets the number of a descriptor as its last argument.
        env: the environment variables of the server.
        directory: a private directory for the socket, and for the messages of the server.
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
                    self._process = processes.start_server(args, self._env, messages, keep=number)

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


class Connection:
    """The connection of one request. A fork ends if its connection is closed before.

    Args:
        path: the socket of the server.
        message: the JSON object of the request, with the fields `env` and `cwd` if the fork must get the state of this
            process.
        streams: the descriptors of three open files.

    Raises:
        Refused: the server has ended, does not answer, or cannot execute the request.
    """

    def __init__(self, path: Path | str, message: Mapping[str, Any], payload: bytes, streams: Sequence[int]) -> None:
        state = fork_server.client_state() if "env" in message else {}
        content = memoryview(fork_server.encode({**message, **state}, payload))
        self.lost: str | None = None
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.settimeout(_START_SECONDS)
            self._socket.connect(str(path))
            with suppress(ConnectionError):  # the answer tells why the server has closed the connection
                sent = self._socket.sendmsg(
                    [content[: 1 << 14]], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", streams))]
                )
                self._socket.sendall(content[sent:])
            self._answers = self._socket.makefile("rb")
            self._await_start()
            answer = self._answer()
            if answer is not None and "pid" in answer:
                self._socket.sendall(fork_server.CONFIRMATION)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise Refused(f"the server of forks does not answer: {error}") from None
            raise
        if answer is None or "pid" not in answer:
            self.close()
            raise Refused((answer or {}).get("refused", "the server of forks has ended"))
        self.pid: int = answer["pid"]

    def status(self, timeout: float | None = None) -> int | None:
        """Wait for the end of the process, and return its status, as `os.waitpid` does. None if the time is over.

        If the server was killed, the status is that of SIGKILL, and `lost` becomes the reason, which may be empty.
        """
        if not self._is_readable(timeout):
            return None
        answer = self._answer() or {}
        self.close()
        status = answer.get("status")
        if isinstance(status, int) and 0 <= status < 1 << 16 and (os.WIFEXITED(status) or os.WIFSIGNALED(status)):
            return status
        self.lost = str(answer.get("refused", ""))
        return int(signal.SIGKILL)

    def close(self) -> None:
        """Close the connection."""
        if hasattr(self, "_answers"):
            self._answers.close()
        self._socket.close()

    def _await_start(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not self._is_readable(signals.WAIT_SECONDS):
            signals.check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"no answer after {_START_SECONDS:g} s")

    def _is_readable(self, timeout: float | None) -> bool:
        poll = select.poll()  # `select.select` is limited to 1,024 descriptors
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(None if timeout is None else timeout * 1000))

    def _answer(self) -> dict[str, Any] | None:
        try:
            line = self._answers.readline()
            answer = json.loads(line)
        except (ConnectionResetError, ValueError, RecursionError):  # the answer may come from another machine
            return None
        return answer if isinstance(answer, dict) else None


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
