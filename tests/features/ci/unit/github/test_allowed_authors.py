"""Who may start runs, and whether a comment is still as its event describes it, with a test server of GitHub."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest

from tests.features.ci.servers import github
from toolbox.features.ci.github.github_api import GitHubApi
from toolbox.features.ci.github.pull_requests import GitHubPullRequests
from toolbox.ground.model.errors import RefusedRequest, UsageError
from toolbox.ground.model.forge_data import CommentAction, Commenters, CommentEvent


@pytest.fixture
def requests(api: GitHubApi) -> GitHubPullRequests:
    return GitHubPullRequests(api)


def commented(server: github.Server, by: str = "alice") -> CommentEvent:
    comment = server.repository.comments[server.comment(1, by, "/test small")]
    return CommentEvent("/test small", by, 1, comment.id, comment.created)


def owners(server: github.Server, **files: str) -> None:
    server.push("main", files, by="alice")
    server.add_user("olga", "read")


def test_members_of_a_team_are_read_with_their_own_token(server: github.Server, api: GitHubApi) -> None:
    server.add_user("tina", "read")
    server.add_team("performance", "tina")
    server.add_app("members")
    members = GitHubApi("owner/name", server.add_token("members[bot]", members="read"), server.url)
    requests = GitHubPullRequests(api, members)
    assert requests.may_start(commented(server, "tina"), Commenters(teams=("owner/performance",)))
    assert not requests.may_start(commented(server, "tina"), Commenters(teams=("owner/other", "other/performance")))


def test_the_token_of_a_job_cannot_read_members(server: github.Server, requests: GitHubPullRequests) -> None:
    server.add_user("tina", "read")
    server.add_team("performance", "tina")
    with pytest.raises(RefusedRequest, match="not accessible by integration"):
        requests.may_start(commented(server, "tina"), Commenters(teams=("owner/performance",)))


def test_owners_in_a_folder_of_the_base_branch_may_start_runs(
    server: github.Server, requests: GitHubPullRequests
) -> None:
    owners(server, **{"ci/OWNERS": "approvers: [leads]", "OWNERS_ALIASES": "aliases: {leads: [OLGA]}"})
    assert requests.may_start(commented(server, "olga"), Commenters(owners_file="ci/OWNERS"))
    assert not requests.may_start(commented(server, "olga"), Commenters(owners_file="OWNERS"))


@pytest.mark.parametrize(
    ("files", "message"),
    [({"OWNERS": "approvers: ["}, "is not YAML"), ({"OWNERS/README": "x"}, "is too large, or is not a file")],
)
def test_a_wrong_owners_file_is_an_error(
    server: github.Server, requests: GitHubPullRequests, files: dict[str, str], message: str
) -> None:
    owners(server, **files)
    with pytest.raises(UsageError, match=f"OWNERS or OWNERS_ALIASES on the base branch {message}"):
        requests.may_start(commented(server, "olga"), Commenters(owners_file="OWNERS"))


def test_write_access_can_be_left_out(server: github.Server, requests: GitHubPullRequests) -> None:
    assert not requests.may_start(commented(server), Commenters(write_access=False, owners_file="OWNERS"))


def test_a_comment_that_is_as_in_the_event_is_accepted(server: github.Server, requests: GitHubPullRequests) -> None:
    requests.verify(commented(server))


@pytest.mark.parametrize(
    "change",
    [
        {"text": "/test other"},
        {"author": "bob"},
        {"pull_request": 11},
        {"created": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)},
        {"created": None},
    ],
)
def test_a_comment_that_is_not_as_in_the_event_is_refused(
    server: github.Server, requests: GitHubPullRequests, change: dict[str, Any]
) -> None:
    with pytest.raises(UsageError, match="the comment was edited"):
        requests.verify(replace(commented(server), **change))


def test_a_deleted_comment_is_refused(server: github.Server, requests: GitHubPullRequests) -> None:
    event = commented(server)
    server.delete_comment(event.id)
    with pytest.raises(UsageError, match="the comment was deleted"):
        requests.verify(event)


def test_comments_that_were_edited_can_be_told_from_others(server: github.Server, requests: GitHubPullRequests) -> None:
    first, second = commented(server), commented(server)
    server.edit_comment(second.id, "/test other")
    assert list(requests.events(1)) == [first, replace(second, text="/test other", action=CommentAction.EDITED)]


def test_the_code_of_a_fork_is_pinned_where_forks_are_allowed(server: github.Server, api: GitHubApi) -> None:
    fork = server.fork("alice")
    sha = server.push("theirs", {"model.py": "x"}, by="alice", repository=fork)
    number = server.open_pull_request("theirs", by="alice", repository=fork)
    event = replace(commented(server), pull_request=number)
    with pytest.raises(UsageError, match="comes from a fork"):
        GitHubPullRequests(api).revision(event)
    assert GitHubPullRequests(api, allows_forks=True).revision(event) == sha
    server.push("theirs", {"model.py": "y"}, by="alice", repository=fork)
    with pytest.raises(UsageError, match="may have changed since the comment"):
        GitHubPullRequests(api, allows_forks=True).revision(event)
