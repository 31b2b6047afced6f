"""The connection to a kernel of a Jupyter server: one websocket, over which the messages of all channels go.

A thread reads and writes the websocket, so that pings are answered even if no code waits for messages. If the
connection breaks, the thread opens it again with the same session. The server has kept the messages of the kernel for
this session.

This is the protocol of https://jupyter-server.readthedocs.io/en/latest/developers/websocket-protocols.html, in its
oldest version, which every server supports.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from jupyter_client.asynchronous.client import AsyncKernelClient

from toolbox.features.notebooks.worker import server_messages
from toolbox.features.notebooks.worker.cell_outputs import DROPPED
from toolbox.features.notebooks.worker.execution_place import PlaceError
from toolbox.features.notebooks.worker.failure_texts import one_line
from toolbox.features.notebooks.worker.message_channel import Channel
from toolbox.features.notebooks.worker.server_messages import KernelSession
from toolbox.features.notebooks.worker.server_rest import ReplyError, ServerRest, quoted
from toolbox.features.notebooks.worker.time_limits import CONNECT_SECONDS

"""How long the thread tries to open a broken connection again, in seconds."""
_PING_SECONDS: Final = 15.0
_CLOSE_SECONDS: Final = 2.0
_PROBE_SECONDS: Final = 3.0  # between two requests that show whether the kernel was restarted
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
_LARGEST_MESSAGE: Final = 1 << 28
_MAX_WAITING: Final = 256 << 20  # bytes of unread messages; messages that are not outputs may have twice as many
_MESSAGE_TOO_BIG: Final = 1009  # the code with which tornado closes a connection at a message that is too large
_PROBE: Final = "topgallant-probe-"
_ENDING: Final = frozenset({"restarting", "autorestarting", "dead"})
_CHANNELS: Final = ("shell", "iopub", "stdin", "control")


class KernelSocket:
    """A connection to a kernel.

    Args:
        session: the name of the session, under which the server keeps messages while the connection is broken.
    """

    def __init__(self, rest: ServerRest, kernel: str, session: str) -> None:
        self._rest = rest
        self._kernel = kernel
        self._session = session
        self._url = _websocket_url(rest, kernel, session)
        self.has_ended = ""  # the state that the server announced when the kernel died or was restarted; empty before
        self.lost = ""  # why the connection cannot be opened again; empty while it exists
        self.drops = 0
        self._has_dropped_outputs = False
        self._kernel_session = KernelSession(session)
        self._probe = ""  # the id of the question that the kernel has not answered
        self._request = ""  # the id of the latest request of the client
        self._delivered = 0  # messages
        self._awaited: set[str] = set()  # what the kernel has not sent about this request: "reply", "idle"
        self._loop = asyncio.new_event_loop()
        self._outgoing: asyncio.Queue[str] = asyncio.Queue()
        self._is_closed = False
        self._main: asyncio.Task[None] | None = None
        self._is_connected = threading.Event()
        self.channels: Mapping[str, Channel] = {name: Channel(self._sender(name)) for name in _CHANNELS}
        self._thread = threading.Thread(target=self._run, name="kernel-socket", daemon=True)
        self._thread.start()

    def wait_until_connected(self, seconds: float = CONNECT_SECONDS) -> bool:
        """Wait for the first connection, and return whether it was opened."""
        return self._is_connected.wait(seconds) and not self.lost

    def close(self) -> None:
        """Close the connection. The kernel continues to run."""
        if self._is_closed:
            return
        self._is_closed = True
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._cancel)
        self._thread.join()

    def _cancel(self) -> None:
        if self._main is not None:
            self._main.cancel()

    def _sender(self, channel: str) -> Any:
        def send(message: dict[str, Any]) -> None:
            document = {**message, "channel": channel, "buffers": []}
            text = json.dumps(document, default=_time)
            if channel == "shell":
                self._awaited, self._request = {"reply", "idle"}, message["header"]["msg_id"]
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._outgoing.put_nowait, text)

        return send

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._main = self._loop.create_task(self._stay_connected())
            if not self._is_closed:
                self._loop.run_until_complete(self._main)
        except asyncio.CancelledError:
            pass
        except Exception as error:  # noqa: BLE001 - `lost` tells the waiting threads
            self.lost = self.lost or f"the connection failed: {one_line(repr(error))}"
        finally:
            self._is_connected.set()
            self._end_loop()

    def _end_loop(self) -> None:
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    async def _stay_connected(self) -> None:
        pause, since = _FIRST_PAUSE, time.monotonic()
        while True:
            try:
                if await self._converse() and not self.lost:
                    self.drops += 1
                    pause, since = _FIRST_PAUSE, time.monotonic()
                reason = "the server has closed the connection"
            except Exception as error:  # noqa: BLE001 - tornado raises errors of many kinds
                reason = one_line(str(error)) or type(error).__name__
            if self.has_ended or self.lost:
                return
            if gone := await asyncio.to_thread(self._gone):
                self.lost = gone
                return
            if time.monotonic() - since > CONNECT_SECONDS:
                self.lost = f"the websocket of the kernel cannot be opened: {reason}".replace(
                    self._rest.access.token, "***"
                )
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _is_idle(self) -> bool:
        """Return whether the server says that the kernel executes nothing."""
        with contextlib.suppress(ReplyError, PlaceError, TypeError, KeyError):
            return bool(self._model(_PROBE_SECONDS)["execution_state"] == "idle")
        return False

    def _model(self, seconds: float) -> Any:
        return self._rest.json("GET", f"/api/kernels/{quoted(self._kernel)}", seconds=seconds)

    def _gone(self) -> str:
        """Return why the kernel can no longer be reached; empty if the server still has the kernel."""
        try:
            self._model(CONNECT_SECONDS)
        except ReplyError as error:
            return f"the Jupyter server no longer has the kernel: {error}"
        except PlaceError as error:
            return str(error)
        return ""

    async def _converse(self) -> bool:
        """Open the websocket, and exchange messages until it ends. Return True if it was opened."""
        from tornado.httpclient import HTTPRequest
        from tornado.websocket import websocket_connect

        access = self._rest.access
        request = HTTPRequest(
            self._url,
            headers=access.headers,
            connect_timeout=CONNECT_SECONDS,
            request_timeout=CONNECT_SECONDS,
            ca_certs=access.ca_file,
            follow_redirects=False,
        )
        socket = await websocket_connect(
            request, ping_interval=_PING_SECONDS, ping_timeout=_PING_SECONDS, max_message_size=_LARGEST_MESSAGE
        )
        self._watch_size(socket)
        self._is_connected.set()
        tasks = [asyncio.ensure_future(work) for work in (self._write(socket), self._ask(socket))]
        try:
            while (content := await socket.read_message()) is not None:
                self._take(content)
            socket.close()
        except BaseException:
            await _close(socket)
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return True

    async def _write(self, socket: Any) -> None:
        while True:
            text = await self._outgoing.get()
            try:
                await socket.write_message(text)
            except Exception:
                self._outgoing.put_nowait(text)  # for the next connection
                raise

    async def _ask(self, socket: Any) -> None:
        """Request information from the kernel repeatedly, because a server does not announce a restart by a client.

        Each reply contains the session of the kernel. A restarted kernel has another session. Kernels answer on this
        channel while they execute a cell, or else after the cell.
        """
        self._probe, before = "", None
        while True:
            await asyncio.sleep(_PROBE_SECONDS)
            if self.drops and self._awaited and await asyncio.to_thread(self._is_idle):
                if before == (self._request, self._delivered):
                    self.lost = "the connection to the Jupyter server broke, and the end of the cell was lost"
                    socket.close()
                before = self._request, self._delivered
            if not self._probe:
                self._probe = f"{_PROBE}{uuid.uuid4().hex}"
                await socket.write_message(json.dumps(server_messages.kernel_info_request(self._session, self._probe)))

    def _take(self, content: str | bytes) -> None:
        """Put a message into its channel. Ignore a message that violates the protocol."""
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError, struct.error):
            message = server_messages.decoded(content)
            channel = self.channels[message.pop("channel")]
            header, request = message["header"], str(message["parent_header"].get("msg_id"))
            message["msg_type"], message["msg_id"] = header["msg_type"], header["msg_id"]
            state = message["content"].get("execution_state") if message["msg_type"] == "status" else None
            if self._kernel_session.is_other(header.get("session")) or state in _ENDING:
                self.has_ended = state if state in _ENDING else "restarting"
            if request == self._request:
                self._awaited.discard(
                    "idle" if state == "idle" else "reply" if message["msg_type"].endswith("_reply") else ""
                )
            if request.startswith(_PROBE):
                self._probe = "" if message["msg_type"] == "kernel_info_reply" else self._probe
                return
            if limit := server_messages.exceeded_limit(message, self._session):
                message[DROPPED] = (
                    f"the Jupyter server dropped outputs that exceeded its limit `{limit}`: print less, or raise the "
                    "limit in the configuration of the server"
                )
            self._deliver(channel, message, len(content))

    def _deliver(self, channel: Channel, message: dict[str, Any], size: int) -> None:
        """Add a message to its channel, unless the messages that wait there are too large."""
        self._delivered += 1
        is_output = channel is self.channels["iopub"] and message["msg_type"] != "status"
        waiting = sum(each.waiting_bytes for each in self.channels.values())
        if waiting <= (_MAX_WAITING if is_output else 2 * _MAX_WAITING):
            channel.put(message, size)
        else:
            self._report_drop("the kernel sent outputs faster than the worker could read them")

    def _report_drop(self, reason: str) -> None:
        """Add a message to the outputs that says that some outputs are missing."""
        if not self._has_dropped_outputs:
            self._has_dropped_outputs = True
            content = {"name": "stderr", "text": ""}
            self.channels["iopub"].put(
                {"msg_type": "stream", "header": {}, "parent_header": {}, "content": content, DROPPED: reason}, 0
            )

    def _watch_size(self, socket: Any) -> None:
        """Report a message that is too large for the connection, because tornado only closes the connection."""
        close = socket.protocol.close

        def closing(code: int | None = None, reason: str | None = None) -> None:
            if code == _MESSAGE_TOO_BIG and reason:
                self._report_drop(f"a message of the kernel is larger than {_LARGEST_MESSAGE >> 20} MiB")
            close(code, reason)

        socket.protocol.close = closing


class ServerKernelClient(AsyncKernelClient):
    """A client of jupyter_client whose channels are those of a websocket.

    Args:
        kernel: the id of the kernel.
    """

    def __init__(self, rest: ServerRest, kernel: str) -> None:
        super().__init__()
        self.socket = KernelSocket(rest, kernel, self.session.session)
        self.allow_stdin = False

    def start_channels(self, *_: Any, **__: Any) -> None:
        """Do nothing, because the connection exists."""

    def stop_channels(self) -> None:
        """Close the connection."""
        self.socket.close()

    @property
    def channels_running(self) -> bool:
        """Whether the connection exists."""
        return not self.socket.lost

    @property
    def shell_channel(self) -> Any:
        """The channel for requests."""
        return self.socket.channels["shell"]

    @property
    def iopub_channel(self) -> Any:
        """The channel for outputs."""
        return self.socket.channels["iopub"]

    @property
    def stdin_channel(self) -> Any:
        """The channel for questions of the kernel."""
        return self.socket.channels["stdin"]

    @property
    def control_channel(self) -> Any:
        """The channel for requests that do not wait for a running cell."""
        return self.socket.channels["control"]

    async def _async_is_alive(self) -> bool:
        return not (self.socket.lost or self.socket.has_ended)

    is_alive = _async_is_alive


async def _close(socket: Any) -> None:
    """Close a websocket, and wait until the server has closed it too."""
    socket.close()

    async def drain() -> None:
        while await socket.read_message() is not None:
            pass

    with contextlib.suppress(Exception):
        await asyncio.wait_for(drain(), _CLOSE_SECONDS)


def _websocket_url(rest: ServerRest, kernel: str, session: str) -> str:
    scheme, _, address = rest.access.url.partition("://")
    websocket = {"http": "ws", "https": "wss"}[scheme]
    return f"{websocket}://{address}/api/kernels/{quoted(kernel)}/channels?{urlencode({'session_id': session})}"


def _time(value: Any) -> str:
    return str(value.isoformat())
