"""An HTTP server whose answers are bytes of a script, so that they can be anything."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

MODELS: Final = {"object": "list", "data": [{"id": "tiny", "object": "model"}]}
_HEADERS_END: Final = b"\r\n\r\n"
_LENGTH: Final = re.compile(rb"^content-length: *(\d+)", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True)
class HttpRequest:
    """A request: its method and path, its headers in lower case, and the value of its JSON."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


class EndConnectionError(Exception):
    """A script raises this to end the connection."""


class ResetConnectionError(EndConnectionError):
    """A script raises this to end the connection by a TCP reset."""


Script = Callable[[HttpRequest], Iterable[bytes]]


def response(body: object, *, status: int = 200, kind: str = "application/json", headers: str = "") -> bytes:
    """Return a complete response with a body: bytes, or a value that becomes JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n{headers}\r\n"
    return head.encode() + content


def stream_head(kind: str = "text/event-stream") -> bytes:
    """Return the head of a response that lasts until the connection ends."""
    return f"HTTP/1.1 200 X\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n".encode()


def event(value: object) -> bytes:
    """Return a server-sent event with a value as JSON, or with a text."""
    return f"data: {value if isinstance(value, str) else json.dumps(value)}\n\n".encode()


def choice(text: str = "", reason: str | None = None, **more: object) -> dict[str, object]:
    """Return a body, or a chunk, with one choice."""
    return {"choices": [{"index": 0, "text": text, "finish_reason": reason, **more}]}


class HttpServer:
    """A running server.

    Args:
        script: yields the bytes of the answer to a request. The connection ends after the last ones. Requests for
            the list of models are answered without it.
        keeps_connections: wait for another request instead of ending the connection.
        certificate: a file of `certificates.make`, for a server with TLS.
    """

    def __init__(
        self, script: Script, port: int = 0, *, keeps_connections: bool = False, certificate: Path | None = None
    ) -> None:
        self._script = script
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH) if certificate else None
        if self._tls and certificate:
            self._tls.load_cert_chain(certificate, certificate.with_suffix(".key"))
        self._keeps_connections = keeps_connections
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", port))
        self.stopping = threading.Event()  # a script that waits ends when this is set
        self.requests: list[HttpRequest] = []
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def stop(self) -> None:
        """End the server and all its connections."""
        self.stopping.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # `accept` in the other thread returns
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        self.connections += 1
        with contextlib.suppress(OSError), self._encrypted(connection) as client:
            while self._answer(client) and self._keeps_connections:
                pass

    def _encrypted(self, connection: socket.socket) -> socket.socket:
        return self._tls.wrap_socket(connection, server_side=True) if self._tls else connection

    def _answer(self, connection: socket.socket) -> bool:
        """Answer the next request, and tell whether there was one."""
        request = _received(connection)
        if request is None:
            return False
        self.requests.append(request)
        if request.path == "/v1/models":
            connection.sendall(response(MODELS, headers="" if self._keeps_connections else "Connection: close\r\n"))
            return True
        try:
            for content in self._script(request):
                connection.sendall(content)
                if self.stopping.is_set():
                    break
        except EndConnectionError as end:
            if isinstance(end, ResetConnectionError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        return True


def _received(connection: socket.socket) -> HttpRequest | None:
    """Return the next request; None if the client ends the connection before it has sent a whole request."""
    content = b""
    while not _is_complete(content):
        piece = connection.recv(1 << 16)
        if not piece:
            return None
        content += piece
    head, _, body = content.partition(_HEADERS_END)
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    return HttpRequest(method, path, headers, json.loads(body) if body else None)


def _is_complete(content: bytes) -> bool:
    head, end, body = content.partition(_HEADERS_END)
    length = _LENGTH.search(head)
    return bool(end) and len(body) >= (int(length[1]) if length else 0)


@contextlib.contextmanager
def serving(
    script: Script, *, keeps_connections: bool = False, certificate: Path | None = None
) -> Iterator[HttpServer]:
    """Run a server during the block."""
    server = HttpServer(script, keeps_connections=keeps_connections, certificate=certificate)
    try:
        yield server
    finally:
        server.stop()


def answering(*pieces: bytes) -> Script:
    """Return a script that sends the same bytes to everyone."""
    return lambda _: pieces


@contextlib.contextmanager
def serving_bytes(content: bytes) -> Iterator[str]:
    """Run a TCP server that sends some bytes to every connection and closes it. Return its HOST:PORT."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection, contextlib.suppress(OSError):
                        connection.sendall(content)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
