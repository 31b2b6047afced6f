"""Tests of how the replies of a hub become results and errors, with a transport in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from toolbox.features.notebooks.jupyterhub import hub_api
from toolbox.features.notebooks.jupyterhub.hub_api import HubAccess, HubApi
from toolbox.features.notebooks.jupyterhub.hub_errors import HubError
from toolbox.features.notebooks.jupyterhub.hub_replies import Progress
from toolbox.ground.model.errors import Cancelled, ConfigurationError
from toolbox.ground.model.secrets import Secret
from toolbox.ground.model.verdicts import Cause
from toolbox.ground.system import cancellation
from toolbox.ground.system.cancellation import CancelScope

TOKEN = "correct-horse-battery"
URL = "http://hub.example.org/jupyter"


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_api, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(hub_api, "_LONGEST_PAUSE", 0.01)


class Hub:
    """Answers requests in memory, and records them."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.requests: list[httpx.Request] = []
        self._answers = list(answers)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@contextmanager
def connected(handler: Callable[[httpx.Request], httpx.Response]) -> Iterator[HubApi]:
    with HubApi(HubAccess(URL, Secret(TOKEN)), transport=httpx.MockTransport(handler)) as api:
        yield api


def servers(hub: Hub, seconds: float = 5.0) -> dict[str, Any]:
    with connected(hub) as api:
        return dict(api.run(api.servers("ann", seconds=seconds)))


def refused(hub: Hub, seconds: float = 0.0) -> HubError:
    with pytest.raises(HubError) as caught:
        servers(hub, seconds)
    return caught.value


EMPTY = httpx.Response(200, json={"name": "ann", "servers": {}})


def test_requests_carry_the_token_and_go_below_the_address() -> None:
    hub = Hub(EMPTY)
    assert servers(hub) == {}
    (request,) = hub.requests
    assert str(request.url) == f"{URL}/hub/api/users/ann?include_stopped_servers"
    assert request.headers["authorization"] == f"token {TOKEN}"


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_request_is_repeated_while_the_hub_is_overloaded(status: int) -> None:
    hub = Hub(httpx.Response(status), httpx.Response(status), EMPTY)
    assert servers(hub) == {}
    assert len(hub.requests) == 3


def test_a_request_is_repeated_while_connections_are_refused() -> None:
    hub = Hub(httpx.ConnectError("Connection refused"), EMPTY)
    assert servers(hub) == {}
    assert len(hub.requests) == 2


def test_a_hub_that_stays_overloaded_is_an_error_of_the_infrastructure() -> None:
    error = refused(Hub(httpx.Response(503, json={"message": "maintenance"})), 0.05)
    assert error.cause is Cause.INFRASTRUCTURE
    assert "maintenance (HTTP 503)" in str(error)
    assert "tries in" in str(error)


def test_a_hub_that_stays_full_is_a_lack_of_capacity() -> None:
    error = refused(Hub(httpx.Response(429, json={"message": "Active user limit exceeded"})))
    assert error.cause is Cause.CAPACITY


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_token_is_a_fault_of_the_configuration_that_names_the_scopes(status: int) -> None:
    hub = Hub(httpx.Response(status, json={"message": "Action is not authorized with current scopes"}))
    error = refused(hub, 60.0)
    assert len(hub.requests) == 1
    assert error.cause is Cause.CONFIGURATION
    assert "read:users:name, servers, access:servers" in str(error)


def test_a_hub_without_named_servers_is_a_fault_of_the_configuration() -> None:
    error = refused(Hub(httpx.Response(400, json={"status": 400, "message": "Named servers are not enabled."})))
    assert error.cause is Cause.CONFIGURATION
    assert "allow_named_servers" in str(error)


def test_a_redirect_is_not_followed() -> None:
    hub = Hub(httpx.Response(302, headers={"Location": "http://elsewhere.example.org/"}))
    error = refused(hub, 60.0)
    assert [request.url.host for request in hub.requests] == ["hub.example.org"]
    assert error.cause is Cause.CONFIGURATION
    assert "set `url`" in str(error)


