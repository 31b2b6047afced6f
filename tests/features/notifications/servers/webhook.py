"""A web server on loopback that receives the messages of notifiers, and misbehaves on request.

with webhook.Server() as server:
    server.answers = [webhook.Answer(500), webhook.Answer(429, headers={"Retry-After": "1"})]
    ...
    assert [message["type"] for message in server.messages] == ["topgallant.run.failure"]
"""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Self

from tests.servers import certificates

ADDRESS: Final = "127.0.0.1"
PATH: Final = "/services/T00000000/B00000000/s3cr3t-t0k3n-0f-the-channel"
_CHUNK: Final = b"x" * (1 << 16)


@dataclass(frozen=True)
class Answer:
    """One answer of the server.

    Args:
        hangs: send no answer until the server is closed.
        is_endless: send a body without an end.
    """

    status: int = 200
    body: bytes = b"ok"
    headers: Mapping[str, str] = field(default_factory=dict)
    hangs: bool = False
    is_endless: bool = False


@dataclass(frozen=True)
class Request:
    """A request that the server got."""

    path: str
    headers: Mapping[str, str]
    body: bytes


class Server:
    """The server. `answers` are the next answers; after them, the server answers with `usual`."""

    def __init__(self, certificate_directory: Path | None = None) -> None:
        self.requests: list[Request] = []
        self.answers: list[Answer] = []
        self.usual = Answer()
        self.closing = threading.Event()
        self.certificate: Path | None = None
        self._server = ThreadingHTTPServer((ADDRESS, 0), self._handler())
        self._server.daemon_threads = True
        if certificate_directory is not None:
            self.certificate = certificates.make(certificate_directory / "webhook.pem", ADDRESS)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate, self.certificate.with_suffix(".key"))
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def url(self) -> str:
        """The URL of the webhook, which is a secret."""
        scheme = "http" if self.certificate is None else "https"
        return f"{scheme}://{ADDRESS}:{self._server.server_port}{PATH}"

    @property
    def messages(self) -> list[Any]:
        """The JSON of all requests."""
        return [json.loads(request.body) for request in self.requests]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                server.requests.append(Request(self.path, dict(self.headers), body))
                answer = server.answers.pop(0) if server.answers else server.usual
                if answer.hangs:
                    server.closing.wait()
                    return
                with contextlib.suppress(OSError):  # the client has closed the connection
                    self._send(answer)

            def _send(self, answer: Answer) -> None:
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                if not answer.is_endless:
                    self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)
                while answer.is_endless and not server.closing.is_set():
                    self.wfile.write(_CHUNK)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name in the base class
                pass

        return Handler
