"""A Jupyter server with one kernel, whose websocket sends what a test says. It listens on loopback."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from queue import SimpleQueue
from typing import Any, Self

from tornado import web, websocket
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

ADDRESS = "127.0.0.1"


class KernelWebsocket:
    """The server. It listens inside a `with` block."""

    def __init__(self) -> None:
        self.status = 200  # of the replies about the kernel
        self.execution_state = "busy"  # in these replies
        self.received: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._sockets: list[_Channels] = []
        self._connections: SimpleQueue[str] = SimpleQueue()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kernel-websocket", daemon=True)
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._server.stop)
        self.close_sockets()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def wait_for_client(self) -> str:
        """Wait for the next connection, and return the session of the client."""
        return self._connections.get(timeout=60)

    def send(self, kind: str, content: Mapping[str, Any], *, channel: str = "iopub", session: str = "kernel") -> None:
        """Send a message of the kernel, or of another session."""
        self.reply({}, kind, content, channel=channel, session=session)

    def reply(
        self, request: Mapping[str, Any], kind: str, content: Mapping[str, Any], *, channel: str, session: str
    ) -> None:
        """Send a reply to the request with this header."""
        header = {"msg_id": "1", "msg_type": kind, "session": session}
        message = {"header": header, "parent_header": request, "metadata": {}, "content": content, "channel": channel}
        self._call(lambda: self._sockets[-1].write_message(json.dumps(message)))

    def answer_probe(self, session: str) -> None:
        """Wait for the next question on the control channel, and answer it as a kernel with this session."""
        request = self.received.get(timeout=60)
        assert (request["channel"], request["header"]["msg_type"]) == ("control", "kernel_info_request")
        self.reply(request["header"], "kernel_info_reply", {}, channel="control", session=session)

    def close_sockets(self) -> None:
        """Close all connections."""

        def close() -> None:
            for socket in self._sockets:
                socket.close()

        self._call(close)

    async def _listen(self) -> None:
        (listening,) = bind_sockets(0, ADDRESS)
        self.url = f"http://{ADDRESS}:{listening.getsockname()[1]}"
        routes = [(r"/api/kernels/k/channels", _Channels, {"server": self}), (r"/.*", _Rest, {"server": self})]
        self._server = HTTPServer(web.Application(routes))
        self._server.add_sockets([listening])

    def _call(self, function: Any) -> None:
        async def call() -> None:
            function()

        asyncio.run_coroutine_threadsafe(call(), self._loop).result()

    def connected(self, socket: _Channels) -> None:
        """Note a connection."""
        self._sockets.append(socket)
        self._connections.put(socket.get_argument("session_id"))


class _Channels(websocket.WebSocketHandler):
    def initialize(self, server: KernelWebsocket) -> None:
        self._server = server

    def open(self, *_: str, **__: str) -> None:
        self._server.connected(self)

    def on_message(self, message: str | bytes) -> None:
        self._server.received.put(json.loads(message))


class _Rest(web.RequestHandler):
    def initialize(self, server: KernelWebsocket) -> None:
        self._server = server

    def get(self) -> None:
        self.set_status(self._server.status)
        self.write({"execution_state": self._server.execution_state})
