"""A connection to one cluster. `Cluster.request` repeats requests if the server is unavailable.

Requests use the connection pools of the official client, which have its settings for TLS and proxies. Bodies and
responses are JSON: the methods and model classes of the client take several times as long, and don't know custom kinds.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import quote, urlencode

from toolbox.features.kubernetes.api.access import Credentials
from toolbox.ground.model import backoff
from toolbox.ground.model.clusters import Access
from toolbox.ground.model.errors import StepError
from toolbox.ground.model.verdicts import Cause
from toolbox.ground.system import cancellation

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

log = logging.getLogger(__name__)

Json = dict[str, Any]

TIMEOUT: Final = 60.0  # the default for how many seconds a server may be unavailable
_STREAM_TIMEOUTS: Final = (5.0, 30.0)  # the timeouts in seconds to connect, and between two chunks of a response
_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 5.0
_LONGEST_RETRY_AFTER: Final = 60.0  # the longest pause in seconds that a server may request by `Retry-After`
_JSON: Final = "application/json"
_USER_AGENT: Final = {"User-Agent": "topgallant"}
_TEMPORARY: Final = (0, HTTPStatus.UNAUTHORIZED, HTTPStatus.TOO_MANY_REQUESTS)  # 0: there was no response
# Only a change of the configuration can mend a malformed request or a missing permission.
_MISCONFIGURED: Final = (HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN, HTTPStatus.UNPROCESSABLE_ENTITY)
# An exceeded quota and a namespace that is being deleted have the same status as a missing permission (403). These
# parts of the message tell them apart.
_QUOTA_EXCEEDED: Final = "exceeded quota"
_TERMINATING: Final = "because it is being terminated"
# Servers before 1.22 report these mistakes in a request as an internal error (500).
_MALFORMED: Final = ("failed to create typed patch object", "quantities must match the regular expression")


class ApiError(StepError):
    """The server rejected a request.

    Args:
        reason: the reason that Kubernetes gives: `NotFound`, `AlreadyExists`, `Forbidden`.

    Attributes:
        may_be_done: whether the server may have carried out an earlier try of the same request.
    """

    may_be_done = False

    def __init__(self, message: str, *, status: int, reason: str, cause: Cause = Cause.INFRASTRUCTURE) -> None:
        super().__init__(message, cause=cause)
        self.status = status
        self.reason = reason

    @property
    def is_absent(self) -> bool:
        """Whether the object does not exist."""
        return self.status == HTTPStatus.NOT_FOUND

    @property
    def is_there(self) -> bool:
        """Whether an object with the same name already exists."""
        return self.status == HTTPStatus.CONFLICT and self.reason == "AlreadyExists"

    @property
    def is_too_old(self) -> bool:
        """Whether the server no longer has the requested resource version, so that the objects must be listed again."""
        return self.status == HTTPStatus.GONE

    @property
    def is_unauthorized(self) -> bool:
        """Whether the server rejected the credentials. A renewed token may help."""
        return self.status == HTTPStatus.UNAUTHORIZED


class Unavailable(StepError):
    """The server did not answer, or reported internal errors, until the timeout.

    Attributes:
        may_be_done: whether the server may have carried out the request although the client received no response.
    """

    may_be_done = False


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a request failed.

    Args:
        text: the message of the server or the network.
        status: the HTTP status code; 0 if there was no response.
        reason: the reason that Kubernetes gives, such as `Forbidden`.
        pause: how many seconds the client must wait, as requested by the server; None without such a request.
        is_unsent: whether the request was not sent, because there was no connection.
    """

    text: str
    status: int = 0
    reason: str = ""
    pause: float | None = None
    is_unsent: bool = False

    @property
    def is_temporary(self) -> bool:
        """Whether the same request may succeed later."""
        if any(sign in self.text for sign in _MALFORMED):
            return False
        return self.status in _TEMPORARY or self.status >= HTTPStatus.INTERNAL_SERVER_ERROR

    @property
    def may_be_done(self) -> bool:
        """Whether the server may have carried out the request: its status is above 499, or the response was lost."""
        return self.status >= HTTPStatus.INTERNAL_SERVER_ERROR or (self.status == 0 and not self.is_unsent)


