"""Kernels of a Jupyter server for notebooks: their connection, their end, and samples of their resource use.

A Jupyter server restarts a kernel that died, and announces it. It does not report the exit status. The cgroup of a
server in a container counts the processes that were killed because memory was exhausted. If this count has grown when a
kernel died, the kernel was probably one of these processes.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from toolbox.features.notebooks.worker import server_helper, use_sampler
from toolbox.features.notebooks.worker.execution_place import Ended, PlaceError
from toolbox.features.notebooks.worker.notebook_results import Fault
from toolbox.features.notebooks.worker.server_channels import KernelSocket, ServerKernelClient
from toolbox.features.notebooks.worker.server_rest import ReplyError, ServerRest, quoted
from toolbox.features.notebooks.worker.time_limits import STOP_SECONDS

_ROW: Final = re.compile(r"[0-9a-z_.,]{1,4000}")
_MAX_ROWS: Final = 1_000_000
_DAY: Final = 86400.0
_DIED: Final = "the kernel died, and the Jupyter server restarted it; the exit status is unknown"


@dataclass
class ServerKernel:
    """A kernel for a notebook. Implements `RunningKernel`.

    Args:
        process: the id of the process of the kernel on the server; None if the kernel is not a Python kernel.
        helper_kernel: the name of a Python kernel for the sampler; None if the server has none.
        was_out_of_memory: returns whether a process on the server has been killed because it exceeded the memory.
    """

    rest: ServerRest
    kernel_id: str
    directory: str
    process: int | None
    helper_kernel: str | None
    was_out_of_memory: Callable[[], bool]
    _sockets: list[KernelSocket] = field(default_factory=list)
    _ended: Ended | None = None

    @property
    def manager(self) -> Any:
        """The kernel manager for nbclient."""
        return ServerKernelManager(self)

    def ended(self) -> Ended | None:
        """Return how the kernel ended; None while it runs."""
        if self._ended is None:
            for socket in self._sockets:
                if socket.has_ended:
                    self._ended = self._death()
                elif socket.lost:
                    self._ended = Ended(None, fault=Fault.SERVER, message=socket.lost)
        return self._ended

    def _death(self) -> Ended:
        if self.was_out_of_memory():
            message = "a process on the Jupyter server was killed because it exceeded the memory of the server"
            return Ended(None, fault=Fault.OUT_OF_MEMORY, message=message)
        return Ended(None, fault=Fault.KERNEL_DIED, message=_DIED)

    def connect(self) -> ServerKernelClient:
        """Return a new client of the kernel."""
        client = ServerKernelClient(self.rest, self.kernel_id)
        self._sockets.append(client.socket)
        return client

    def interrupt(self, kernel_id: str) -> None:
        """Interrupt a kernel of the server, if the server answers."""
        with suppress(ReplyError, PlaceError):
            self.rest.content("POST", f"/api/kernels/{quoted(kernel_id)}/interrupt", {}, seconds=STOP_SECONDS)

    def close(self) -> None:
        """Close all connections to the kernel."""
        for socket in self._sockets:
            socket.close()

    @contextmanager
    def sampling(self, path: Path, seconds: float) -> Iterator[None]:
        """Write samples to a CSV file while the context is active. A second kernel of the server takes the samples.

        If the samples cannot be taken, the file has fewer rows, or does not exist.
        """
        if self.process is None or self.helper_kernel is None:
            yield
            return
        sampler = _Sampler(self, path, seconds)
        thread = threading.Thread(target=sampler.run, name="sampler", daemon=True)
        thread.start()
        try:
            yield
        finally:
            sampler.stop.set()
            thread.join()  # the thread ends soon: each of its requests has a deadline


class ServerKernelManager:
    """What nbclient needs of a kernel manager. The kernel runs already, and the place ends it."""

    def __init__(self, kernel: ServerKernel) -> None:
        self._kernel = kernel

    def client(self, **_: Any) -> ServerKernelClient:
        """Return a new client of the kernel."""
        return self._kernel.connect()

    async def interrupt_kernel(self) -> None:
        """Interrupt the running cell."""
        await asyncio.to_thread(self._kernel.interrupt, self._kernel.kernel_id)

    async def is_alive(self) -> bool:
        """Return whether the kernel runs."""
        return self._kernel.ended() is None

    async def shutdown_kernel(self, **_: Any) -> None:
        """Do nothing: the place shuts the kernel down."""


class _Sampler:
    """Takes samples with a separate kernel, and writes them to a file."""

    def __init__(self, kernel: ServerKernel, path: Path, seconds: float) -> None:
        self._kernel = kernel
        self._path = path
        self._seconds = seconds
        self._rest = ""
        self._rows = 0
        self.stop = threading.Event()

    def run(self) -> None:
        """Write samples until the end of sampling."""
        kernel = self._kernel
        assert kernel.helper_kernel is not None
        with (
            suppress(PlaceError, OSError),
            server_helper.session(kernel.rest, kernel.directory, "sampler", kernel.helper_kernel) as kernel_id,
            server_helper.dialog(kernel.rest, kernel_id) as dialog,
            self._path.open("w", encoding="ascii") as file,
        ):
            # The sampling program ends with its kernel.
            try:
                dialog.execute(self._code(), _DAY, on_output=lambda text: self._write(file, text), stop=self.stop)
            finally:
                kernel.interrupt(kernel_id)  # a server kills a busy kernel only after several seconds

    def _code(self) -> str:
        wait = "lambda seconds: bool(time.sleep(seconds))"
        call = f"use_sampler.sample({self._kernel.process}, sys.stdout, {self._seconds!r}, {wait})"
        return f"{use_sampler.program()}import sys, time\n{call}\n"

    def _write(self, file: Any, text: str) -> None:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            if _ROW.fullmatch(line) and self._rows < _MAX_ROWS:
                self._rows += 1
                file.write(f"{line}\n")
        file.flush()
