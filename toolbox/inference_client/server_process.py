"""Starts an inference server by its command, and ends it with all its processes."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from .ports import is_free
from .server_log import LogPipe, ServerLog

_SIGNALLED: Final = 128
_SET_DEATH_SIGNAL: Final = 1  # PR_SET_PDEATHSIG of linux/prctl.h
_LIBC: Final = ctypes.CDLL(None) if sys.platform == "linux" else None
_PORT_IN_USE: Final = ("address already in use", "address in use", "eaddrinuse", "port is already in use")


def _die_with_worker() -> None:
    """Let Linux kill this process when the worker is killed, because the worker then cannot end the server."""
    if _LIBC is not None:
        _LIBC.prctl(_SET_DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0)


class ServerProcess:
    """A server that runs in a process group of its own.

    Args:
        log: gets its output from the pipe, until the server ends.
    """

    def __init__(self, process: asyncio.subprocess.Process, log: ServerLog, pipe: LogPipe) -> None:
        self._process = process
        self.log = log
        self._pipe = pipe
        self._is_stopping = False
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()  # its result says how
        self._waiting = asyncio.ensure_future(self._wait())

    @classmethod
    async def start(cls, command: Sequence[str], environment: Mapping[str, str], log: ServerLog) -> ServerProcess:
        """Start a command that writes to a log. Raise OSError if there is no such program."""
        pipe = LogPipe(log)
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=pipe.inlet,
                stderr=pipe.inlet,
                env=dict(environment),
                start_new_session=True,
                preexec_fn=_die_with_worker,
            )
        except BaseException:
            pipe.close()
            raise
        finally:
            pipe.close_inlet()
        return cls(process, log, pipe)

    async def _wait(self) -> None:
        await self._process.wait()
        self._kill_group()  # the processes that it has left
        self._pipe.close()
        if not self.ended.done():
            self.ended.set_result(f"the server ended with status {self._status_text}")

    @property
    def exit_status(self) -> int | None:
        """The exit status of the server, 128 and the number of a signal that ended it, or None while it runs."""
        status = self._process.returncode
        return status if status is None or status >= 0 else _SIGNALLED - status

    @property
    def _status_text(self) -> str:
        names = {-int(number): number.name for number in signal.Signals}
        name = names.get(self._process.returncode or 0)
        return f"{self.exit_status} ({name})" if name else str(self.exit_status)

    @property
    def died(self) -> bool:
        """Whether the server has ended although `stop` was not called."""
        return self._process.returncode is not None and not self._is_stopping

    async def stop(self, grace_seconds: float) -> None:
        """End the server with SIGTERM, and after the grace period kill its process group."""
        self._is_stopping = self._is_stopping or self._process.returncode is None
        with suppress(ProcessLookupError):
            self._process.terminate()
        try:
            await asyncio.wait({self._waiting}, timeout=grace_seconds)
        finally:
            self._kill_group()
        await self._waiting

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def could_not_listen(self, ports: Sequence[int]) -> bool:
        """Tell whether a server that has ended found one of its ports taken by another program."""
        text = "\n".join(self.log.tail(200)).lower()
        return any(not is_free(port) for port in ports) or any(sign in text for sign in _PORT_IN_USE)