class Cluster:
    """A connection to one cluster.

    Raises:
        ConfigurationError: there is no valid kubeconfig or service account for the cluster.
    """

    def __init__(self, access: Access, *, label: str = "") -> None:
        self.access = access
        self.credentials = Credentials.load(access)
        self.label = label or access.context or "the cluster"
        self._pools = self.credentials.connection_pools()

    @property
    def namespace(self) -> str:
        """The namespace for requests that don't name one."""
        return self.credentials.namespace

    def url(self, path: str, query: Iterable[tuple[str, Any]] = ()) -> str:
        """Return the address of a request. Kubernetes expects `true` and `false` for booleans."""
        texts = [(name, str(value).lower() if isinstance(value, bool) else value) for name, value in query]
        address = f"{self.credentials.configuration.host}{path}"
        return f"{address}?{urlencode(texts, quote_via=quote)}" if texts else address

    def authorization(self) -> dict[str, str]:
        """Return the header that authenticates a request; empty without a token."""
        token = self.credentials.configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        return {"authorization": token} if token else {}

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Json | list[Json] | None = None,
        content: str = _JSON,
        timeout: float = TIMEOUT,
    ) -> Json:
        """Send a request and return the response. Repeat the request while the server is unavailable or overloaded.

        A response that is not JSON is returned as `{"text": ...}`.

        The server may have carried out a request whose response was lost. If it was a request to create an object, the
        repeated request fails with `ApiError.is_there`.

        Args:
            content: the content type of the body.
            timeout: how many seconds the server may be unavailable.

        Raises:
            ApiError: the server rejected the request.
            Unavailable: the server did not answer in time.
            Cancelled: the scope of this thread was cancelled.
        """
        deadline = time.monotonic() + timeout
        may_be_done = False
        tries = 0
        while True:
            left = max(1.0, deadline - time.monotonic())
            try:
                timeouts = (min(_STREAM_TIMEOUTS[0], left), min(_STREAM_TIMEOUTS[1], left))
                return _json(self._call(method, path, query, body, content, timeouts))
            except Exception as error:  # noqa: BLE001  # the client raises exceptions of several libraries
                fault = fault_of(error)
            may_be_done = may_be_done or fault.may_be_done
            left = deadline - time.monotonic()
            requested = fault.pause or 0.0
            if not fault.is_temporary or left <= requested:
                refusal = self.refusal(fault, timeout)
                refusal.may_be_done = may_be_done
                raise refusal
            # Wait at most until the deadline, and try a last time then.
            wait = min(left, max(requested, backoff.pause(tries, first=_FIRST_PAUSE, most=_LONGEST_PAUSE)))
            log.debug("%s: %s: retrying in %.1f s", self.label, fault.text, wait)
            cancellation.current().sleep(wait)
            tries += 1
            if fault.status == HTTPStatus.UNAUTHORIZED:
                self.credentials.reload()

    def stream(self, path: str, query: Mapping[str, Any], timeout: tuple[float, float]) -> BaseHTTPResponse:
        """Return a streaming response, such as a watch or a log that is followed.

        The server ends the response. Another thread can end the response earlier by `shut`.

        Args:
            timeout: the timeouts in seconds to connect, and between two chunks of the response.

        Raises:
            ApiError: the server rejected the request.
            Unavailable: the server did not answer.
        """
        try:
            return self._call("GET", path, query, None, _JSON, timeout)
        except Exception as error:  # the client raises exceptions of several libraries
            raise self.error_of(error) from error

    def error_of(self, error: Exception) -> ApiError | Unavailable:
        """Return the error to raise if the client failed with `error` and the request is not repeated."""
        fault = fault_of(error)
        if fault.status == HTTPStatus.UNAUTHORIZED:
            self.credentials.reload()
        return self.refusal(fault, 0.0)

    def close(self) -> None:
        """Close the idle connections. Connections in use are closed when they become idle."""
        for key in list(self._pools.pools.keys()):
            if (pool := self._pools.pools.get(key)) is not None:
                pool.close()
        self._pools.clear()

    def refusal(self, fault: Fault, timeout: float) -> ApiError | Unavailable:
        """Return the error for a request that failed with this fault after it was repeated for `timeout` seconds."""
        if fault.status == HTTPStatus.UNAUTHORIZED:
            text = f"{self.label}: the credentials are refused (401): the token has expired, or is for another cluster"
            return ApiError(text, status=fault.status, reason=fault.reason)
        if fault.status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
            text = f"{self.label}: the proxy {self.credentials.proxy} refuses the user or the password (407)"
            return ApiError(text, status=fault.status, reason=fault.reason, cause=Cause.CONFIGURATION)
        if fault.is_temporary:
            if fault.pause is not None and fault.pause > timeout:
                return Unavailable(f"{self.label}: the API server asks us to wait {fault.pause:.0f} s: {fault.text}")
            waited = f" for {timeout:.0f} s" if round(timeout) else ""
            proxy = self.credentials.proxy
            through = f" through the proxy {proxy}" if proxy is not None and fault.status == 0 else ""
            return Unavailable(f"{self.label}: the API server does not answer{waited}{through}: {fault.text}")
        return ApiError(f"{self.label}: {fault.text}", status=fault.status, reason=fault.reason, cause=_cause(fault))

    def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        body: Json | list[Json] | None,
        content: str,
        timeout: tuple[float, float],
    ) -> BaseHTTPResponse:
        """Send a request once.

        Raises:
            _Rejection: the status of the response is not one of success.
            Exception: the exceptions of urllib3.
        """
        from urllib3 import Timeout

        connect, read = timeout
        response = self._pools.urlopen(
            method,
            self.url(path, (query or {}).items()),
            body=None if body is None else json.dumps(body, default=_time_text),
            headers={"Accept": f"{_JSON}, */*", "Content-Type": content, **_USER_AGENT, **self.authorization()},
            timeout=Timeout(connect=connect, read=read),
            preload_content=False,
        )
        if not 200 <= response.status < 300:  # noqa: PLR2004  # the HTTP status codes of success
            raise _Rejection(_fault_of_response(response))
        return response


