"""One cluster, by the official client. Every request goes through `Cluster.ask`: it bears with a server that is away.

What comes back is the JSON of the answer. The client's own models would cost ten times as much to make, and would drop
what they do not know.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from toolbox.kubernetes.api.access import Credentials
from toolbox.model import backoff
from toolbox.model.clusters import Access
from toolbox.model.errors import StepError
from toolbox.model.verdicts import Cause, Verdict
from toolbox.system import cancellation

if TYPE_CHECKING:
    from kubernetes import client
    from urllib3 import BaseHTTPResponse

log = logging.getLogger(__name__)

Json = dict[str, Any]

PATIENCE: Final = 60.0  # seconds, where nobody says how long a server may be away
_TIMEOUT: Final = (5.0, 30.0)  # seconds, to connect and between two pieces of an answer
_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 5.0
_LONGEST_ASKED: Final = 60.0  # of what a server asks us to wait
_JSON: Final = "application/json"
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _CONFLICT, _GONE, _INVALID, _BUSY = 401, 403, 404, 409, 410, 422, 429
_TROUBLE: Final = 500
# By these words alone are they told from what we may not do at all.
_USED_UP: Final = "exceeded quota"
_TERMINATING: Final = "because it is being terminated"
# What servers before 1.22 call a trouble of theirs (500), and is one of ours.
_MALFORMED: Final = ("failed to create typed patch object", "quantities must match the regular expression")


class Refused(StepError):
    """The server has understood a request, and will not do it.

    Args:
        status: of HTTP.
        reason: as Kubernetes names it: `NotFound`, `AlreadyExists`, `Forbidden`.

    Attributes:
        may_be_done: whether an earlier try of the same request may have been carried out.
    """

    may_be_done = False

    def __init__(self, message: str, *, status: int, reason: str, cause: Cause = Cause.INFRASTRUCTURE) -> None:
        super().__init__(message, verdict=Verdict.ERROR, cause=cause)
        self.status = status
        self.reason = reason

    @property
    def is_absent(self) -> bool:
        """Whether there is no such thing."""
        return self.status == _NOT_FOUND

    @property
    def is_there(self) -> bool:
        """Whether it could not be created because there is one of this name."""
        return self.status == _CONFLICT and self.reason == "AlreadyExists"

    @property
    def is_too_old(self) -> bool:
        """Whether what was asked for is no longer kept: list again."""
        return self.status == _GONE

    @property
    def is_of_a_stranger(self) -> bool:
        """Whether the server does not know us: a token may yet be renewed."""
        return self.status == _UNAUTHORIZED


class Away(StepError):
    """The server did not answer, or is in trouble, for as long as it was waited for.

    Attributes:
        may_be_done: whether a try of the request may have been carried out: its answer was lost.
    """

    may_be_done = False

    def __init__(self, message: str) -> None:
        super().__init__(message, verdict=Verdict.ERROR, cause=Cause.INFRASTRUCTURE)


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a request was not answered, and whether it may be asked again.

    Args:
        pause: what the server asks us to wait, in seconds.
        is_unsent: whether there was no connection by which the request could have been sent.
    """

    text: str
    status: int = 0
    reason: str = ""
    pause: float | None = None
    is_unsent: bool = False

    @property
    def passes(self) -> bool:
        """Whether it may be over when it is asked again."""
        if any(sign in self.text for sign in _MALFORMED):
            return False
        return self.status == 0 or self.status in (_BUSY, _UNAUTHORIZED) or self.status >= _TROUBLE

    @property
    def may_be_done(self) -> bool:
        """Whether the server may have carried out the request. An answer below 500 says that it has not."""
        return self.status >= _TROUBLE or (self.status == 0 and not self.is_unsent)


