"""The API over REST, for `gcloud`: https://cloud.google.com/tpu/docs/reference/rest.

Paths of the version v2alpha1, which `gcloud alpha` uses, are answered as those of v2; fields that only v2alpha1 has are
ignored.
"""

from __future__ import annotations

import functools
import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from google.cloud.tpu_v2.services.tpu.transports.rest_base import _BaseTpuRestTransport
from google.protobuf import json_format
from google.protobuf.message import Message

from tests.features.tpu.servers.tpu.methods import SERVICES, Api
from tests.features.tpu.servers.tpu.refusals import ApiError

_ADDRESS: Final = "127.0.0.1"
_MAX_BODY: Final = 8 * 1024 * 1024
_HTTP_STATUS: Final = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "OUT_OF_RANGE": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "ABORTED": 409,
    "RESOURCE_EXHAUSTED": 429,
    "CANCELLED": 499,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
_INTERNAL_ERROR: Final = 500
_SYSTEM_PARAMETERS: Final = ("alt", "key", "prettyPrint", "quotaUser", "fields", "$alt", "$.xgafv", "access_token")


@dataclass(frozen=True, slots=True)
class _Route:
    """A kind of path, its method of the API, and the fields of the request that come from the path and the body.

    Args:
        field: field of the request for the name in the path, for example `node.name`.
        body: field for the body; `*` means that the body has the fields of the request.
    """

    method: str
    verb: str
    path: re.Pattern[str]
    field: str
    body: str


def _routes() -> list[_Route]:
    """Return the routes of the API, which the REST transport of the client library knows."""
    found = []
    for base in vars(_BaseTpuRestTransport).values():
        if hasattr(base, "_get_http_options"):
            (option,) = base._get_http_options()
            match = re.fullmatch(r"/v2/{([\w.]+)=(.*)}(.*)", option["uri"])
            assert match is not None
            path = f"({match[2].replace('*', '[^/]+')}){match[3]}"
            method = base.__name__.removeprefix("_Base")
            found.append(_Route(method, option["method"].upper(), re.compile(path), match[1], option.get("body", "*")))
    return found


_ROUTES: Final = _routes()


class RestServer:
    """The server of the REST API."""

    def __init__(self, api: Api) -> None:
        self.is_stopping = threading.Event()
        self._server = _HttpServer(api, self.is_stopping)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="tpu-rest", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close all connections."""
        self.is_stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, api: Api, is_stopping: threading.Event) -> None:
        super().__init__((_ADDRESS, 0), _Handler)
        self.api = api
        self.requests = {name: request for service in SERVICES for name, request in api.methods(service).items()}
        self.routes = [route for route in _ROUTES if route.method in self.requests]
        self.is_stopping = is_stopping


class _Handler(BaseHTTPRequestHandler):
    server: _HttpServer
    protocol_version = "HTTP/1.1"
    timeout = 10  # a connection that is not used is closed

    def do_GET(self) -> None:
        self._answer()

    do_POST = do_DELETE = do_PATCH = do_GET  # noqa: N815 - see above

    def log_message(self, *_: Any) -> None:
        """Print nothing; the server records all requests."""

    def _answer(self) -> None:
        try:
            status, content = 200, json_format.MessageToDict(self._call())
        except ApiError as error:
            status = _HTTP_STATUS.get(error.code.name, _INTERNAL_ERROR)
            content = {"error": _described(error, status)}
        text = json.dumps(content, indent=2).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=UTF-8")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _call(self) -> Message:
        """Carry out the request."""
        body = self._body()
        url = urlsplit(self.path)
        match = re.fullmatch(r"/v2(?:alpha1)?/(.*)", unquote(url.path))
        for route in self.server.routes:
            if match and route.verb == self.command and (found := route.path.fullmatch(match[1])):
                request = self._request(route, found[1], dict(parse_qsl(url.query)), body)
                # The server does not notice that the client goes away.
                return self.server.api.call(route.method, request, self.server.is_stopping.wait)
        raise ApiError("NOT_FOUND", f"Method not found: {self.command} {url.path}")

    def _body(self) -> Mapping[str, Any]:
        length = int(self.headers.get("Content-Length") or 0)
        if length > _MAX_BODY:
            raise ApiError("INVALID_ARGUMENT", "Request payload size exceeds the limit")
        try:
            found: Mapping[str, Any] = json.loads(self.rfile.read(length) or b"{}")
        except ValueError as error:
            raise ApiError("INVALID_ARGUMENT", f"Invalid JSON payload received. {error}") from error
        return found

    def _request(self, route: _Route, name: str, query: Mapping[str, str], body: Mapping[str, Any]) -> Message:
        """Return the message for a request."""
        message: Message = self.server.requests[route.method]()
        fields: dict[str, Any] = dict(body) if route.body == "*" else {route.body: dict(body)}
        fields |= {key: _value(text) for key, text in query.items() if key not in _SYSTEM_PARAMETERS}
        *path, field = route.field.split(".")
        functools.reduce(dict.__getitem__, path, fields)[field] = name
        try:
            return json_format.ParseDict(fields, message, ignore_unknown_fields=True)
        except json_format.ParseError as error:
            raise ApiError("INVALID_ARGUMENT", f"Invalid JSON payload received. {error}") from error


def _value(text: str) -> Any:
    return {"true": True, "false": False}.get(text.lower(), text)


def _described(error: ApiError, status: int) -> Mapping[str, Any]:
    """Return an error as the REST API describes it."""
    details = json_format.MessageToDict(error.status()).get("details", [])
    described = {"code": status, "message": error.message, "status": error.code.name}
    return {**described, "details": details} if details else described
