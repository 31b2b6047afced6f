"""Requests to GitLab are repeated where this is safe. A refusal is an error with the words of GitLab."""

from __future__ import annotations

import pytest

from tests.features.ci.servers import github, gitlab
from toolbox.features.ci.gitlab import gitlab_api
from toolbox.features.ci.gitlab.gitlab_api import GitLabApi
from toolbox.ground.model.errors import ConfigurationError, InfrastructureError, RefusedRequest, UsageError
from toolbox.ground.system import extras

NOTES = "merge_requests/1/notes"


def test_items_come_from_all_pages(server: gitlab.Server, api: GitLabApi) -> None:
    for number in range(201):
        server.comment(1, "alice", str(number))
    assert [int(item["body"]) for item in api.items(NOTES, sort="asc")] == list(range(201))


def test_a_list_that_is_too_long_is_an_error(
    server: gitlab.Server, api: GitLabApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gitlab_api, "_MAX_ITEMS", 100)
    for number in range(101):
        server.comment(1, "alice", str(number))
    with pytest.raises(InfrastructureError, match="more than 100 items"):
        list(api.items(NOTES))


@pytest.mark.parametrize("fault", [github.server_error(), github.dropped_connection()])
def test_a_request_that_reads_is_repeated(server: gitlab.Server, api: GitLabApi, fault: github.Fault) -> None:
    server.faults.add("GET", "*/user", fault, times=2)
    assert api.get("/user")["username"] == "bot"
    assert len(server.requests("GET", "/user")) == 3


@pytest.mark.parametrize("fault", [github.server_error(), github.dropped_connection()])
def test_a_request_that_creates_is_not_repeated(server: gitlab.Server, api: GitLabApi, fault: github.Fault) -> None:
    server.faults.add("POST", "*", fault)
    with pytest.raises(InfrastructureError, match=r"GitLab (refused|did not answer) POST /projects/7/merge_requests"):
        api.send("POST", NOTES, {"body": "x"})
    assert len(server.requests("POST")) == 1


def test_a_rate_limit_is_waited_for(server: gitlab.Server, api: GitLabApi) -> None:
    limit = github.Fault(429, {"message": "Too Many Requests"}, {"Retry-After": "1", "RateLimit-Reset": "99999999999"})
    server.faults.add("POST", "*", limit)
    assert api.send("POST", NOTES, {"body": "x"})["body"] == "x"


def test_the_wait_for_a_rate_limit_is_limited(
    server: gitlab.Server, api: GitLabApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gitlab_api, "_LONGEST_WAIT", 0)
    for header in ("86400", "Wed, 25 Nov 2026 00:00:00 GMT"):
        server.faults.add("GET", "*", github.Fault(429, {"message": "Too Many Requests"}, {"Retry-After": header}))
        assert api.get("/user")["username"] == "bot"


def test_a_refusal_has_the_words_of_gitlab_and_the_status(server: gitlab.Server, api: GitLabApi) -> None:
    server.faults.add("GET", "*", github.Fault(404, {"message": "404 \x1b[31mNot\nFound"}))
    with pytest.raises(RefusedRequest, match=r"GitLab refused GET /projects/7/x: 404 Not Found \(HTTP 404\)") as caught:
        api.get("x")
    assert caught.value.status == 404


@pytest.mark.parametrize("level", ["unknown", "read_api"])
def test_a_denied_request_names_the_token(server: gitlab.Server, level: str) -> None:
    token = server.add_token("bot", gitlab.DEVELOPER, "read_api") if level == "read_api" else "unknown"
    with pytest.raises(RefusedRequest, match=r"check \$GITLAB_TOKEN: a token of the project") as caught:
        GitLabApi(server.project, token, server.url).send("POST", NOTES, {"body": "x"})
    assert token not in str(caught.value)


def test_the_token_is_only_sent_in_its_header(server: gitlab.Server, api: GitLabApi) -> None:
    (token,) = server.state.tokens
    list(api.items(NOTES))
    api.send("POST", NOTES, {"body": "x"})
    for request in server.requests():
        assert token not in f"{request.path}{request.query}{request.body}"


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({}, "CI_PROJECT_ID is not set"),
        ({"CI_PROJECT_ID": "7"}, "CI_API_V4_URL is not set"),
        ({"CI_PROJECT_ID": "group/name", "CI_API_V4_URL": "https://x/api/v4"}, "CI_PROJECT_ID must be a number"),
        ({"CI_PROJECT_ID": "7", "CI_API_V4_URL": "https://x/api/v4"}, "GITLAB_TOKEN is not set: make a project access"),
        ({"CI_PROJECT_ID": "7", "CI_API_V4_URL": "https://x/api", "GITLAB_TOKEN": "t"}, "must end with /api/v4"),
    ],
)
def test_a_wrong_variable_is_an_error(variables: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CI_PROJECT_ID", "CI_API_V4_URL", "GITLAB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=message):
        gitlab_api.from_environment()


def test_a_missing_library_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "_is_installed", lambda _name: False)
    with pytest.raises(ConfigurationError, match=r"the API of GitLab needs gitlab, .*\[gitlab\]"):
        GitLabApi(7, "token", "https://gitlab.example.com/api/v4")
