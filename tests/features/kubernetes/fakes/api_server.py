"""An HTTP server in a thread of this process that gives the official Kubernetes client the answers that a test sets.

    with api_server.serving(directory) as server:
        server.answers("GET", "/api/v1/nodes", failure(503), {"items": []})

An answer is JSON, an `Answer`, or a function that returns one of them. If a request has several answers,
each is given once, in order, and the last one is repeated. Requests to all other paths get a 404.
"""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import parse_qs, urlsplit

import yaml

from tests.servers import certificates

BREAK: Final = b"break the connection"
HOLD: Final = b"send nothing more until the server is shut down"
NAMESPACE: Final = "tests"
_WEBSOCKET: Final = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455
_REASONS: Final = {403: "Forbidden", 404: "NotFound", 409: "AlreadyExists", 410: "Expired", 422: "Invalid"}


@dataclass(frozen=True)
class Request:
    """A request that the server has received. The method of a `GET` with the parameter `watch` is `WATCH`."""

    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: Any

    def get(self, name: str) -> str | None:
        """Return the first value of a query parameter, or None."""
        return next(iter(self.query.get(name, ())), None)


@dataclass(frozen=True)
class Answer:
    """An answer to a request.

    Args:
        body: the whole body, or its chunks. The chunks `BREAK` and `HOLD` break or stall the connection.
    """

    body: bytes | Iterable[bytes]
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})


@dataclass(frozen=True)
class Talk:
    """An answer that opens a websocket. `script` is called with the server's end of the connection."""

    script: Callable[[Conversation], None]


Reply: TypeAlias = "dict[str, Any] | Answer | Talk | Callable[[Request], dict[str, Any] | Answer]"


def failure(status: int, message: str = "no", **headers: str) -> Answer:
    """Return the answer by which Kubernetes refuses a request.

    Args:
        headers: headers of the answer, with `_` for `-` in their names.
    """
    body = {"kind": "Status", "code": status, "reason": _REASONS.get(status, ""), "message": message}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(json.dumps(body).encode(), status, {"Content-Type": "application/json", **named})


def event(kind: str, version: int, name: str = "a", **fields: Any) -> bytes:
    """Return one event of a watch, as a line of JSON."""
    found = {"metadata": {"name": name, "resourceVersion": str(version)}, **fields}
    return json.dumps({"type": kind, "object": found}).encode() + b"\n"


def listing(version: int, *names: str, more: str = "") -> dict[str, Any]:
    """Return a list of objects, or a page of it."""
    meta = {"resourceVersion": str(version), **({"continue": more} if more else {})}
    return {"metadata": meta, "items": [{"metadata": {"name": name}} for name in names]}


