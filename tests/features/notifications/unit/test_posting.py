"""A message is posted with a time limit and few tries, and no error contains the URL."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from tests.features.notifications.servers import webhook
from tests.features.notifications.servers.webhook import PATH, Answer, Server
from toolbox.features.notifications import posting
from toolbox.features.notifications.posting import WebhookError
from toolbox.ground.model.errors import ConfigurationError
from toolbox.ground.model.secrets import Secret

TOKEN = PATH.rpartition("/")[2]


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as opened:
        yield opened


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posting, "_FIRST_PAUSE", 0.01)


def post(url: str, timeout: float = 20) -> None:
    posting.post(Secret(url, reference="@secrets.hook"), b'{"a": 1}', {"x-extra": "yes"}, timeout=timeout)


def fault(url: str, timeout: float = 20) -> str:
    with pytest.raises(WebhookError) as caught:
        post(url, timeout)
    return str(caught.value)


def test_a_message_arrives_with_its_headers(server: Server) -> None:
    post(server.url)
    (request,) = server.requests
    assert (request.path, request.body) == (PATH, b'{"a": 1}')
    assert (request.headers["Content-Type"], request.headers["x-extra"]) == ("application/json", "yes")


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_temporary_fault_is_retried(server: Server, status: int) -> None:
    server.answers = [Answer(status), Answer(status)]
    post(server.url)
    assert len(server.requests) == 3


@pytest.mark.parametrize("status", [400, 403, 404, 410])
def test_a_refusal_is_not_retried_and_its_reason_is_reported(server: Server, status: int) -> None:
    server.usual = Answer(status, b"no_service\x1b[31m\nsecond line")
    assert fault(server.url) == f"HTTP status {status}: no_service second line"
    assert len(server.requests) == 1


def test_after_three_tries_the_last_fault_is_reported(server: Server) -> None:
    server.usual = Answer(500, b"")
    assert fault(server.url) == "HTTP status 500"
    assert len(server.requests) == 3


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_the_time_that_a_busy_server_names_is_waited_for(server: Server, form: str) -> None:
    in_two_seconds = format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)
    server.answers = [Answer(429, headers={"Retry-After": "1" if form == "seconds" else in_two_seconds})]
    began = time.monotonic()
    post(server.url)
    assert time.monotonic() - began > 0.7
    assert len(server.requests) == 2


def test_a_server_that_asks_to_wait_longer_than_the_time_limit_is_given_up_at_once(server: Server) -> None:
    server.usual = Answer(429, headers={"Retry-After": "9" * 30})
    assert fault(server.url).startswith("HTTP status 429: ok; it asks to wait ")
    assert len(server.requests) == 1


def test_a_redirect_is_not_followed(server: Server) -> None:
    with Server() as other:
        server.usual = Answer(307, b"", {"Location": other.url})
        assert fault(server.url) == "HTTP status 307 (a redirect, which is not followed)"
        assert other.requests == []


def test_a_server_that_does_not_answer_exceeds_the_time_limit(server: Server) -> None:
    server.usual = Answer(hangs=True)
    began = time.monotonic()
    assert "no answer within " in fault(server.url, timeout=1)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("status", [200, 500])
def test_an_endless_answer_is_not_received(server: Server, status: int) -> None:
    server.usual = Answer(status, is_endless=True)
    if status == 200:
        post(server.url)
    else:
        assert len(fault(server.url)) <= 300


def test_a_server_that_refuses_connections_is_reported_without_the_url() -> None:
    with Server() as closed:
        url = closed.url
    text = fault(url)
    assert text.startswith("ConnectError: ")
    assert TOKEN not in text


@pytest.mark.parametrize("size", [*range(200, 320, 7), *range(4000, 4200, 7)])
def test_a_url_is_masked_also_where_an_answer_is_truncated(server: Server, size: int) -> None:
    server.usual = Answer(404, f"{'x' * size} {server.url}".encode())
    assert TOKEN[:12] not in fault(server.url)


@pytest.mark.parametrize("echo", [PATH, TOKEN, f"Cannot POST http://127.0.0.1{PATH}?x=1"])
def test_an_answer_that_repeats_the_url_is_masked(server: Server, echo: str) -> None:
    server.usual = Answer(404, echo.encode())
    text = fault(server.url)
    assert "***" in text
    assert TOKEN not in text


def test_a_trusted_certificate_is_accepted_and_another_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Server(tmp_path) as server:
        assert "CERTIFICATE_VERIFY_FAILED" in fault(server.url)
        monkeypatch.setenv("SSL_CERT_FILE", str(server.certificate))
        post(server.url)
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    "text", ["", "s3cr3t", "ftp://host/s3cr3t", "https://", "http://h:x/s3cr3t", "https://a b/s3cr3t"]
)
def test_a_secret_that_is_not_a_url_is_not_shown(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"the secret @secrets\.hook is not a URL that begins with") as caught:
        posting.verify(Secret(text, reference="@secrets.hook"), "the notifier `slack`")
    assert "s3cr3t" not in str(caught.value)


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(ConfigurationError, match=r"`slack` needs httpx, .*\[notifications\]"):
        posting.verify(Secret(f"https://{webhook.ADDRESS}/"), "the notifier `slack`")
