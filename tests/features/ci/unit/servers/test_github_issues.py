"""The test server of GitHub's API answers about pull requests, comments, labels and issues as GitHub does."""

from __future__ import annotations

from typing import Any

import pytest
from github import GithubException, UnknownObjectException

from tests.features.ci.servers import github
from tests.features.ci.unit.servers.conftest import Connect


def refusal(error: pytest.ExceptionInfo[GithubException]) -> tuple[int, Any]:
    return error.value.status, error.value.data["message"]


def test_a_pull_request_follows_the_pushes_to_its_branch(hub: github.Server, connect: Connect) -> None:
    number = hub.open_pull_request("feature", by="alice", is_draft=True)
    repository = connect(pull_requests="read", contents="read")
    sha = hub.push("feature", {"README.md": "Changed.\n"}, by="alice")
    pull = repository.get_pull(number)
    assert (pull.head.sha, pull.commits, pull.draft, pull.state) == (sha, 2, True, "open")
    assert [(file.filename, file.status, file.additions) for file in pull.get_files()] == [
        ("README.md", "modified", 1),
        ("model.py", "added", 1),
    ]


def test_a_forced_push_is_an_activity_of_its_own(hub: github.Server, connect: Connect) -> None:
    before = hub.repository.branches["feature"]
    after = hub.push("feature", {"model.py": "steps = 2\n"}, by="alice", force=True)
    _, latest = connect(contents="read").requester.requestJsonAndCheck(
        "GET", "/repos/owner/name/activity", {"ref": "refs/heads/feature", "per_page": 1}
    )
    assert [(one["activity_type"], one["before"], one["after"]) for one in latest] == [("force_push", before, after)]


def test_a_closed_pull_request_ignores_later_pushes(hub: github.Server, connect: Connect) -> None:
    number = hub.open_pull_request("feature", by="alice")
    hub.close(number, by="alice")
    hub.push("feature", {"model.py": "steps = 2\n"}, by="alice")
    pull = connect(pull_requests="read").get_pull(number)
    assert pull.state == "closed"
    assert pull.head.sha != hub.repository.branches["feature"]


def test_a_pull_request_from_a_fork_outlives_the_fork(hub: github.Server, connect: Connect) -> None:
    fork = hub.fork(by="mallory")
    hub.push("fix", {"model.py": "steps = 3\n"}, by="mallory", repository=fork)
    number = hub.open_pull_request("fix", by="mallory", repository=fork)
    repository = connect(pull_requests="read")
    assert repository.get_pull(number).head.repo.full_name == "mallory/name"
    hub.delete_fork(fork)
    assert repository.get_pull(number).raw_data["head"]["repo"] is None


def test_a_merge_closes_the_pull_request_and_moves_the_base(hub: github.Server, connect: Connect) -> None:
    number = hub.open_pull_request("feature", by="alice")
    hub.close(number, by="alice", merge=True)
    repository = connect(pull_requests="read", contents="read")
    pull = repository.get_pull(number)
    assert (pull.merged, pull.merged_by.login, pull.state) == (True, "alice", "closed")
    assert [file.filename for file in repository.get_commit("main").files] == ["model.py"]


def test_the_deletion_of_a_branch_closes_its_pull_request(hub: github.Server, connect: Connect) -> None:
    number = hub.open_pull_request("feature", by="alice")
    hub.delete_branch("feature", by="alice")
    assert connect(pull_requests="read").get_pull(number).state == "closed"


def test_a_locked_conversation_refuses_strangers(hub: github.Server, connect: Connect) -> None:
    number = hub.open_issue(by="alice")
    hub.lock_conversation(number)
    connect("alice").get_issue(number).create_comment("still open for me")
    with pytest.raises(GithubException) as error:
        connect("mallory").get_issue(number).create_comment("refused")
    assert refusal(error) == (403, "Unable to create comment because issue is locked.")


def test_comments_have_pages(hub: github.Server, connect: Connect) -> None:
    number = hub.open_pull_request("feature", by="alice")
    for index in range(65):
        hub.comment(number, "alice", f"comment {index}")
    comments = connect(issues="read").get_issue(number).get_comments()
    assert [comment.body for comment in comments] == [f"comment {index}" for index in range(65)]
    pages = [request.query.get("page", "1") for request in hub.requests("GET", "/comments")]
    assert pages == ["1", "2", "3"]


def test_a_page_has_at_most_100_items(hub: github.Server, connect: Connect) -> None:
    number = hub.open_issue(by="alice")
    for index in range(101):
        hub.comment(number, "alice", f"comment {index}")
    headers, items = connect(issues="read").requester.requestJsonAndCheck(
        "GET", f"/repos/owner/name/issues/{number}/comments", {"per_page": 500}
    )
    assert len(items) == 100
    assert 'page=2>; rel="next"' in headers["link"]


def test_a_bot_creates_edits_and_deletes_its_comment(hub: github.Server, connect: Connect) -> None:
    number = hub.open_pull_request("feature", by="alice")
    comment = connect(pull_requests="write").get_issue(number).create_comment("running")
    comment.edit("passed")
    assert [(one.author.login, one.body) for one in hub.comments(number)] == [("github-actions[bot]", "passed")]
    comment.delete()
    assert hub.comments(number) == []
    with pytest.raises(UnknownObjectException):
        comment.edit("too late")


