"""Serves the API over HTTP on loopback, and applies the faults of a test."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import sys
import threading
import traceback
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Generic, Protocol, TypeVar

from tests.features.ci.servers.github.faults import Fault, Faults
from tests.features.ci.servers.github.http_messages import HttpAnswer, HttpRequest

_ADDRESS: Final = "127.0.0.1"
_MAX_BODY: Final = 16 * 1024 * 1024
_POLL_SECONDS: Final = 0.02
_IDLE_SECONDS: Final = 10


class AnyApi(Protocol):
    """Answers requests, and records them."""

    def answer(self, request: HttpRequest) -> HttpAnswer:
        """Answer a request, and record it."""

    def record(self, request: HttpRequest, endpoint: str, status: int, answer: Any = None) -> None:
        """Record a request that a fault answered."""


ApiOf = TypeVar("ApiOf", bound=AnyApi)


class HttpEndpoint(Generic[ApiOf]):
    """A running HTTP server in a thread.

    Args:
        make_api: returns the API, given the address of the server.
        faults: the faults of requests.
        software: the header `server`.
    """

    def __init__(self, make_api: Callable[[str], ApiOf], faults: Faults, software: str = "github.com") -> None:
        self._server = _HttpServer(faults, software)
        self.api = make_api(self._server.address)
        self._server.api = self.api
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_SECONDS,), name="github", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Close all connections.

        Raises:
            AssertionError: something in the server itself has failed.
        """
        self._server.is_stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._server.close_connections()
        self._thread.join()
        assert not self._server.failures, "\n".join(self._server.failures)


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True

    api: AnyApi

    def __init__(self, faults: Faults, software: str) -> None:
        super().__init__((_ADDRESS, 0), _Handler)
        self.address = f"http://{_ADDRESS}:{self.server_port}"
        self.faults = faults
        self.software = software
        self.is_stopping = threading.Event()
        self.failures: list[str] = []
        self._connections: set[Any] = set()
        self.late: list[HttpRequest] = []

    def take_late(self, method: str) -> list[HttpRequest]:
        """Return the requests of a method whose effects are late, and forget them."""
        taken = [request for request in self.late if request.method == method]
        self.late = [request for request in self.late if request.method != method]
        return taken

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection."""
        connection, address = super().get_request()
        self._connections.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        """End a connection."""
        self._connections.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        """End the connections that clients keep open."""
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, *_: Any) -> None:
        """Keep a failure of the server itself. A client may end its connection at any time."""
        if not isinstance(sys.exception(), OSError):
            self.failures.append(traceback.format_exc())


class _Handler(BaseHTTPRequestHandler):
    server: _HttpServer
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_SECONDS
    disable_nagle_algorithm = True  # the head and the body are two writes

    def do_GET(self) -> None:
        self._respond()

    do_POST = do_PATCH = do_PUT = do_DELETE = do_GET  # noqa: N815 - http.server names the methods

    def version_string(self) -> str:
        """Return the header `server`."""
        return self.server.software

    def log_message(self, *_: Any) -> None:
        """Print nothing; the server records all requests."""

    def _respond(self) -> None:
        length = min(int(self.headers.get("content-length") or 0), _MAX_BODY)
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = HttpRequest(self.command, self.path, headers, self.rfile.read(length))
        fault = self.server.faults.take(request.method, request.path)
        self.server.is_stopping.wait(fault.delay)
        for late in self.server.take_late(request.method):
            self.server.api.answer(late)
        if fault.is_late:
            self.server.late.append(request)
        answer = self._answer(request, fault)
        if fault.drops_connection:
            self._reset()
        else:
            self._send(answer, truncates=fault.truncates)

    def _answer(self, request: HttpRequest, fault: Fault) -> HttpAnswer:
        is_replaced = fault.status is not None or fault.drops_connection
        if not is_replaced:
            return self.server.api.answer(request)
        effect = self.server.api.answer(request) if fault.takes_effect else None
        if effect is None:
            self.server.api.record(request, "", fault.status or 0, fault.content)
        is_text = isinstance(fault.content, str)
        body = str(fault.content) if is_text else json.dumps(fault.content)
        kind = {"content-type": "text/html; charset=utf-8"} if is_text else {}
        return HttpAnswer(fault.status or 0, {**kind, **fault.headers}, body.encode())

    def _send(self, answer: HttpAnswer, *, truncates: bool) -> None:
        headers = {"content-type": "application/json; charset=utf-8", **answer.headers}
        self.send_response(answer.status)
        for name, value in headers.items():
            self.send_header(name, value)
        if answer.status != 204:
            self.send_header("content-length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body[: len(answer.body) // 2] if truncates else answer.body)
        self.close_connection = self.close_connection or truncates

    def _reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
