"""Runs programs for the worker, with a time limit and a limit for the output, and kills the whole process group.

This module starts all programs of the worker except kernels. It cannot use `toolbox.ground.system`, which is not sent
to targets.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from toolbox.ground.kit import process_tree

from . import leftover_processes
from .notebook_results import Fault
from .time_limits import END_SECONDS

_CHUNK: Final = 1 << 16


@dataclass(frozen=True)
class ProgramEnd:
    """How a program ended.

    Args:
        status: the exit status; negative for a signal.
        fault: TIMEOUT or TOO_MUCH_OUTPUT if the worker killed the program; None if it ended by itself.
    """

    status: int
    stdout: bytes
    stderr: bytes
    fault: Fault | None = None


@leftover_processes.killed()
def run(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
    timeout: float | None = None,
    output_bytes: int | None = None,
    receive: Callable[[bytes], None] | None = None,
    files: Sequence[int] = (),
) -> ProgramEnd:
    """Run a program in a new process group. When the program has ended, kill the group and all processes that it left.

    Args:
        environment: the environment variables; by default, those of the worker.
        output_bytes: the limit for stdout and stderr together.
        receive: called with each piece of the output of both streams. The result then contains no output.
        files: open files that the program inherits.

    Raises:
        OSError: the program cannot be started.
    """
    process = subprocess.Popen(
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if receive is None else subprocess.STDOUT,
        env=None if environment is None else dict(environment),
        cwd=directory,
        pass_fds=files,
        start_new_session=True,
    )
    output = _Output(output_bytes, receive)
    try:
        fault = output.read(process, None if timeout is None else time.monotonic() + timeout)
    finally:
        process.wait()
        for pipe in filter(None, (process.stdout, process.stderr)):
            pipe.close()
    return ProgramEnd(process.returncode, bytes(output.stdout), bytes(output.stderr), fault)


class _Output:
    """The output of a program, read until the program ends or exceeds a limit. Then the process group is killed."""

    def __init__(self, limit: int | None, receive: Callable[[bytes], None] | None) -> None:
        self.stdout = bytearray()
        self.stderr = bytearray()
        self._limit = limit
        self._receive = receive

    def read(self, process: subprocess.Popen[bytes], deadline: float | None) -> Fault | None:
        """Read until the process has ended. Do not wait for its child processes, which may keep the pipes open."""
        ended, inlet = os.pipe()
        waiting = threading.Thread(target=_close_after, args=(process.pid, inlet), daemon=True)
        waiting.start()
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(ended, selectors.EVENT_READ, None)
                for pipe, kept in ((process.stdout, self.stdout), (process.stderr, self.stderr)):
                    if pipe is not None:
                        os.set_blocking(pipe.fileno(), False)
                        selector.register(pipe, selectors.EVENT_READ, (pipe, kept))
                return self._read_until_end(selector, ended, deadline, process.pid)
        finally:
            process_tree.kill_group(process.pid)  # no other group has this ID yet, because the process is not reaped
            waiting.join()
            os.close(ended)

    def _read_until_end(
        self, selector: selectors.BaseSelector, ended: int, deadline: float | None, group: int
    ) -> Fault | None:
        has_ended = False
        while True:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0 and not has_ended:
                return Fault.TIMEOUT
            events = selector.select(0 if has_ended else left)
            readable = [key for key, _ in events if key.data is not None]
            if has_ended and not readable:
                return None
            for key in readable:
                if not self._take(*key.data):
                    selector.unregister(key.fileobj)
            if self._limit is not None and len(self.stdout) + len(self.stderr) > self._limit:
                return Fault.TOO_MUCH_OUTPUT
            if any(key.data is None for key, _ in events):
                has_ended = True
                process_tree.kill_group(group)  # child processes of the program could continue to write
                selector.unregister(ended)

    def _take(self, pipe: IO[bytes], kept: bytearray) -> bool:
        """Read the available output of a pipe, and return whether the pipe is still open."""
        try:
            data = os.read(pipe.fileno(), _CHUNK)
        except BlockingIOError:
            return True
        if self._receive is None:
            kept += data
        elif data:
            self._receive(data)
        return bool(data)


def _close_after(pid: int, inlet: int) -> None:
    """Close a pipe when a process has ended. The main thread reaps the process."""
    with suppress(ChildProcessError):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    os.close(inlet)


@contextmanager
def background(command: Sequence[str]) -> Iterator[None]:
    """Run a program while the context is active. The program must end when its standard input ends."""
    process = subprocess.Popen(
        list(command),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process_tree.kill_group(process.pid)
            process.wait()
