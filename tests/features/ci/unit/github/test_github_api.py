"""Requests to GitHub are repeated where this is safe. A refusal is an error with the words of GitHub."""

from __future__ import annotations

import pytest

from tests.features.ci.servers import github
from toolbox.features.ci.github import github_api
from toolbox.features.ci.github.github_api import GitHubApi
from toolbox.ground.model.errors import InfrastructureError, RefusedRequest, UsageError

COMMENTS = "issues/1/comments"


def test_a_query_is_encoded(server: github.Server, api: GitHubApi) -> None:
    server.push("a&b #", {"model.py": "steps = 2"}, by="alice")
    (activity,) = api.get("activity", ref="refs/heads/a&b #", per_page=1)
    assert activity["ref"] == "refs/heads/a&b #"


def test_items_come_from_all_pages(server: github.Server, api: GitHubApi) -> None:
    for number in range(201):
        server.comment(1, "alice", str(number))
    assert [int(item["body"]) for item in api.items(COMMENTS)] == list(range(201))


def test_a_list_with_too_many_pages_is_an_error(
    server: github.Server, api: GitHubApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(github_api, "_MAX_PAGES", 1)
    for number in range(100):
        server.comment(1, "alice", str(number))
    with pytest.raises(InfrastructureError, match=f"more than 100 items in {COMMENTS}"):
        list(api.items(COMMENTS))


def test_a_refusal_is_an_error_with_the_words_of_github(api: GitHubApi) -> None:
    with pytest.raises(
        RefusedRequest, match=r"POST .*/check-runs: Resource not accessible by integration \(HTTP 403\)\n  check"
    ):
        api.send("POST", "check-runs", {"name": "x", "head_sha": "a" * 40})
    with pytest.raises(InfrastructureError, match=r"Validation Failed: Body is too long .* \(HTTP 422\)"):
        api.send("POST", COMMENTS, {"body": "x" * 70_000})


def test_a_wrong_token_is_an_error(server: github.Server) -> None:
    with pytest.raises(RefusedRequest, match=r"Bad credentials \(HTTP 401\)\n  check .GH_TOKEN"):
        GitHubApi("owner/name", "wrong", server.url).get(COMMENTS)


@pytest.mark.parametrize("fault", [github.server_error(502), github.dropped_connection(), github.primary_rate_limit()])
def test_a_request_that_changes_nothing_is_repeated(server: github.Server, api: GitHubApi, fault: github.Fault) -> None:
    server.faults.add("GET", "*/comments", fault, times=2)
    assert api.get(COMMENTS) == []


@pytest.mark.parametrize("status", [403, 429])
def test_a_creation_is_repeated_after_a_rate_limit(server: github.Server, api: GitHubApi, status: int) -> None:
    server.faults.add("POST", "*/comments", github.secondary_rate_limit(retry_after=1, status=status))
    api.send("POST", COMMENTS, {"body": "once"})
    assert [comment.body for comment in server.comments(1)] == ["once"]


@pytest.mark.parametrize("fault", [github.server_error, github.dropped_connection])
def test_a_creation_that_may_have_had_an_effect_is_not_repeated(
    server: github.Server, api: GitHubApi, fault: type[github.Fault]
) -> None:
    server.faults.add("POST", "*/comments", fault(takes_effect=True))
    with pytest.raises(InfrastructureError, match=r"GitHub (refused|did not answer) POST"):
        api.send("POST", COMMENTS, {"body": "once"})
    assert len(server.comments(1)) == 1


def test_a_rate_limit_that_lasts_too_long_is_an_error(server: github.Server, api: GitHubApi) -> None:
    server.faults.add("GET", "*/comments", github.primary_rate_limit(resets_in=3000), times=None)
    with pytest.raises(InfrastructureError, match="rate limit"):
        api.get(COMMENTS)


def test_a_server_that_is_away_is_an_error(server: github.Server, api: GitHubApi) -> None:
    server.stop()
    with pytest.raises(InfrastructureError, match="GitHub did not answer GET"):
        api.get(COMMENTS)


def test_the_login_is_that_of_the_token(server: github.Server, api: GitHubApi) -> None:
    assert api.login() == "github-actions[bot]"
    assert GitHubApi("owner/name", server.add_token("alice"), server.url).login() == "alice"


@pytest.mark.parametrize("repository", ["", "name", "a/b/c", "../x", "a/b?c", "-f/x y"])
def test_a_repository_is_an_owner_and_a_name(repository: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_REPOSITORY", repository)
    monkeypatch.setenv("GH_TOKEN", "token")
    with pytest.raises(UsageError, match="GITHUB_REPOSITORY must be OWNER/NAME"):
        github_api.from_environment()


def test_a_missing_token_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_REPOSITORY", "owner/name")
    for name in ("GH_TOKEN", "GITHUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match=r"\$GH_TOKEN is not set: in GitHub Actions, pass"):
        github_api.from_environment()


def test_a_segment_of_a_path_has_no_separators() -> None:
    assert github_api.segment("a/../b?c") == "a%2F..%2Fb%3Fc"
