"""Starts an inference server by its command, and ends it with all its processes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from toolbox.ground.kit import exit_codes, process_tree

from .ports import is_free
from .server_log import LogPipe, ServerLog

_PORT_IN_USE: Final = ("address already in use", "address in use", "eaddrinuse", "port is already in use")


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
                preexec_fn=process_tree.die_with_parent,  # a worker that is killed cannot end the server
            )
        except BaseException:
            pipe.close()
            raise
        finally:
            pipe.close_inlet()
        return cls(process, log, pipe)

    async def _wait(self) -> None:
        await self._process.wait()
        process_tree.kill_group(self._process.pid)  # the processes that it has left
        self._pipe.close()
        if not self.ended.done():
            self.ended.set_result(f"the server ended with status {self._status_text}")

    @property
    def exit_status(self) -> int | None:
        """The exit status of the server, 128 and the number of a signal that ended it, or None while it runs."""
        status = self._process.returncode
        return None if status is None else exit_codes.from_returncode(status)

    @property
    def _status_text(self) -> str:
        status = self._process.returncode or 0
        return f"{self.exit_status} ({exit_codes.signal_name(-status)})" if status < 0 else str(self.exit_status)

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
            process_tree.kill_group(self._process.pid)
        await self._waiting

    def could_not_listen(self, ports: Sequence[int]) -> bool:
        """Tell whether a server that has ended found one of its ports taken by another program."""
        text = "\n".join(self.log.tail(200)).lower()
        return any(not is_free(port) for port in ports) or any(sign in text for sign in _PORT_IN_USE)
