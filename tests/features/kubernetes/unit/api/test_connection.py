"""Requests are repeated if the server is unavailable or overloaded, and fail if it rejects them."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from tests.features.kubernetes.fakes import api_server
from tests.features.kubernetes.fakes.api_server import BREAK, HOLD, Answer, ApiServer, Request, failure
from toolbox.features.kubernetes.api import access, connection
from toolbox.features.kubernetes.api.connection import ApiError, Cluster, Json, Unavailable
from toolbox.ground.model.clusters import Access
from toolbox.ground.model.errors import Cancelled, StepError, outcome_of
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.ground.system import cancellation

PATH = "/api/v1/nodes"
TIMEOUT = (5.0, 30.0)
FOUND = {"items": [1]}


@pytest.fixture(autouse=True)
def _without_long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_FIRST_PAUSE", 0.02)
    monkeypatch.setattr(access, "_RELOAD_SECONDS", 0)


def ask(cluster: Cluster, timeout: float = 30) -> Json:
    return cluster.request("GET", PATH, timeout=timeout)


def test_a_requested_pause_is_respected(server: ApiServer, cluster: Cluster) -> None:
    server.answers("GET", PATH, failure(429, Retry_After="1"), FOUND)
    began = time.monotonic()
    assert ask(cluster) == FOUND
    assert time.monotonic() - began >= 1


@pytest.mark.parametrize(("header", "expected"), [("7", 7), ("3600", 60), ("Wed, 21 Oct 2026 07:28:00 GMT", None)])
def test_a_pause_is_a_number_of_seconds_and_not_too_long(header: str, expected: float | None) -> None:
    assert connection._retry_after({"Retry-After": header}) == expected


def test_a_requested_pause_beyond_the_timeout_is_an_error(server: ApiServer, cluster: Cluster) -> None:
    server.answers("GET", PATH, failure(429, "too many requests", Retry_After="30"))
    began = time.monotonic()
    with pytest.raises(Unavailable, match="too many requests"):
        ask(cluster, timeout=10)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    "trouble",
    [
        failure(503, "leader changed"),
        failure(500),
        Answer(b"<html>", 502, {"Content-Type": "text/html"}),
        Answer(b"<html>"),  # a proxy sends HTML as JSON
        Answer([b'{"items"', BREAK]),
    ],
)
def test_a_request_is_repeated_after_a_server_error(server: ApiServer, cluster: Cluster, trouble: Answer) -> None:
    server.answers("GET", PATH, trouble, trouble, FOUND)
    assert ask(cluster) == FOUND
    assert server.count("GET", PATH) == 3


def test_a_request_is_repeated_while_the_server_is_unreachable(tmp_path: Path) -> None:
    with api_server.serving(tmp_path) as before:
        cluster = Cluster(Access(str(before.kubeconfig)))
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, cluster)
        time.sleep(0.5)
        again = api_server.ApiServer(tmp_path / "kubeconfig", before.server_port)
        again.answers("GET", PATH, FOUND)
        with api_server.running(again):
            assert answer.result() == FOUND
            cluster.close()


def test_the_error_of_an_unavailable_server_has_the_cause_and_the_time(tmp_path: Path) -> None:
    with api_server.serving(tmp_path) as before:
        cluster = Cluster(Access(str(before.kubeconfig)), label="sut")
    with pytest.raises(Unavailable) as caught:
        ask(cluster, timeout=1)
    assert str(caught.value) == "sut: the API server does not answer for 1 s: [Errno 111] Connection refused"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (Answer([HOLD]), "Read timed out."),
        (Answer([b"{", BREAK]), "IncompleteRead(1 bytes read)"),
        (Answer(b"<html>"), "unexpected character, expected a JSON value: line 1 column 1 (char 0)"),
        (failure(503, "etcdserver: leader changed"), "etcdserver: leader changed"),
        (Answer(b"", 504, {}), "Gateway Timeout"),
    ],
)
def test_an_error_message_contains_only_its_cause(
    server: ApiServer, cluster: Cluster, answer: Answer, text: str
) -> None:
    server.answers("GET", PATH, answer)
    with pytest.raises(Unavailable) as caught:
        ask(cluster, timeout=0)
    assert str(caught.value) == f"sut: the API server does not answer: {text}"


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        (400, Cause.CONFIGURATION),
        (403, Cause.CONFIGURATION),
        (404, Cause.INFRASTRUCTURE),
        (409, Cause.INFRASTRUCTURE),
        (422, Cause.CONFIGURATION),
    ],
)
def test_a_rejected_request_is_not_repeated(server: ApiServer, cluster: Cluster, status: int, cause: Cause) -> None:
    server.answers("GET", PATH, failure(status, 'nodes is forbidden: User "a" cannot'))
    with pytest.raises(ApiError) as caught:
        ask(cluster)
    assert str(caught.value) == 'sut: nodes is forbidden: User "a" cannot'
    assert (caught.value.status, caught.value.cause, server.count("GET", PATH)) == (status, cause, 1)


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ("pods is forbidden: exceeded quota: small", Cause.CAPACITY),
        ("unable to create in namespace a because it is being terminated", Cause.INFRASTRUCTURE),
    ],
)
def test_an_exceeded_quota_and_a_terminating_namespace_are_not_configuration_errors(
    server: ApiServer, cluster: Cluster, message: str, cause: Cause
) -> None:
    server.answers("GET", PATH, failure(403, message))
    with pytest.raises(ApiError, match=message) as caught:
        ask(cluster)
    assert caught.value.cause is cause


def test_absent_and_existing_objects_are_distinguished(server: ApiServer, cluster: Cluster) -> None:
    server.answers("GET", PATH, failure(404), failure(409), failure(410))
    found = []
    for _ in range(3):
        with pytest.raises(ApiError) as caught:
            ask(cluster)
        found.append((caught.value.is_absent, caught.value.is_there, caught.value.is_too_old))
    assert found == [(True, False, False), (False, True, False), (False, False, True)]


def test_a_renewed_token_is_read_from_its_file(server: ApiServer, cluster: Cluster) -> None:
    def answer(request: Request) -> Json | Answer:
        return FOUND if request.headers["authorization"] == "Bearer second" else failure(401, "Unauthorized")

    server.answers("GET", PATH, answer)
    server.admit("second")
    assert ask(cluster) == FOUND


def test_a_token_that_stays_refused_is_not_an_unavailable_server(server: ApiServer, cluster: Cluster) -> None:
    server.answers("GET", PATH, failure(401))
    with pytest.raises(ApiError, match=r"sut: the credentials are refused \(401\): the token has expired") as caught:
        ask(cluster, timeout=1)
    assert caught.value.is_unauthorized


def test_an_invalid_manifest_is_a_configuration_error(server: ApiServer, cluster: Cluster) -> None:
    message = "failed to create typed patch object (/x): .spec.replicas: expected numeric (int or float), got string"
    server.answers("GET", PATH, failure(500, message))
    with pytest.raises(ApiError, match="expected numeric") as caught:
        ask(cluster)
    assert outcome_of(caught.value) == (Verdict.ERROR, Cause.CONFIGURATION)
    assert server.count("GET", PATH) == 1


def test_a_response_that_is_not_json_is_returned_as_text(server: ApiServer, cluster: Cluster) -> None:
    server.answers("GET", PATH, Answer("é\xff".encode("latin-1"), headers={"Content-Type": "text/plain"}))
    assert ask(cluster) == {"text": "\ufffd\ufffd"}
    server.answers("GET", PATH, Answer(b""))
    assert ask(cluster) == {}


def test_a_cancelled_scope_ends_the_wait(server: ApiServer, cluster: Cluster) -> None:
    server.answers("GET", PATH, failure(503, Retry_After="20"))
    began = time.monotonic()
    with cancellation.opened() as scope:
        threading.Timer(0.2, scope.cancel, ["enough"]).start()
        with pytest.raises(Cancelled, match="enough"):
            ask(cluster)
    assert time.monotonic() - began < 5


def test_a_bug_of_the_caller_is_not_a_fault_of_the_server(cluster: Cluster) -> None:
    with pytest.raises(TypeError, match="object has no form in JSON"):
        cluster.request("POST", PATH, body={"metadata": object()})


def test_a_query_is_quoted_and_has_the_booleans_of_kubernetes(server: ApiServer, cluster: Cluster) -> None:
    server.answers("GET", PATH, FOUND)
    cluster.request("GET", PATH, query={"force": True, "limit": 5, "labelSelector": "a=b c,d/é!=&"})
    assert server.requests[0].query == {"force": ["true"], "limit": ["5"], "labelSelector": ["a=b c,d/é!=&"]}


def test_a_time_of_a_manifest_is_sent_as_kubernetes_writes_it(server: ApiServer, cluster: Cluster) -> None:
    server.answers("POST", PATH, FOUND)
    cluster.request("POST", PATH, body=yaml.safe_load("{day: 2026-01-02, at: 2026-01-02T03:04:05Z, 1: [é]}"))
    assert server.requests[0].body == {"day": "2026-01-02", "at": "2026-01-02T03:04:05+00:00", "1": ["é"]}


def test_a_streaming_request_is_not_repeated(server: ApiServer, cluster: Cluster) -> None:
    server.answers("GET", PATH, failure(404, "no such pod"), failure(503, "busy"), Answer([b"1", b"2"]))
    with pytest.raises(ApiError, match="sut: no such pod"):
        cluster.stream(PATH, {}, TIMEOUT)
    with pytest.raises(Unavailable, match="sut: the API server does not answer: busy"):
        cluster.stream(PATH, {}, TIMEOUT)
    response = cluster.stream(PATH, {}, TIMEOUT)
    assert b"".join(response.stream()) == b"12"
    response.release_conn()


def test_a_rejected_token_is_replaced_by_the_renewed_token(server: ApiServer, cluster: Cluster) -> None:
    server.answers("GET", PATH, failure(401), FOUND)
    server.admit("second")
    with pytest.raises(ApiError):
        cluster.stream(PATH, {}, TIMEOUT)
    assert ask(cluster) == FOUND
    assert [each.headers["authorization"] for each in server.requests] == ["Bearer first", "Bearer second"]


# A failed request may have been executed


@pytest.mark.parametrize(
    ("answers", "may_be_done"),
    [
        ([failure(403)], False),
        ([failure(429), failure(403)], False),
        ([Answer([b"{", BREAK]), failure(403)], True),
        ([failure(500), failure(409)], True),
        ([failure(504)], True),
        ([Answer([HOLD])], True),
        ([failure(401)], False),
    ],
)
def test_a_refusal_does_not_hide_that_an_earlier_try_may_have_been_executed(
    server: ApiServer, cluster: Cluster, answers: list[Answer], may_be_done: bool
) -> None:
    server.answers("POST", PATH, *answers)
    with pytest.raises(StepError) as caught:
        cluster.request("POST", PATH, body={}, timeout=1)
    assert isinstance(caught.value, ApiError | Unavailable)
    assert caught.value.may_be_done is may_be_done


def test_a_request_without_a_connection_has_not_been_executed(tmp_path: Path) -> None:
    with api_server.serving(tmp_path) as before:
        cluster = Cluster(Access(str(before.kubeconfig)))
    with pytest.raises(Unavailable) as caught:
        cluster.request("POST", PATH, body={}, timeout=0.5)
    assert caught.value.may_be_done is False


def test_a_request_to_an_unknown_host_name_has_not_been_executed(server: ApiServer, tmp_path: Path) -> None:
    text = server.kubeconfig.read_text().replace("127.0.0.1", "no-such-host.invalid")
    (tmp_path / "elsewhere").write_text(text)
    cluster = Cluster(Access(str(tmp_path / "elsewhere")))
    with pytest.raises(Unavailable) as caught:
        cluster.request("POST", PATH, body={}, timeout=0)
    assert caught.value.may_be_done is False
