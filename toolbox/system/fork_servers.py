"""Starts servers that execute requests in forks (`toolbox.agent.fork_server`), and sends requests to them."""

from __future__ import annotations

import array
import json
import os
import select
import signal
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Final

from toolbox.agent import fork_server
from toolbox.system import processes

SOCKET: Final = "requests.sock"
"""The name of a server's socket in the directory of the server."""
_START_SECONDS: Final = 60.0


class Refused(Exception):
    """The server cannot execute the request, or does not answer."""


class ForkServer:
    """A running server.

    Args:
        args: the program and its arguments. The program gets the number of a descriptor as its last argument.
        env: the environment variables of the server.
        directory: a private directory for the socket, and for the messages of the server.
    """

    def __init__(self, args: Sequence[str], env: Mapping[str, str], directory: Path) -> None:
        self.path = directory / SOCKET
        self._messages = directory / "messages.log"
        variables = {**env, fork_server.RESERVED: "x" * fork_server.RESERVED_BYTES}
        with socket.socket(socket.AF_UNIX) as listener, self._messages.open("wb") as messages:
            listener.bind(str(self.path))
            listener.listen(socket.SOMAXCONN)
            number = listener.fileno()
            self._process = processes.start_server([*args, str(number)], variables, messages, keep=number)

    def start(self, message: Mapping[str, Any], env: Mapping[str, str], cwd: Path) -> ForkedProcess:
        """Start a process, whose standard input is empty.

        Raises:
            Refused: the server has ended, or cannot become the process.
        """
        with ExitStack() as stack, Path(os.devnull).open("rb") as nothing:
            streams = [nothing.fileno()]
            pipes = []
            for _ in ("stdout", "stderr"):
                read_end, write_end = os.pipe()
                stack.callback(os.close, write_end)
                streams.append(write_end)
                pipes.append(os.fdopen(read_end, "rb"))
            try:
                return ForkedProcess(
                    Connection(self.path, {**message, "env": dict(env), "cwd": str(cwd)}, b"", streams), *pipes
                )
            except Refused as error:
                for pipe in pipes:
                    pipe.close()
                raise Refused(f"{error}\n{self.messages()}".strip()) from None

    @property
    def was_killed(self) -> bool:
        """Whether a signal has ended the server. Its forks have ended too, but not the descendants of its forks."""
        return (self._process.poll() or 0) < 0

    def messages(self) -> str:
        """Return what the server has printed."""
        return self._messages.read_text(encoding="utf-8", errors="replace").strip()

    def close(self) -> None:
        """End the server, and the processes that it has started and that have not ended."""
        processes.stop_server(self._process)


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
            self._socket.connect(str(path))
            sent = self._socket.sendmsg(
                [content[: 1 << 14]], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", streams))]
            )
            self._socket.sendall(content[sent:])
            self._answers = self._socket.makefile("rb")
            answer = self._answer(_START_SECONDS)
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
        if not select.select([self._socket], [], [], timeout)[0]:
            return None
        answer = self._answer(None) or {}
        self.close()
        status = answer.get("status")
        if isinstance(status, int) and 0 <= status < 1 << 16:
            return status
        self.lost = str(answer.get("refused", ""))
        return int(signal.SIGKILL)

    def close(self) -> None:
        """Close the connection."""
        if hasattr(self, "_answers"):
            self._answers.close()
        self._socket.close()

    def _answer(self, timeout: float | None) -> dict[str, Any] | None:
        self._socket.settimeout(timeout)
        try:
            line = self._answers.readline()
            answer = json.loads(line)
        except (ConnectionResetError, ValueError, RecursionError):  # the answer may come from another machine
            return None
        return answer if isinstance(answer, dict) else None


class ForkedProcess:
    """A process that a server has forked, with the interface of `subprocess.Popen`."""

    def __init__(self, connection: Connection, stdout: IO[bytes], stderr: IO[bytes]) -> None:
        self.pid = connection.pid
        self.stdout = stdout
        self.stderr = stderr
        self.returncode: int | None = None
        self._connection = connection

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
