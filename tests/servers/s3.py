"""A server of the S3 API on the loopback interface: moto, with a gate that can hold or refuse uploads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Final, Self

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

BUCKET: Final = "exports"
_REFUSAL: Final = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


class _Quiet(WSGIRequestHandler):
    def log(self, *_: Any, **__: Any) -> None:
        """Write no log."""


class Server:
    """A server that listens inside a `with`.

    Args:
        puts: the keys of all uploads, in order.
        acls: the access rules (ACL) that uploads asked for.
        hold_after: hold all uploads after this number of them; None to hold none.
        refuse: how many of the next uploads are answered with the status 503.
    """

    def __init__(self) -> None:
        self.puts: list[str] = []
        self.acls: list[str] = []
        self.hold_after: int | None = None
        self.refuse = 0
        self._stored = 0
        self._is_holding = False
        self._release = threading.Event()
        self._changed = threading.Condition()
        self._application = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._handle, threaded=True, request_handler=_Quiet)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which s3fs finds the server."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def __enter__(self) -> Self:
        """Start the server, in a thread."""
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the server."""
        self.reset()
        self._server.shutdown()
        self._server.server_close()

    def reset(self) -> None:
        """Release the uploads that are held, and forget all uploads."""
        self._release.set()
        self._release = threading.Event()
        self.puts, self.acls, self.hold_after, self.refuse = [], [], None, 0
        self._stored, self._is_holding = 0, False

    def wait_until_holding(self) -> None:
        """Wait until an upload is held, and all uploads before it are stored."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._is_holding and self._stored == len(self.puts), 60)

    def _handle(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if environ["REQUEST_METHOD"] != "PUT" or path.strip("/").count("/") == 0:
            return self._application(environ, start_response)  # type: ignore[no-any-return]
        release = self._release
        with self._changed:
            if self.refuse:
                self.refuse -= 1
                environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
                start_response("503 Slow Down", [("Content-Length", str(len(_REFUSAL)))])
                return [_REFUSAL]
            is_held = self.hold_after is not None and len(self.puts) >= self.hold_after
            if not is_held:
                self.puts.append(path.removeprefix(f"/{BUCKET}/"))
                self.acls += [environ["HTTP_X_AMZ_ACL"]] if "HTTP_X_AMZ_ACL" in environ else []
        if is_held:
            self._note(is_holding=True)
            release.wait()
            start_response("503 Slow Down", [("Content-Length", str(len(_REFUSAL)))])
            return [_REFUSAL]
        response = self._application(environ, start_response)
        self._note(stored=1)
        return response  # type: ignore[no-any-return]

    def _note(self, *, stored: int = 0, is_holding: bool = False) -> None:
        with self._changed:
            self._stored += stored
            self._is_holding |= is_holding
            self._changed.notify_all()