class _Rejection(Exception):
    """The server has answered a request with an error."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.text)
        self.fault = fault


def shut(response: BaseHTTPResponse) -> None:
    """End a streaming response, so that a thread that reads the response reaches the end."""
    try:
        response.shutdown()
    except (OSError, ValueError, AttributeError, RuntimeError) as error:
        log.debug("a connection could not be shut down: %s", error)


def _cause(fault: Fault) -> Cause:
    if fault.status == HTTPStatus.FORBIDDEN and _QUOTA_EXCEEDED in fault.text:
        return Cause.CAPACITY
    if fault.status == HTTPStatus.FORBIDDEN and _TERMINATING in fault.text:
        return Cause.INFRASTRUCTURE  # the namespace is being deleted
    is_misconfigured = fault.status in _MISCONFIGURED or any(sign in fault.text for sign in _MALFORMED)
    return Cause.CONFIGURATION if is_misconfigured else Cause.INFRASTRUCTURE


def _json(response: BaseHTTPResponse) -> Json:
    import orjson

    try:
        content = response.read()
    finally:
        response.release_conn()
    if content and not response.headers.get("Content-Type", _JSON).startswith(_JSON):
        return {"text": content.decode(errors="replace")}
    return cast("Json", orjson.loads(content)) if content else {}


def fault_of(error: Exception) -> Fault:
    """Return the fault that an error of the client reports.

    Raises:
        Exception: `error` itself, if neither the server nor the network caused it. The cause is then a bug.
    """
    from urllib3.exceptions import HTTPError
    from websocket import WebSocketBadStatusException, WebSocketException

    if isinstance(error, WebSocketBadStatusException):
        body = json_object(error.resp_body)
        return Fault(str(body.get("message") or error), error.status_code, str(body.get("reason", "")))
    if isinstance(error, _Rejection):
        return error.fault
    if isinstance(error, HTTPError | WebSocketException | OSError | json.JSONDecodeError):
        return Fault(_readable(error), is_unsent=_is_unsent(error))
    raise error


def _fault_of_response(response: BaseHTTPResponse) -> Fault:
    """Return the fault that a response reports, and give its connection back."""
    content = response.data
    body = json_object(content)
    text = str(body.get("message") or response.reason or content.decode(errors="replace"))
    return Fault(text, response.status, str(body.get("reason", "")), _retry_after(response.headers))


def _time_text(value: object) -> str:
    """Return a date or time, which YAML manifests may contain, as Kubernetes writes it."""
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _is_unsent(error: Exception) -> bool:
    """Return whether a request failed before there was a connection to the server."""
    from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

    return isinstance(error, NewConnectionError | ConnectTimeoutError)


def json_object(content: str | bytes | bytearray | None) -> Mapping[str, Any]:
    """Return the object that a JSON text contains; empty if the text contains anything else."""
    try:
        parsed = json.loads(content or "{}")
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _retry_after(headers: Mapping[str, str] | None) -> float | None:
    """Return the seconds of a `Retry-After` header. Kubernetes does not send a date, which HTTP also allows."""
    text = (headers or {}).get("Retry-After", "")
    return min(float(text), _LONGEST_RETRY_AFTER) if text.isdigit() else None


def _readable(error: Exception) -> str:
    """Return the message of a failed connection, without the `<... object at 0x...>` texts that urllib3 adds."""
    from urllib3.exceptions import ProtocolError

    if isinstance(error, ProtocolError) and isinstance(error.args[-1], Exception):
        return _readable(error.args[-1])
    text = str(error) or type(error).__name__
    if isinstance(error, json.JSONDecodeError):
        return text
    return text.rpartition(">: ")[2].rpartition("object at 0x")[2].rpartition(": ")[2] or text
