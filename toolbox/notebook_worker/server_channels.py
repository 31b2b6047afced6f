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
import re
import struct
import threading
import time
from collections import deque
from collections.abc import Mapping
from itertools import pairwise
from queue import Empty
from typing import Any, Final
from urllib.parse import urlencode

from jupyter_client.asynchronous.client import AsyncKernelClient

from toolbox.notebook_worker.cell_outputs import DROPPED
from toolbox.notebook_worker.execution_place import PlaceError
from toolbox.notebook_worker.failure_texts import one_line
from toolbox.notebook_worker.server_rest import ReplyError, ServerRest, quoted

CONNECT_SECONDS: Final = 60.0
"""How long the thread tries to open a broken connection again, in seconds."""
_PING_SECONDS: Final = 15.0
_CLOSE_SECONDS: Final = 2.0
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
_LARGEST_MESSAGE: Final = 1 << 28
_MOST_WAITING: Final = 256 << 20  # bytes of unread messages; messages that are not outputs may have twice as many
_MESSAGE_TOO_BIG: Final = 1009  # the code with which tornado closes a connection at a message that is too large
_LIMIT_WARNING: Final = re.compile(r"\s*IOPub (data|message) rate exceeded")
_LIMITS: Final = {"data": "iopub_data_rate_limit", "message": "iopub_msg_rate_limit"}
_ENDING: Final = frozenset({"restarting", "autorestarting", "dead"})
_CHANNELS: Final = ("shell", "iopub", "stdin", "control")


class Channel:
    """The received messages of a channel. Threads and event loops may wait for messages."""

    def __init__(self, send: Any) -> None:
        self._send = send
        self._condition = threading.Condition()
        self._messages: deque[tuple[dict[str, Any], int]] = deque()
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self.waiting_bytes = 0

    def put(self, message: dict[str, Any], size: int) -> None:
        """Add a message, and wake the threads that wait for messages."""
        with self._condition:
            self._messages.append((message, size))
            self.waiting_bytes += size
            self._condition.notify_all()
            waiters, self._waiters = self._waiters, []
        for loop, event in waiters:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(event.set)

    def take(self, seconds: float) -> dict[str, Any]:
        """Return the next message. Raise Empty if there is none in time."""
        with self._condition:
            if not self._condition.wait_for(lambda: bool(self._messages), seconds):
                raise Empty
            return self._pop()

    async def get_msg(self, timeout: float | None = None) -> dict[str, Any]:
        """Return the next message. Raise Empty if there is none in time."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            event = asyncio.Event()
            with self._condition:
                if self._messages:
                    return self._pop()
                self._waiters.append((asyncio.get_running_loop(), event))
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise Empty
            try:
                await asyncio.wait_for(event.wait(), left)
            except (TimeoutError, asyncio.TimeoutError):
                raise Empty from None

    def send(self, message: dict[str, Any]) -> None:
        """Send a message to the kernel."""
        self._send(message)

    def _pop(self) -> dict[str, Any]:
        message, size = self._messages.popleft()
        self.waiting_bytes -= size
        return message

    def is_alive(self) -> bool:
        """Return True, because the connection itself reports its end."""
        return True

    def start(self) -> None:
        """Do nothing, because the connection exists already."""

    def stop(self) -> None:
        """Do nothing, because the connection ends all channels."""


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
                if await self._converse():
                    self.drops += 1
                    pause, since = _FIRST_PAUSE, time.monotonic()
                reason = "the server has closed the connection"
            except Exception as error:  # noqa: BLE001 - tornado raises errors of many kinds
                reason = one_line(str(error)) or type(error).__name__
            if self.has_ended:
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

    def _gone(self) -> str:
        """Return why the kernel can no longer be reached; empty if the server still has the kernel."""
        try:
            self._rest.json("GET", f"/api/kernels/{quoted(self._kernel)}", seconds=CONNECT_SECONDS)
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
        writing = asyncio.ensure_future(self._write(socket))
        try:
            while (content := await socket.read_message()) is not None:
                self._take(content)
            socket.close()
        except BaseException:
            await _close(socket)
            raise
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
        return True

    async def _write(self, socket: Any) -> None:
        while True:
            text = await self._outgoing.get()
            try:
                await socket.write_message(text)
            except Exception:
                self._outgoing.put_nowait(text)  # for the next connection
                raise

    def _take(self, content: str | bytes) -> None:
        """Put a message into its channel. Ignore a message that violates the protocol."""
        with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError, struct.error):
            message = _message(content)
            channel = self.channels[message.pop("channel")]
            header = message["header"]
            message["msg_type"], message["msg_id"] = header["msg_type"], header["msg_id"]
            if message["msg_type"] == "status" and message["content"].get("execution_state") in _ENDING:
                self.has_ended = str(message["content"]["execution_state"])
            if limit := self._exceeded_limit(message):
                message[DROPPED] = (
                    f"the Jupyter server dropped outputs that exceeded its limit `{limit}`: print less, or raise the "
                    "limit in the configuration of the server"
                )
            self._deliver(channel, message, len(content))

    def _exceeded_limit(self, message: dict[str, Any]) -> str:
        """Return the limit of the server that was exceeded according to a message; empty for other messages.

        The server reports this as an output, in the session of the client and not in the session of the kernel.
        """
        if message["msg_type"] != "stream" or message["header"].get("session") != self._session:
            return ""
        warning = _LIMIT_WARNING.match(message["content"]["text"])
        return _LIMITS[warning[1]] if warning else ""

    def _deliver(self, channel: Channel, message: dict[str, Any], size: int) -> None:
        """Add a message to its channel, unless the messages that wait there are too large."""
        is_output = channel is self.channels["iopub"] and message["msg_type"] != "status"
        waiting = sum(each.waiting_bytes for each in self.channels.values())
        if waiting <= (_MOST_WAITING if is_output else 2 * _MOST_WAITING):
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


def _message(content: str | bytes) -> dict[str, Any]:
    """Return a message from the websocket. In binary messages, buffers follow the JSON."""
    if isinstance(content, str):
        message: dict[str, Any] = json.loads(content)
        return message
    (count,) = struct.unpack_from("!I", content)
    offsets = [*struct.unpack_from(f"!{count}I", content, 4), len(content)]
    parts = [content[start:end] for start, end in pairwise(offsets)]
    message = json.loads(parts[0])
    message["buffers"] = parts[1:]
    return message


def _time(value: Any) -> str:
    return str(value.isoformat())