class Cluster:
    """One cluster.

    Args:
        label: what messages call it.

    Raises:
        ConfigurationError: nobody says how to reach it.
    """

    def __init__(self, access: Access, *, label: str = "") -> None:
        self.access = access
        self.credentials = Credentials.load(access)
        self.label = label or access.context or "the cluster"
        self._client = self.new_client()

    @property
    def namespace(self) -> str:
        """The namespace in which we work."""
        return self.credentials.namespace

    def new_client(self) -> client.ApiClient:
        """Return a client of its own: one that executes in a pod serves nothing else meanwhile."""
        from kubernetes import client

        return client.ApiClient(self.credentials.configuration)

    def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Json | list[Json] | None = None,
        content: str = _JSON,
        patience: float = PATIENCE,
    ) -> Json:
        """Ask something, again while the server is away, in trouble or too busy, and return the answer.

        An answer that is no JSON is a `text`.

        A request that is repeated may have been carried out before: to create is answered by `Refused.is_there` then.

        Args:
            method: of HTTP, and `path`: of the API.
            body: what is sent, and `content`: of what type it is.
            patience: how long the server may be away, in seconds.

        Raises:
            Refused: it will not be done.
            Away: there was no answer for so long.
            Cancelled: the scope of this thread was.
        """
        deadline = time.monotonic() + patience
        may_be_done = False
        tries = 0
        while True:
            # A request that takes longer than we are patient is as good as none.
            left = max(1.0, deadline - time.monotonic())
            try:
                return _json(
                    self._call(method, path, query, body, content, tuple(min(each, left) for each in _TIMEOUT))
                )
            except Exception as error:  # noqa: BLE001  # of the client and of all that it is built on
                fault = fault_of(error)
            may_be_done = may_be_done or fault.may_be_done
            wait = max(fault.pause or 0.0, backoff.pause(tries, first=_FIRST_PAUSE, most=_LONGEST_PAUSE))
            if not fault.passes or time.monotonic() + wait >= deadline:
                refusal = self.refusal(fault, patience)
                refusal.may_be_done = may_be_done
                raise refusal
            log.debug("%s: %s: asked again in %.1f s", self.label, fault.text, wait)
            cancellation.current().sleep(wait)
            tries += 1
            if fault.status == _UNAUTHORIZED:
                self.credentials.reload()

    def stream(self, path: str, query: Mapping[str, Any], timeout: tuple[float, float]) -> BaseHTTPResponse:
        """Return an answer that goes on: a watch, or a log that is followed.

        Its `stream()` ends when the server ends it; who ends it from another thread calls `shut`.

        Args:
            timeout: in seconds, to connect and between two pieces.

        Raises:
            Refused: it will not be done.
            Away: the server did not answer.
        """
        try:
            return self._call("GET", path, query, None, _JSON, timeout)
        except Exception as error:  # as in `ask`
            raise self.refused(error) from error

    def refused(self, error: Exception) -> Refused | Away:
        """Return what an error of the client comes to for a request that is not repeated here."""
        fault = fault_of(error)
        if fault.status == _UNAUTHORIZED:
            self.credentials.reload()
        return self.refusal(fault, 0.0)

    def close(self) -> None:
        """Close the connections that nobody uses; those that are in use are closed after that."""
        manager = self._client.rest_client.pool_manager
        for key in list(manager.pools.keys()):
            if (pool := manager.pools.get(key)) is not None:
                pool.close()
        manager.clear()

    def refusal(self, fault: Fault, patience: float) -> Refused | Away:
        """Return the error that a fault is, after so many seconds of patience."""
        if fault.status == _UNAUTHORIZED:
            text = f"{self.label}: the credentials are refused (401): the token has expired, or is none of this cluster"
            return Refused(text, status=fault.status, reason=fault.reason)
        if fault.passes:
            if fault.pause is not None and fault.pause > patience:
                return Away(f"{self.label}: the API server asks us to wait {fault.pause:.0f} s: {fault.text}")
            waited = f" for {patience:.0f} s" if round(patience) else ""
            return Away(f"{self.label}: the API server does not answer{waited}: {fault.text}")
        return Refused(f"{self.label}: {fault.text}", status=fault.status, reason=fault.reason, cause=_cause(fault))

    def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        body: Json | list[Json] | None,
        content: str,
        timeout: tuple[float, ...],
    ) -> BaseHTTPResponse:
        """Ask once: what the methods of the official client do, for less, and for kinds that it does not know."""
        from kubernetes.client import ApiException

        request = self._client.param_serialize(
            method,
            path,
            query_params=list((query or {}).items()),
            header_params={"Accept": f"{_JSON}, */*", "Content-Type": content},
            body=body,
            auth_settings=["BearerToken"],
        )
        response = self._client.call_api(*request, _request_timeout=timeout)
        if not 200 <= response.status < 300:  # noqa: PLR2004  # success, in HTTP
            response.read()
            raise ApiException.from_response(http_resp=response, body=None, data=None)
        return cast("BaseHTTPResponse", response.response)


def shut(response: BaseHTTPResponse) -> None:
    """End an answer that goes on: who reads it in another thread gets the end of it."""
    try:
        response.shutdown()
    except (OSError, ValueError, AttributeError, RuntimeError) as error:
        log.debug("a connection could not be shut down: %s", error)


def _cause(fault: Fault) -> Cause:
    if fault.status == _FORBIDDEN and _USED_UP in fault.text:
        return Cause.CAPACITY
    if fault.status == _FORBIDDEN and _TERMINATING in fault.text:
        return Cause.INFRASTRUCTURE  # somebody deletes the namespace
    # What is wrong with the request itself, or with our rights, is no better next time.
    is_ours = fault.status in (400, _FORBIDDEN, _INVALID) or any(sign in fault.text for sign in _MALFORMED)
    return Cause.CONFIGURATION if is_ours else Cause.INFRASTRUCTURE


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
    """Return what an error of the client says.

    Raises:
        Exception: it is a mistake of ours, and nothing that a server or a network does.
    """
    from kubernetes.client import ApiException
    from urllib3.exceptions import HTTPError
    from websocket import WebSocketException

    if isinstance(error, ApiException) and error.status:
        body = _parsed(error.body)
        text = str(body.get("message") or error.reason or error.body)
        return Fault(text, error.status, str(body.get("reason", "")), _retry_after(error.headers))
    if isinstance(error, ApiException | HTTPError | WebSocketException | OSError | json.JSONDecodeError):
        return Fault(_readable(error), is_unsent=_is_unsent(error))
    raise error


def _is_unsent(error: Exception) -> bool:
    """Tell whether a request failed before there was a connection: refused, no such host, no answer to the connect."""
    from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

    return isinstance(error, NewConnectionError | ConnectTimeoutError)


def _parsed(body: str | bytes | None) -> Mapping[str, Any]:
    try:
        found = json.loads(body or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _retry_after(headers: Mapping[str, str] | None) -> float | None:
    """Return the seconds of a header `Retry-After`; its other form, a date, is not what Kubernetes sends."""
    text = (headers or {}).get("Retry-After", "")
    return min(float(text), _LONGEST_ASKED) if text.isdigit() else None


def _readable(error: Exception) -> str:
    """Return what a failed connection says, without the objects that its layers name."""
    from urllib3.exceptions import ProtocolError

    if isinstance(error, ProtocolError) and isinstance(error.args[-1], Exception):
        return _readable(error.args[-1])
    text = str(error) or type(error).__name__
    if isinstance(error, json.JSONDecodeError):
        return text
    return text.rpartition(">: ")[2].rpartition("object at 0x")[2].rpartition(": ")[2] or text
