"""The test server of GitHub's API limits rates, fails when a test says so, and records requests without tokens."""

from __future__ import annotations

from http import HTTPStatus

import httpx
import pytest
from github import Auth, Github, GithubException, GithubRetry, RateLimitExceededException
from requests.exceptions import ConnectionError as RequestsConnectionError

from tests.features.ci.servers import github
from tests.features.ci.unit.servers.conftest import Connect

_WRONG = "Invalid request.\n\nFor 'properties/body',"


def test_the_rate_limit_ends_with_its_budget(hub: github.Server, connect: Connect) -> None:
    token = hub.add_token()
    hub.set_rate_limit(token, remaining=2)
    repository = connect.with_token(token)
    repository.get_labels().totalCount  # noqa: B018 - uses the budget
    with pytest.raises(RateLimitExceededException) as error:
        repository.get_labels().totalCount  # noqa: B018
    assert (error.value.headers or {})["x-ratelimit-remaining"] == "0"
    hub.set_rate_limit(token, remaining=0, resets_in=0)
    assert repository.get_labels().totalCount == 0


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (github.primary_rate_limit(), 403),
        (github.primary_rate_limit(status=429), 429),
        (github.secondary_rate_limit(), 403),
        (github.secondary_rate_limit(status=429), 429),
        (github.server_error(500), 500),
        (github.server_error(502), 502),
    ],
)
def test_a_fault_applies_as_often_as_it_says(
    hub: github.Server, connect: Connect, fault: github.Fault, status: int
) -> None:
    hub.faults.add("GET", "*/labels", fault)
    repository = connect()
    with pytest.raises(GithubException) as error:
        repository.get_labels().totalCount  # noqa: B018
    assert error.value.status == status
    assert repository.get_labels().totalCount == 0


def test_pygithub_retries_after_a_secondary_rate_limit(hub: github.Server) -> None:
    hub.faults.add("POST", "*/comments", github.secondary_rate_limit(retry_after=0))
    number = hub.open_issue(by="alice")
    auth, retry = Auth.Token(hub.add_token(issues="write")), GithubRetry(total=1)
    with Github(
        base_url=hub.url, auth=auth, retry=retry, seconds_between_requests=0, seconds_between_writes=0
    ) as client:
        client.get_repo("owner/name").get_issue(number).create_comment("once")
    assert [comment.body for comment in hub.comments(number)] == ["once"]
    assert [request.status for request in hub.requests("POST")] == [403, 201]


@pytest.mark.parametrize("takes_effect", [False, True])
def test_a_lost_connection_may_hide_an_effect(hub: github.Server, connect: Connect, takes_effect: bool) -> None:
    number = hub.open_issue(by="alice")
    issue = connect(issues="write").get_issue(number)
    hub.faults.add("POST", "*/comments", github.dropped_connection(takes_effect=takes_effect))
    with pytest.raises(RequestsConnectionError):
        issue.create_comment("hello")
    assert len(hub.comments(number)) == takes_effect


def test_an_answer_may_end_in_the_middle(hub: github.Server) -> None:
    hub.faults.add("GET", "*", github.dropped_connection(truncates=True))
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.get(f"{hub.url}/repos/owner/name")


def test_a_slow_answer_ends_with_the_server() -> None:
    with github.serving() as hub:
        hub.faults.add("GET", "*", github.slow(60))
        with pytest.raises(httpx.ReadTimeout):
            httpx.get(f"{hub.url}/repos/owner/name", timeout=0.05)


def test_records_have_no_token(hub: github.Server) -> None:
    token = hub.add_token("alice")
    number = hub.open_issue(by="alice")
    headers = {"Authorization": f"Bearer {token}"}
    httpx.post(f"{hub.url}/repos/owner/name/issues/{number}/comments", headers=headers, json={"body": f"my {token}"})
    (request,) = hub.requests("POST")
    assert (request.login, request.body, request.leaked_token) == ("alice", {"body": "my ***"}, True)
    assert token not in repr(request)


@pytest.mark.parametrize(
    ("content", "status", "message"),
    [
        (b"{", HTTPStatus.BAD_REQUEST, "Problems parsing JSON"),
        (b"{}", HTTPStatus.UNPROCESSABLE_ENTITY, 'Invalid request.\n\n"body" wasn\'t supplied.'),
        (b'{"body": null}', HTTPStatus.UNPROCESSABLE_ENTITY, f"{_WRONG} nil is not a string."),
    ],
)
def test_a_faulty_body_is_refused(hub: github.Server, content: bytes, status: int, message: str) -> None:
    headers = {"Authorization": f"token {hub.add_token('alice')}"}
    url = f"{hub.url}/repos/owner/name/issues/{hub.open_issue(by='alice')}/comments"
    answer = httpx.post(url, headers=headers, content=content)
    assert (answer.status_code, answer.json()["message"]) == (status, message)


def test_a_stranger_reads_but_does_not_write(hub: github.Server) -> None:
    assert httpx.get(f"{hub.url}/repos/owner/name").json()["permissions"]["push"] is False
    assert httpx.post(f"{hub.url}/repos/owner/name/labels", json={"name": "x"}).status_code == HTTPStatus.UNAUTHORIZED
    assert httpx.get(f"{hub.url}/nothing").json()["message"] == "Not Found"


def test_a_stopped_server_ends_the_connections_that_clients_keep() -> None:
    with httpx.Client() as client:
        with github.serving() as hub:
            assert client.get(hub.url).status_code == HTTPStatus.NOT_FOUND
        with pytest.raises(httpx.ConnectError):
            client.get(hub.url)
