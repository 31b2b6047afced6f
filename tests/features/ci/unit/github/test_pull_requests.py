"""A comment pins the head of the pull request that its author has seen, if the author has write access."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest

from tests.features.ci.fakes.github_api import FakeApi
from toolbox.features.ci.github.pull_requests import GitHubPullRequests
from toolbox.ground.model.errors import InfrastructureError, UsageError
from toolbox.ground.model.forge_data import Commenters, CommentEvent

HEAD = "a" * 40
TIME = "2026-11-23T05:00:00Z"
EVENT = CommentEvent("/test small", "alice", 7, 1, dt.datetime.fromisoformat(TIME))


def api(
    *, permission: str = "write", state: str = "open", repository: str | None = "owner/name", **activity: Any
) -> FakeApi:
    """Return a repository whose pull request 7 was pushed before the comment."""
    repo = {"full_name": repository} if repository else None
    pushed = {"after": HEAD, "timestamp": "2026-11-23T04:59:59Z", **activity}
    return FakeApi(
        {
            "collaborators/alice/permission": {"permission": permission},
            "pulls/7": {"state": state, "head": {"ref": "topic & more", "sha": HEAD, "repo": repo}},
            "activity": [pushed],
        }
    )


def pinned(fake: FakeApi) -> str:
    return GitHubPullRequests(fake).revision(EVENT)


def may_start(fake: FakeApi, author: str = "alice") -> bool:
    return GitHubPullRequests(fake).may_start(replace(EVENT, author=author), Commenters())


def test_the_head_at_the_time_of_the_comment_is_pinned() -> None:
    fake = api()
    assert pinned(fake) == HEAD
    assert fake.queries["activity"] == {"ref": "refs/heads/topic & more", "per_page": 1}


@pytest.mark.parametrize("permission", ["admin", "maintain", "write"])
def test_people_with_write_access_may_start_runs(permission: str) -> None:
    assert may_start(api(permission=permission)) is True


@pytest.mark.parametrize("permission", ["read", "triage", "none", ""])
def test_others_may_not_start_runs(permission: str) -> None:
    assert may_start(api(permission=permission)) is False


@pytest.mark.parametrize("author", ["", "github-actions[bot]", "../pulls", "a/b", "a?b", "a\n", "-f"])
def test_a_login_is_never_a_path_or_an_option(author: str) -> None:
    fake = api()
    assert may_start(fake, author) is False
    assert not fake.queries


@pytest.mark.parametrize("repository", ["mallory/name", "owner/name2", None])
def test_the_code_of_a_fork_is_refused(repository: str | None) -> None:
    with pytest.raises(UsageError, match="comes from a fork"):
        pinned(api(repository=repository))


def test_a_closed_pull_request_is_refused() -> None:
    with pytest.raises(UsageError, match="not open"):
        pinned(api(state="closed"))


@pytest.mark.parametrize(
    "activity",
    [
        {"timestamp": TIME},
        {"timestamp": "2026-11-23T05:00:01Z"},
        {"timestamp": "2026-11-23T04:00:00"},
        {"timestamp": None},
        {"after": "b" * 40},
    ],
    ids=["at the same second", "after the comment", "without a time zone", "without a time", "another head"],
)
def test_a_push_that_is_not_older_than_the_comment_is_refused(activity: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="may have changed since the comment"):
        pinned(api(**activity))


@pytest.mark.parametrize("answer", [[], {}, None, "x"])
def test_a_branch_without_recorded_pushes_is_refused(answer: Any) -> None:
    fake = api()
    fake.answers = {**fake.answers, "activity": answer}
    with pytest.raises(UsageError, match="may have changed since the comment"):
        pinned(fake)


@pytest.mark.parametrize("sha", ["", "main", "$(touch x)", HEAD + "\nrevision=b"])
def test_a_head_that_is_not_a_revision_is_refused(sha: str) -> None:
    fake = api()
    head = {**fake.answers["pulls/7"]["head"], "sha": sha}
    fake.answers = {**fake.answers, "pulls/7": {"state": "open", "head": head}}
    with pytest.raises(UsageError, match="has no head"):
        pinned(fake)


def test_an_error_of_github_refuses_the_comment() -> None:
    with pytest.raises(InfrastructureError, match="Not Found"):
        pinned(FakeApi({}))
