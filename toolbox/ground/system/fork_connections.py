"""Sends requests to servers that execute them in forks (`toolbox.ground.kit.fork_server`): one connection per request.

The module imports little, so that a program that only sends a request starts quickly.
"""

from __future__ import annotations

import array
import json
import os
import select
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from toolbox.ground.kit import fork_server
from toolbox.ground.system import signals

_START_SECONDS: Final = 60.0


class Refused(OSError):
    """The server cannot execute the request, or does not answer."""


class Connection:
    """The connection of one request. A fork is ended if its connection is closed before the fork has ended.

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
        except (ConnectionResetError, TimeoutError, ValueError, RecursionError):
            return None  # the answer may come from another machine
        return answer if isinstance(answer, dict) else None
