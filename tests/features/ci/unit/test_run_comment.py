"""A workflow run has one comment, which is found by its marker and its author."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.features.ci.servers import github
from toolbox.features.ci import run_comment
from toolbox.features.ci.forges.github import Forge
from toolbox.features.ci.github.github_api import GitHubApi
from toolbox.features.ci.github.pull_requests import GitHubPullRequests
from toolbox.features.ci.run_comment import WorkflowRun
from toolbox.ground.model.errors import InfrastructureError, RefusedRequest
from toolbox.ground.model.forge_data import CommitState

PART = WorkflowRun("small", "on_demand", "77", "https://github.com/owner/name/actions/runs/77")
MARKER = "<!-- topgallant-run: small/on_demand/77 -->"


def bodies(server: github.Server) -> list[str | None]:
    return [comment.body for comment in server.comments(1)]


def test_the_comment_is_created_and_then_replaced(server: github.Server, prs: GitHubPullRequests) -> None:
    address = run_comment.publish(prs, 1, PART, "will run")
    assert bodies(server) == [f"{MARKER}\nwill run"]
    assert run_comment.publish(prs, 1, PART, "passed") == address
    assert bodies(server) == [f"{MARKER}\npassed"]


def test_another_workflow_run_has_its_own_comment(server: github.Server, prs: GitHubPullRequests) -> None:
    run_comment.publish(prs, 1, PART, "first")
    run_comment.publish(prs, 1, replace(PART, run="78"), "second")
    assert len(bodies(server)) == 2


def test_a_comment_of_a_person_with_the_marker_is_left_alone(server: github.Server, prs: GitHubPullRequests) -> None:
    server.comment(1, "alice", f"{MARKER}\nmine")
    run_comment.publish(prs, 1, PART, "passed")
    assert bodies(server) == [f"{MARKER}\nmine", f"{MARKER}\npassed"]


def test_the_comment_is_found_behind_many_others(server: github.Server, prs: GitHubPullRequests) -> None:
    for number in range(150):
        server.comment(1, "alice", str(number))
    run_comment.publish(prs, 1, PART, "will run")
    run_comment.publish(prs, 1, PART, "passed")
    assert len(bodies(server)) == 151


@pytest.mark.parametrize("fault", [github.server_error, github.dropped_connection])
def test_an_answer_that_is_lost_makes_no_second_comment(
    server: github.Server, prs: GitHubPullRequests, fault: type[github.Fault]
) -> None:
    server.faults.add("POST", "*/comments", fault(takes_effect=True))
    run_comment.publish(prs, 1, PART, "passed")
    assert bodies(server) == [f"{MARKER}\npassed"]


def test_a_comment_that_is_created_late_is_deleted(server: github.Server, prs: GitHubPullRequests) -> None:
    server.faults.add("POST", "*/comments", github.server_error(is_late=True))
    run_comment.publish(prs, 1, PART, "will run")
    assert len(server.requests("POST")) == 3
    assert bodies(server) == [f"{MARKER}\nwill run"]


def test_an_update_keeps_only_the_oldest_of_several_comments(server: github.Server, prs: GitHubPullRequests) -> None:
    for text in ("first", "second", "third"):
        prs.create_comment(1, f"{MARKER}\n{text}")
    server.comment(1, "alice", f"{MARKER}\nmine")
    oldest = server.comments(1)[0].id
    run_comment.publish(prs, 1, PART, "passed")
    assert bodies(server) == [f"{MARKER}\npassed", f"{MARKER}\nmine"]
    assert server.comments(1)[0].id == oldest


def test_a_copy_that_cannot_be_deleted_does_not_prevent_the_update(
    server: github.Server, prs: GitHubPullRequests, caplog: pytest.LogCaptureFixture
) -> None:
    for text in ("first", "second"):
        prs.create_comment(1, f"{MARKER}\n{text}")
    server.faults.add("DELETE", "*", github.server_error(500), times=None)
    run_comment.publish(prs, 1, PART, "passed")
    assert bodies(server) == [f"{MARKER}\npassed", f"{MARKER}\nsecond"]
    assert "a second comment on the pull request could not be deleted" in caplog.text


def test_a_server_that_never_creates_the_comment_is_an_error(server: github.Server, prs: GitHubPullRequests) -> None:
    server.faults.add("POST", "*/comments", github.server_error(), times=None)
    with pytest.raises(InfrastructureError, match="GitHub refused POST"):
        run_comment.publish(prs, 1, PART, "passed")
    assert len(server.requests("POST")) == 3


def test_a_token_without_the_permission_is_not_tried_again(server: github.Server) -> None:
    reader = GitHubPullRequests(GitHubApi("owner/name", server.add_token(pull_requests="read"), server.url))
    with pytest.raises(RefusedRequest):
        run_comment.publish(reader, 1, PART, "passed")
    assert len(server.requests("POST")) == 1


def test_cancelling_ends_the_runs_of_the_workflow_that_are_going_on(
    server: github.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, running, other = (server.start_workflow("small", "issue_comment", "alice") for _ in range(3))
    server.finish_workflow(ended)
    monkeypatch.setenv("GH_TOKEN", server.add_token(pull_requests="write", actions="write"))
    monkeypatch.setenv("GITHUB_REPOSITORY", "owner/name")
    monkeypatch.setenv("GITHUB_API_URL", server.url)
    monkeypatch.setenv("GITHUB_WORKFLOW_REF", "owner/name/.github/workflows/small.yml@refs/heads/main")
    bot = Forge().pull_requests()
    for number in (ended, running):
        run_comment.publish(bot, 1, replace(PART, run=str(number)), "will run")
    run_comment.publish(bot, 1, replace(PART, workflow="another", run=str(other)), "will run")
    server.comment(1, "alice", f"<!-- topgallant-run: small/on_demand/{other} -->\nforged")
    assert run_comment.cancel(Forge(), bot, 1, PART) == [str(running)]
    states = {number: server.repository.workflow_runs[number].conclusion for number in (ended, running, other)}
    assert states == {ended: "success", running: "cancelled", other: None}


def test_a_run_of_another_workflow_is_not_cancelled(server: github.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = server.start_workflow("deploy", "push", "alice")
    monkeypatch.setenv("GH_TOKEN", server.add_token(pull_requests="write", actions="write"))
    monkeypatch.setenv("GITHUB_REPOSITORY", "owner/name")
    monkeypatch.setenv("GITHUB_API_URL", server.url)
    monkeypatch.setenv("GITHUB_WORKFLOW_REF", "owner/name/.github/workflows/small.yml@refs/heads/main")
    assert not Forge().cancel(str(deployment))
    assert not Forge().cancel("\u0665")
    assert server.repository.workflow_runs[deployment].conclusion is None


def test_a_commit_status_has_a_name_a_link_and_a_short_description(
    server: github.Server, prs: GitHubPullRequests
) -> None:
    sha = server.push("topic", {"model.py": "steps = 2"}, by="alice")
    run_comment.set_status(prs, sha, PART, CommitState.SUCCESS, "x" * 200)
    (status,) = server.statuses(sha)
    assert (status.state, status.context, status.target_url) == ("success", "small on_demand", PART.url)
    assert status.description == "x" * 140
