"""Sends requests to the REST API of a Jupyter server, with the standard library.

The token is sent to the server only, because redirects are not followed. Replies are limited in size.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import IO, Any, Final
from urllib.parse import quote, urlsplit

from toolbox.features.notebooks.worker import server_variables
from toolbox.features.notebooks.worker.execution_place import PlaceError
from toolbox.features.notebooks.worker.failure_texts import one_line
from toolbox.features.notebooks.worker.notebook_results import Fault

WAIT_SECONDS: Final = 60.0
"""How long a request is repeated while the server does not answer, in seconds."""
_TRY_SECONDS: Final = 60.0
_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 5.0
_LARGEST_REPLY: Final = 64 << 20
_LONGEST_ERROR: Final = 64 << 10
_TEMPORARY: Final = frozenset({408, 429, 502, 503, 504})
_CONNECTION_ERRORS = (OSError, EOFError, ValueError, urllib.error.URLError)


class ReplyError(Exception):
    """The server refused a request.

    Args:
        status: the HTTP status.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class ServerAccess:
    """How to reach a Jupyter server.

    Args:
        url: the address, without a slash at its end.
        ca_file: the authorities with which the server's certificate is verified; None for those of the system.
    """

    url: str
    token: str = field(repr=False)
    ca_file: str | None = None

    @classmethod
    def from_variables(cls, variables: Mapping[str, str]) -> ServerAccess:
        """Return the access that the backend has put into the environment.

        Raises:
            PlaceError: a variable is missing.
        """
        url, token = variables.get(server_variables.URL, ""), variables.get(server_variables.TOKEN, "")
        if not url or not token:
            names = f"{server_variables.URL} and {server_variables.TOKEN}"
            raise PlaceError(Fault.SERVER, f"the settings require a Jupyter server, but {names} are not set")
        return cls(url.rstrip("/"), token, variables.get(server_variables.CA_FILE))

    @property
    def headers(self) -> dict[str, str]:
        """The header with the token."""
        return {"Authorization": f"token {self.token}"}


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class ServerRest:
    """Requests to a server. Any thread may send them."""

    def __init__(self, access: ServerAccess) -> None:
        self.access = access
        handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
        if access.url.startswith("https:"):
            context = ssl.create_default_context(cafile=access.ca_file)
            handlers.append(urllib.request.HTTPSHandler(context=context))
        if _is_loopback(access.url):
            handlers.append(urllib.request.ProxyHandler({}))
        self._opener = urllib.request.build_opener(*handlers)

    def json(self, method: str, path: str, body: object = None, *, seconds: float = WAIT_SECONDS) -> Any:
        """Return the JSON of the reply to a request. Repeat the request while the server does not answer.

        Args:
            path: the path below the address of the server, quoted.

        Raises:
            ReplyError: the server refused the request.
            PlaceError: the server does not answer.
        """
        content = self.content(method, path, body, seconds=seconds)
        try:
            return json.loads(content) if content else None
        except (ValueError, RecursionError):
            raise PlaceError(Fault.SERVER, f"the server's reply to {method} {path} is not JSON") from None

    def content(
        self, method: str, path: str, body: object = None, *, seconds: float = WAIT_SECONDS, most: int = _LARGEST_REPLY
    ) -> bytes:
        """Return the body of the reply to a request; see `json`.

        Args:
            most: the largest allowed size of the body.
        """
        deadline, pause = time.monotonic() + seconds, _FIRST_PAUSE
        while True:
            try:
                return self._try(method, path, body, most)
            except urllib.error.HTTPError as error:
                reason = _reason(error)
                if error.code not in _TEMPORARY:
                    raise self._error(error.code, f"{method} {path}: {reason}") from None
            except _CONNECTION_ERRORS as error:
                reason = one_line(str(error)) or type(error).__name__
            if time.monotonic() + pause > deadline:
                raise PlaceError(Fault.SERVER, self._masked(f"the Jupyter server does not answer: {reason}"))
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _try(self, method: str, path: str, body: object, most: int) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        headers = {**self.access.headers, "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.access.url}{path}", data=data, headers=headers, method=method)  # noqa: S310
        with contextlib.closing(self._opener.open(request, timeout=_TRY_SECONDS)) as reply:
            return _limited(reply, most)

    def _error(self, status: int, message: str) -> Exception:
        if status == HTTPStatus.FAILED_DEPENDENCY:  # the answer of a hub if the server is not running
            return PlaceError(Fault.SERVER, "the Jupyter server was stopped")
        if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:  # the hub answers for a server that is gone
            text = f"the Jupyter server was stopped, or its address redirects to another one: {message}"
            return PlaceError(Fault.SERVER, self._masked(text))
        if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            return PlaceError(Fault.SERVER, self._masked(f"the Jupyter server refuses the token: {message}"))
        return ReplyError(status, self._masked(f"{message} (HTTP {status})"))

    def _masked(self, text: str) -> str:
        return text.replace(self.access.token, "***")


def quoted(path: str) -> str:
    """Return a path of the contents API, quoted for a URL."""
    return quote(path, safe="/")


def _limited(reply: IO[bytes], most: int) -> bytes:
    content = reply.read(most + 1)
    if len(content) > most:
        raise PlaceError(Fault.SERVER, f"a reply of the Jupyter server is longer than {most} bytes")
    return content


def _reason(error: urllib.error.HTTPError) -> str:
    """Return the reason that a server gives for an error."""
    document: Any = None
    with contextlib.suppress(*_CONNECTION_ERRORS, RecursionError):
        document = json.loads(error.read(_LONGEST_ERROR))
    message = document.get("message") if isinstance(document, dict) else None
    return one_line(message if isinstance(message, str) else str(error.reason))


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
