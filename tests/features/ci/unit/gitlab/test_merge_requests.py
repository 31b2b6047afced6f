"""A note pins the head of the merge request that its author has seen, if the author may start runs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.features.ci.servers import github, gitlab
from tests.features.ci.servers.gitlab.gitlab_state import Note, Version
from toolbox.features.ci import run_comment
from toolbox.features.ci.gitlab.gitlab_api import GitLabApi
from toolbox.features.ci.gitlab.merge_requests import GitLabMergeRequests
from toolbox.features.ci.run_comment import WorkflowRun
from toolbox.ground.model.errors import RefusedRequest, UsageError
from toolbox.ground.model.forge_data import Commenters, CommentEvent, CommitState, CommitStatus

PART = WorkflowRun("small", "on_comment", "77", "https://gitlab.example.com/group/name/-/pipelines/77")


@pytest.fixture
def requests(api: GitLabApi) -> GitLabMergeRequests:
    return GitLabMergeRequests(api)


def event(note: Note) -> CommentEvent:
    created = note.created.replace(microsecond=0)
    return CommentEvent(note.body, note.author.username, 1, note.id, created)


def commented(server: gitlab.Server, by: str = "alice") -> CommentEvent:
    return event(server.comment(1, by, "/test small"))


def test_the_head_at_the_time_of_the_note_is_pinned(server: gitlab.Server, requests: GitLabMergeRequests) -> None:
    assert requests.revision(commented(server)) == server.head(1)


def test_a_version_of_the_same_second_is_not_older(server: gitlab.Server, requests: GitLabMergeRequests) -> None:
    note = server.comment(1, "alice", "/test small")
    versions = server.state.merge_requests[1].versions
    versions[0] = replace(versions[0], created=note.created - dt.timedelta(milliseconds=100))
    with pytest.raises(UsageError, match="may have changed since the comment"):
        requests.revision(event(note))


def _pushed(server: gitlab.Server) -> None:
    server.push("topic", {"model.py": "steal()"}, by="alice")


def _unrecorded(server: gitlab.Server) -> None:
    server.state.merge_requests[1].versions.insert(0, Version(9999, "b" * 40, server.state.now))


@pytest.mark.parametrize("change", [_pushed, _unrecorded], ids=["pushed later", "another latest version"])
def test_a_merge_request_that_may_have_changed_is_refused(
    server: gitlab.Server, requests: GitLabMergeRequests, change: Callable[[gitlab.Server], None]
) -> None:
    comment = commented(server)
    change(server)
    with pytest.raises(UsageError, match="may have changed since the comment"):
        requests.revision(comment)


def test_closed_requests_and_forks_are_refused(server: gitlab.Server, requests: GitLabMergeRequests) -> None:
    fork = server.open_merge_request("topic", by="alice", is_fork=True)
    with pytest.raises(UsageError, match="comes from a fork"):
        requests.revision(replace(commented(server), pull_request=fork))
    server.close(1)
    with pytest.raises(UsageError, match="is not open"):
        requests.revision(commented(server))


@pytest.mark.parametrize(
    ("level", "state", "expected"),
    [
        (gitlab.MAINTAINER, "active", True),
        (gitlab.DEVELOPER, "active", True),
        (gitlab.REPORTER, "active", False),
        (None, "active", False),
        (gitlab.MAINTAINER, "blocked", False),
    ],
)
def test_active_developers_may_start_runs(
    server: gitlab.Server, requests: GitLabMergeRequests, level: int | None, state: str, expected: bool
) -> None:
    server.add_user("tina", level).state = state
    assert requests.may_start(commented(server, "tina"), Commenters()) is expected


def test_members_of_a_group_may_start_runs(server: gitlab.Server, requests: GitLabMergeRequests) -> None:
    server.add_user("tina")
    server.add_group("acme/performance", "tina")
    comment = commented(server, "tina")
    assert requests.may_start(comment, Commenters(teams=("acme/performance",)))
    assert not requests.may_start(comment, Commenters(teams=("acme/other",)))


def test_write_access_can_be_left_out(server: gitlab.Server, requests: GitLabMergeRequests) -> None:
    assert not requests.may_start(commented(server), Commenters(write_access=False, owners_file="OWNERS"))


def test_an_owners_file_that_is_not_yaml_is_an_error(server: gitlab.Server, requests: GitLabMergeRequests) -> None:
    server.push("main", {"OWNERS": "approvers: ["}, by="alice")
    server.add_user("olga")
    with pytest.raises(UsageError, match="OWNERS or OWNERS_ALIASES on the target branch is not YAML"):
        requests.may_start(commented(server, "olga"), Commenters(owners_file="OWNERS"))


@pytest.mark.parametrize("author", ["", "nobody", "../user", "a/b", "a b", "-f"])
def test_a_name_without_an_account_may_not_start_runs(requests: GitLabMergeRequests, author: str) -> None:
    assert not requests.may_start(CommentEvent("/test small", author, 1, 1), Commenters())


def test_a_note_that_is_as_in_the_event_is_accepted(server: gitlab.Server, requests: GitLabMergeRequests) -> None:
    requests.verify(commented(server))


@pytest.mark.parametrize(
    "change", [{"text": "/test other"}, {"author": "bob"}, {"created": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)}]
)
def test_a_note_that_is_not_as_in_the_event_is_refused(
    server: gitlab.Server, requests: GitLabMergeRequests, change: dict[str, Any]
) -> None:
    with pytest.raises(UsageError, match="the comment was edited"):
        requests.verify(replace(commented(server), **change))


def test_a_deleted_note_is_refused(server: gitlab.Server, requests: GitLabMergeRequests) -> None:
    note = server.comment(1, "alice", "/test small")
    server.delete(1, note)
    with pytest.raises(UsageError, match="the comment was deleted"):
        requests.verify(event(note))


def test_an_answer_that_is_lost_makes_no_second_note(
    server: gitlab.Server, requests: GitLabMergeRequests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_comment, "_FIRST_PAUSE", 0.01)
    server.faults.add("POST", "*/notes", github.server_error(takes_effect=True))
    address = run_comment.publish(requests, 1, PART, "will run")
    (note,) = server.notes(1)
    assert address == f"https://gitlab.example.com/group/name/-/merge_requests/1#note_{note.id}"
    assert run_comment.publish(requests, 1, PART, "passed") == address
    assert note.body.endswith("\npassed")


def test_only_the_oldest_of_several_notes_of_a_run_is_kept(
    server: gitlab.Server, requests: GitLabMergeRequests
) -> None:
    part = WorkflowRun("small", "on_comment", "77", "")
    for text in ("first", "second"):
        requests.create_comment(1, run_comment.body_of(part, text))
    run_comment.publish(requests, 1, part, "passed")
    assert [note.body for note in server.notes(1)] == [run_comment.body_of(part, "passed")]


def test_a_status_can_be_repeated_and_changed(server: gitlab.Server, requests: GitLabMergeRequests) -> None:
    sha = server.head(1)
    for state in (CommitState.PENDING, CommitState.PENDING, CommitState.FAILURE, CommitState.PENDING):
        requests.set_status(sha, CommitStatus(state, "small on_comment", "x" * 300, PART.url))
    first, second = server.statuses(sha)
    assert (first.state, second.state, first.target_url) == ("failed", "pending", PART.url)
    assert first.description == "x" * 255


def test_a_status_of_an_unknown_commit_is_an_error(requests: GitLabMergeRequests) -> None:
    with pytest.raises(RefusedRequest, match="404 Commit Not Found"):
        requests.set_status("a" * 40, CommitStatus(CommitState.SUCCESS, "small", "", ""))
