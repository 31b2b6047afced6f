"""Connects the worker to a kernel that runs. The connection is ready when the kernel has answered."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import zmq
import zmq.asyncio
from jupyter_client.manager import KernelManager
from jupyter_core.utils import ensure_async, run_sync
from zmq.utils.monitor import parse_monitor_message

from toolbox.features.notebooks.worker import failure_texts
from toolbox.features.notebooks.worker.execution_place import PlaceError, RunningKernel
from toolbox.features.notebooks.worker.failure_texts import one_line
from toolbox.features.notebooks.worker.notebook_results import Fault
from toolbox.features.notebooks.worker.time_limits import ACCEPT_SECONDS, READY_SECONDS

MESSAGE_BYTES: Final = 64 * 2**20  # by how much a message may exceed the output limit and still be received
_CONNECTION_ERRORS = (RuntimeError, OSError, TimeoutError, ValueError, KeyError, TypeError)


@dataclass(frozen=True)
class Connection:
    """A client of a kernel.

    Args:
        client: an asynchronous client of jupyter_client.
        language_info: what the kernel says about its language.
        monitor: a socket that reports when the connection for outputs was closed; None if the place has no such socket.
    """

    client: Any
    language_info: dict[str, Any]
    monitor: Any = None

    async def is_closed(self) -> bool:
        """Return whether the connection for outputs was closed."""
        return bool(self.monitor and await self.monitor.poll(0))

    async def is_accepted(self) -> bool:
        """Return whether the kernel accepts another connection for outputs."""
        socket = self.client.iopub_channel.socket
        probe = socket.context.socket(zmq.SUB)
        monitor = probe.get_monitor_socket(zmq.EVENT_CONNECTED | zmq.EVENT_CONNECT_RETRIED)
        try:
            probe.connect(socket.getsockopt_string(zmq.LAST_ENDPOINT))
            if not await monitor.poll(ACCEPT_SECONDS * 1000):
                return False
            return bool(parse_monitor_message(await monitor.recv_multipart())["event"] == zmq.EVENT_CONNECTED)
        finally:
            probe.disable_monitor()
            monitor.close(linger=0)
            probe.close(linger=0)

    @property
    def language(self) -> str:
        """The name of the kernel's language; empty if the kernel does not say."""
        name = self.language_info.get("name")
        return one_line(name.lower(), 50) if isinstance(name, str) else ""


@contextmanager
def connected(kernel: RunningKernel, output_bytes: int) -> Iterator[Connection]:
    """Connect to a kernel, and close the connection at the end of the context.

    If a message is much larger than the output limit, the sockets close the connection before they read the message.

    Raises:
        PlaceError: the kernel does not answer.
    """
    if not isinstance(kernel.manager, KernelManager):  # a Jupyter server, which has no sockets of ZeroMQ
        client = kernel.manager.client()
        try:
            yield Connection(client, run_sync(_language_info)(client, kernel))
        finally:
            run_sync(_stop)(client)
        return
    context = zmq.asyncio.Context()
    context.setsockopt(zmq.MAXMSGSIZE, output_bytes + MESSAGE_BYTES)
    client = kernel.manager.client(context=context)
    monitor: Any = None
    try:
        language_info = run_sync(_language_info)(client, kernel)
        monitor = client.iopub_channel.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        yield Connection(client, language_info, monitor)
    finally:
        if monitor:
            client.iopub_channel.socket.disable_monitor()
            monitor.close(linger=0)
        run_sync(_stop)(client)
        context.destroy(linger=0)


async def _stop(client: Any) -> None:
    await ensure_async(client.stop_channels())


async def _language_info(client: Any, kernel: RunningKernel) -> dict[str, Any]:
    try:
        await ensure_async(client.start_channels())
        await ensure_async(client.wait_for_ready(timeout=READY_SECONDS))
        client.allow_stdin = False  # so that `input()` raises an exception in the kernel instead of waiting
        content = (await _reply(client, await ensure_async(client.kernel_info())))["content"]
        language_info = content["language_info"]
    except _CONNECTION_ERRORS as error:
        raise _place_error(kernel, error) from None
    if not isinstance(language_info, dict):
        raise PlaceError(Fault.NO_KERNEL, "the kernel does not report which language it executes")
    return language_info


async def _reply(client: Any, request: str) -> dict[str, Any]:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        left = max(0.0, deadline - time.monotonic())
        message = await ensure_async(client.get_shell_msg(timeout=left))
        if message["parent_header"].get("msg_id") == request:
            return dict(message)


def _place_error(kernel: RunningKernel, error: Exception) -> PlaceError:
    ended = kernel.ended()
    if ended:
        end = failure_texts.end_of_kernel(ended)
        stderr = one_line(ended.stderr[-300:])
        return PlaceError(ended.fault or Fault.NO_KERNEL, f"{end} before it was ready{stderr and f': {stderr}'}")
    return PlaceError(Fault.NO_KERNEL, f"the kernel does not answer: {one_line(str(error) or repr(error))}")