class ApiServer(ThreadingHTTPServer):
    """The server. `requests` holds the requests that it has received, oldest first."""

    daemon_threads = True

    def __init__(self, kubeconfig: Path, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.kubeconfig = kubeconfig
        self.requests: list[Request] = []
        self.is_over = threading.Event()
        self._certificate: Path | None = None
        self._lock = threading.Lock()
        self._answers: dict[tuple[str, str], list[Reply]] = {}
        self.admit("first")

    def secure(self) -> None:
        """Speak TLS from now on, with a certificate that the kubeconfig trusts."""
        self._certificate = certificates.make(self.kubeconfig.with_name("certificate.pem"), "127.0.0.1")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self._certificate, self._certificate.with_suffix(".key"))
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.admit("first")

    def admit(self, token: str) -> None:
        """Write the kubeconfig of this server, with this token."""
        address = f"127.0.0.1:{self.server_port}"
        where: dict[str, Any] = {"server": f"http://{address}"}
        if self._certificate is not None:
            where = {"server": f"https://{address}", "certificate-authority": f"{self._certificate}"}
        content = {
            "clusters": [{"name": "it", "cluster": where}],
            "users": [{"name": "it", "user": {"token": token}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it", "namespace": NAMESPACE}}],
            "current-context": "it",
        }
        self.kubeconfig.write_text(yaml.safe_dump(content))

    def answers(self, method: str, path: str, *answers: Reply) -> None:
        """Set the answers to a request from now on."""
        with self._lock:
            self._answers[method, path] = list(answers)

    def count(self, method: str, path: str) -> int:
        """Return the number of received requests with this method and path."""
        return sum((each.method, each.path) == (method, path) for each in self.requests)

    def answer(self, request: Request) -> Answer | Talk:
        """Return the answer to a request."""
        with self._lock:
            self.requests.append(request)
            answers = self._answers.get((request.method, request.path)) or [failure(404)]
            reply = answers.pop(0) if len(answers) > 1 else answers[0]
        found = reply(request) if callable(reply) else reply
        return Answer(json.dumps(found).encode()) if isinstance(found, dict) else found

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing when a client disconnects."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: ApiServer

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        method = "WATCH" if "watch" in query else self.command
        request = Request(method, url.path, query, dict(self.headers), json.loads(content) if content else None)
        answer = self.server.answer(request)
        if isinstance(answer, Talk):
            self._talk(answer)
        elif isinstance(answer.body, bytes):
            self._begin(answer, {"Content-Length": str(len(answer.body))})
            self.wfile.write(answer.body)
        else:
            self._begin(answer, {"Transfer-Encoding": "chunked"})
            for piece in answer.body:
                if not self._give(piece):
                    return
            self.wfile.write(b"0\r\n\r\n")

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815  # the names of the standard library

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # its name in the standard library
        """Log nothing."""

    def _begin(self, answer: Answer, headers: Mapping[str, str]) -> None:
        self.send_response(answer.status)
        for name, value in {**answer.headers, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _give(self, piece: bytes) -> bool:
        """Send a chunk of an answer, and return whether more chunks may follow."""
        if piece == HOLD:
            self.server.is_over.wait()
        if piece in (BREAK, HOLD):
            self.close_connection = True
            return False
        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        return True

    def _talk(self, answer: Talk) -> None:
        key = hashlib.sha1(f"{self.headers['Sec-WebSocket-Key']}{_WEBSOCKET}".encode()).digest()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(key).decode())
        self.send_header("Sec-WebSocket-Protocol", "v4.channel.k8s.io")
        self.end_headers()
        self.close_connection = True
        answer.script(Conversation(self.rfile, self.wfile))


@dataclass(frozen=True)
class Conversation:
    """The server's end of a websocket (RFC 6455) for a command in a container. Each message belongs to a channel."""

    reader: BufferedIOBase
    writer: Any

    def send(self, channel: int, content: bytes) -> None:
        """Send a whole message on a channel."""
        self.begin(len(content), channel, content)

    def begin(self, length: int, channel: int, content: bytes) -> None:
        """Send the header of a message of `length` bytes, and the beginning of its content."""
        self.writer.write(b"\x82\x7f" + (length + 1).to_bytes(8) + bytes([channel]) + content)

    def hear(self) -> bytes:
        """Return the next content that the client sends as standard input, or `b""` when it closes the websocket."""
        kind, length = self.reader.read(2)
        length &= 0x7F
        if length > 125:
            length = int.from_bytes(self.reader.read(2 if length == 126 else 8))
        mask, content = self.reader.read(4), self.reader.read(length)
        is_end = kind & 0x0F == 8
        return b"" if is_end else bytes(byte ^ mask[place % 4] for place, byte in enumerate(content))[1:]

    def end(self, **status: str) -> None:
        """Send the status with which the command ended, and close the websocket."""
        self.send(3, json.dumps(status or {"status": "Success"}).encode())
        self.writer.write(b"\x88\x00")

    def hold(self) -> None:
        """Send nothing more until the client closes the websocket."""
        while self.hear():
            continue
        self.writer.write(b"\x88\x00")


Server = TypeVar("Server", bound=ApiServer)


@contextmanager
def running(server: Server) -> Iterator[Server]:
    """Serve in a thread until the end of the `with` block."""
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.is_over.set()
            server.shutdown()
            thread.join()


def serving(directory: Path) -> AbstractContextManager[ApiServer]:
    """Run a server whose kubeconfig is the file `kubeconfig` in a directory."""
    return running(ApiServer(directory / "kubeconfig"))