def test_no_error_contains_the_token_or_control_characters() -> None:
    error = refused(Hub(httpx.Response(500, json={"message": f"\x1b[31mbad {TOKEN}\n\x07"})))
    assert TOKEN not in str(error)
    assert "bad ***" in str(error)
    assert str(error).isprintable()


def test_a_lost_connection_does_not_show_the_token() -> None:
    assert TOKEN not in str(refused(Hub(httpx.ReadError(f"broken while sending {TOKEN}"))))


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"servers": null}', b"[" * 100_000])
def test_a_reply_that_is_not_of_a_hub_is_an_error(body: bytes) -> None:
    assert "check that `url` is the address of a JupyterHub" in str(refused(Hub(httpx.Response(200, content=body))))


def test_a_reply_that_is_too_long_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_api, "_LARGEST_REPLY", 1000)
    assert "longer than 1000 bytes" in str(refused(Hub(httpx.Response(200, content=b"x" * 1001))))


def test_a_server_is_requested_with_its_options() -> None:
    hub = Hub(httpx.Response(202))
    with connected(hub) as api:
        api.run(api.start_server("ann", "tg-1", {"profile": "small"}))
    (request,) = hub.requests
    assert (request.method, request.url.path) == ("POST", "/jupyter/hub/api/users/ann/servers/tg-1")
    assert request.content == b'{"profile":"small"}'


def test_a_server_is_deleted_with_its_record() -> None:
    hub = Hub(httpx.Response(202))
    with connected(hub) as api:
        api.run(api.delete_server("ann", "tg-1"))
    assert hub.requests[0].content == b'{"remove":true}'


def events(content: bytes, status: int = 200) -> list[Progress]:
    async def collect(api: HubApi) -> list[Progress]:
        return [event async for event in api.progress("ann", "tg-1")]

    with connected(Hub(httpx.Response(status, content=content))) as api:
        return api.run(collect(api))


def test_events_of_a_start_are_read() -> None:
    stream = b"""
data: {"progress": 10, "message": "pulling \\u001b[31mthe image"}

: a comment
data: not JSON
data: [1]
data: {"message": 1}

data: {"message": "no node", "raw_event": {"reason": "FailedScheduling"}}
data: {"ready": true, "url": "http://elsewhere.example.org/"}
"""
    assert events(stream) == [
        Progress("pulling the image"),
        Progress(""),
        Progress("no node", lacks_room=True),
        Progress("", is_ready=True),
    ]


def test_an_event_that_is_too_long_is_an_error() -> None:
    with pytest.raises(HubError, match="longer than"):
        events(b"data: " + b"x" * (1 << 19))


def test_a_refused_stream_has_the_reason_of_the_hub() -> None:
    with pytest.raises(HubError, match=r"is not starting \(HTTP 400\)"):
        events(b'{"message": "tg-1 is not starting"}', status=400)


def test_a_cancelled_scope_ends_a_request() -> None:
    scope = CancelScope()

    def handle(_: httpx.Request) -> httpx.Response:
        scope.cancel("enough")
        return httpx.Response(503)

    with connected(handle) as api, cancellation.entered(scope), pytest.raises(Cancelled, match="enough"):
        api.run(api.servers("ann", seconds=3600))


@pytest.mark.parametrize("token", ["", " ", "two words", "line\nbreak", "é"])
def test_a_token_that_no_header_can_carry_is_refused(token: str) -> None:
    with pytest.raises(ConfigurationError, match="token"):
        HubApi(HubAccess(URL, Secret(token)))


def test_a_missing_file_of_certificates_is_a_fault_of_the_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="ca_file"):
        HubApi(HubAccess(URL, Secret(TOKEN), tmp_path / "none.pem"))