def test_a_body_has_at_most_65536_characters(hub: github.Server, connect: Connect) -> None:
    issue = connect(issues="write").get_issue(hub.open_issue(by="alice"))
    issue.create_comment("é" * 65_536)
    with pytest.raises(GithubException) as error:
        issue.create_comment("é" * 65_537)
    assert error.value.status == 422
    assert error.value.data["errors"][0]["message"] == "Body is too long (maximum is 65536 characters)"


def test_a_bot_may_not_edit_the_comment_of_a_person(hub: github.Server, connect: Connect) -> None:
    number = hub.open_issue(by="alice")
    comment = connect(issues="write").get_issue(number).get_comment(hub.comment(number, "alice", "mine"))
    with pytest.raises(GithubException) as error:
        comment.edit("not mine")
    assert refusal(error) == (403, "Resource not accessible by integration")


def test_a_token_needs_the_permission(hub: github.Server, connect: Connect) -> None:
    number = hub.open_issue(by="alice")
    issue = connect(issues="read", pull_requests="write").get_issue(number)
    with pytest.raises(GithubException) as error:
        issue.create_comment("refused")
    assert refusal(error) == (403, "Resource not accessible by integration")
    assert hub.comments(number) == []


def test_a_bad_token_is_refused(connect: Connect) -> None:
    with pytest.raises(GithubException) as error:
        connect.with_token("ghs_unknown")
    assert refusal(error) == (401, "Bad credentials")


def test_a_private_repository_does_not_exist_for_strangers(hub: github.Server, connect: Connect) -> None:
    hub.repository.is_private = True
    with pytest.raises(UnknownObjectException):
        connect("mallory")
    assert connect("alice").private


def test_permissions_have_the_legacy_names_and_the_roles(hub: github.Server, connect: Connect) -> None:
    roles = {"reader": "read", "triager": "triage", "writer": "write", "maintainer": "maintain", "boss": "admin"}
    for login, role in roles.items():
        hub.add_user(login, role)
    repository = connect()
    answers = [
        repository.requester.requestJsonAndCheck("GET", f"/repos/owner/name/collaborators/{login}/permission")[1]
        for login in roles
    ]
    assert [one["permission"] for one in answers] == ["read", "read", "write", "write", "admin"]
    assert [one["role_name"] for one in answers] == list(roles.values())


def test_a_reaction_is_added_once(hub: github.Server, connect: Connect) -> None:
    number = hub.open_issue(by="alice")
    comment = connect(issues="write").get_issue(number).get_comment(hub.comment(number, "alice", "/test"))
    first, second = comment.create_reaction("eyes"), comment.create_reaction("eyes")
    assert first.id == second.id
    assert [reaction.content for reaction in comment.get_reactions()] == ["eyes"]
    assert comment.delete_reaction(first.id)
    assert comment.get_reactions().totalCount == 0


def test_labels_are_created_added_and_removed(hub: github.Server, connect: Connect) -> None:
    repository, number = connect(issues="write", pull_requests="write"), hub.open_pull_request("feature", by="alice")
    repository.create_label("ok", "00ff00")
    with pytest.raises(GithubException) as error:
        repository.create_label("OK", "00ff00")
    assert error.value.data["errors"][0]["code"] == "already_exists"
    issue = repository.get_issue(number)
    issue.add_to_labels("ok", "new")
    issue.remove_from_labels("ok")
    assert [label.name for label in issue.get_labels()] == ["new"]
    with pytest.raises(UnknownObjectException):
        repository.get_label("missing")


def test_issues_are_filtered(hub: github.Server, connect: Connect) -> None:
    repository = connect(issues="write")
    created = repository.create_issue("fails", "a body", labels=["topgallant"])
    hub.open_issue(by="alice", labels=["topgallant"])
    hub.open_pull_request("feature", by="alice")
    found = repository.get_issues(labels=["topgallant"], state="open", creator=created.user)
    assert [issue.number for issue in found] == [created.number]
    created.edit(state="closed", state_reason="completed")
    assert repository.get_issues(state="closed")[0].state_reason == "completed"
    assert [issue.pull_request is not None for issue in repository.get_issues()] == [True, False]


def test_a_file_is_read_at_a_ref(hub: github.Server, connect: Connect) -> None:
    hub.push("main", {"ci/OWNERS": "approvers: [alice]\n"}, by="alice")
    repository = connect(contents="read")
    contents = repository.get_contents("ci/OWNERS", ref="main")
    assert not isinstance(contents, list)
    assert contents.decoded_content == b"approvers: [alice]\n"
    with pytest.raises(UnknownObjectException):
        repository.get_contents("ci/OWNERS", ref="feature")


def test_a_membership_of_a_team_needs_its_own_permission(hub: github.Server, connect: Connect) -> None:
    hub.add_team("performance", "alice")
    path = "/orgs/owner/teams/performance/memberships"
    member = connect(members="read").requester
    assert member.requestJsonAndCheck("GET", f"{path}/alice")[1]["state"] == "active"
    with pytest.raises(UnknownObjectException):
        member.requestJsonAndCheck("GET", f"{path}/mallory")
    with pytest.raises(GithubException) as error:
        connect().requester.requestJsonAndCheck("GET", f"{path}/alice")
    assert error.value.status == 403


def test_only_the_token_of_a_person_has_a_user(connect: Connect) -> None:
    assert connect("alice").requester.requestJsonAndCheck("GET", "/user")[1]["login"] == "alice"
    with pytest.raises(GithubException) as error:
        connect().requester.requestJsonAndCheck("GET", "/user")
    assert refusal(error) == (403, "Resource not accessible by integration")
