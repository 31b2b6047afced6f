"""The test server of GitHub's API keeps check runs, statuses and runs of workflows as GitHub does."""

from __future__ import annotations

from typing import Any

import pytest
from github import GithubException

from tests.features.ci.servers import github
from tests.features.ci.unit.servers.conftest import Connect


def make_annotations(count: int) -> list[dict[str, Any]]:
    level = {"annotation_level": "failure", "message": "failed"}
    return [{"path": "model.py", "start_line": 1 + index, "end_line": 1 + index, **level} for index in range(count)]


def test_annotations_are_appended(hub: github.Server, connect: Connect) -> None:
    repository, sha = connect(checks="write"), hub.repository.branches["feature"]
    run = repository.create_check_run("topgallant", sha, status="in_progress")
    for _ in range(2):
        run.edit(output={"title": "2 failed", "summary": "a table", "annotations": make_annotations(50)})
    run.edit(conclusion="failure")
    (kept,) = hub.check_runs(sha)
    assert (kept.status, kept.conclusion, len(kept.annotations)) == ("completed", "failure", 100)
    assert run.get_annotations().totalCount == 100


def test_a_request_has_at_most_50_annotations(hub: github.Server, connect: Connect) -> None:
    output: dict[str, Any] = {"title": "failed", "summary": "", "annotations": make_annotations(51)}
    with pytest.raises(GithubException) as error:
        connect(checks="write").create_check_run("topgallant", hub.repository.branches["main"], output=output)
    assert error.value.data["message"] == "Invalid request.\n\nNo more than 50 items are allowed; 51 were supplied."


def test_a_list_has_the_latest_check_run_of_each_name(hub: github.Server, connect: Connect) -> None:
    repository, sha = connect(checks="write"), hub.repository.branches["feature"]
    repository.create_check_run("topgallant", sha, conclusion="failure")
    latest = repository.create_check_run("topgallant", sha, conclusion="success")
    assert [run.id for run in repository.get_commit(sha).get_check_runs()] == [latest.id]
    assert repository.get_commit(sha).get_check_runs(filter="all").totalCount == 2


def test_only_the_app_that_created_a_check_run_changes_it(hub: github.Server, connect: Connect) -> None:
    hub.add_app("other")
    sha = hub.repository.branches["feature"]
    run = connect(checks="write").create_check_run("topgallant", sha)
    with pytest.raises(GithubException) as error:
        connect("other[bot]", checks="write").get_check_run(run.id).edit(conclusion="success")
    assert error.value.status == 403
    with pytest.raises(GithubException) as error:
        connect("alice").create_check_run("topgallant", sha)
    assert error.value.data["message"] == "You must authenticate via a GitHub App."


def test_the_combined_status_has_the_latest_status_of_each_context(hub: github.Server, connect: Connect) -> None:
    commit = connect(statuses="write", contents="read").get_commit(hub.repository.branches["feature"])
    assert commit.get_combined_status().state == "pending"
    commit.create_status("failure", context="topgallant")
    commit.create_status("success", context="topgallant", description="8 passed")
    combined = commit.get_combined_status()
    assert (combined.state, [one.description for one in combined.statuses]) == ("success", ["8 passed"])
    assert [one.state for one in commit.get_statuses()] == ["success", "failure"]


def test_a_status_has_a_known_commit_and_a_short_description(hub: github.Server, connect: Connect) -> None:
    requester = connect(statuses="write").requester
    with pytest.raises(GithubException) as error:
        requester.requestJsonAndCheck("POST", f"/repos/owner/name/statuses/{'1' * 40}", input={"state": "success"})
    assert error.value.data["message"] == f"No commit found for SHA: {'1' * 40}"
    body = {"state": "success", "description": "x" * 141}
    path = f"/repos/owner/name/statuses/{hub.repository.branches['main']}"
    with pytest.raises(GithubException) as error:
        requester.requestJsonAndCheck("POST", path, input=body)
    assert error.value.data["errors"][0]["field"] == "description"


def test_a_run_of_a_workflow_is_cancelled_once(hub: github.Server, connect: Connect) -> None:
    repository, sha = connect(actions="write"), hub.repository.branches["feature"]
    hub.start_workflow("topgallant", "push", "alice")
    number = hub.start_workflow("topgallant", "push", "alice", sha=sha, branch="feature")
    (run,) = repository.get_workflow_runs(head_sha=sha)
    assert (run.id, run.run_number) == (number, 2)
    assert run.cancel()
    assert repository.get_workflow_run(number).conclusion == "cancelled"
    with pytest.raises(GithubException) as error:
        repository.requester.requestJsonAndCheck("POST", f"/repos/owner/name/actions/runs/{number}/cancel")
    assert error.value.status == 409


def test_artifacts_of_a_run_are_listed(hub: github.Server, connect: Connect) -> None:
    number = hub.start_workflow("topgallant", "push", "alice")
    hub.add_artifact(number, "shard-1", b"content")
    artifacts = connect(actions="read").get_workflow_run(number).get_artifacts()
    assert [(artifact.name, artifact.size_in_bytes) for artifact in artifacts] == [("shard-1", 7)]
