"""The events of the test server conform to the published schema of webhooks, and the variables to GitHub Actions."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from tests.features.ci.servers import github
from tests.features.ci.servers.github import events
from tests.features.ci.unit.servers import github_schema


def test_the_event_of_a_comment_runs_on_the_default_branch(hub: github.Server, tmp_path: Path) -> None:
    number = hub.open_pull_request("feature", by="alice")
    event = events.issue_comment(hub, hub.comment(number, "mallory", "/test"))
    github_schema.check_event("issue_comment", event.payload)
    variables = events.start(hub, event, tmp_path / "event")
    payload = events.read(variables)
    assert payload["comment"]["body"] == "/test"
    assert payload["issue"]["pull_request"]["url"] == f"{hub.url}/repos/owner/name/pulls/{number}"
    assert variables["GITHUB_SHA"] == hub.repository.branches["main"]
    assert variables["GITHUB_ACTOR"] == "mallory"
    assert int(variables["GITHUB_RUN_ID"]) in hub.repository.workflow_runs


def test_an_edited_comment_tells_its_previous_body(hub: github.Server) -> None:
    comment = hub.comment(hub.open_issue(by="alice"), "alice", "/test a")
    hub.edit_comment(comment, "/test b")
    event = events.issue_comment(hub, comment, "edited")
    github_schema.check_event("issue_comment", event.payload)
    assert event.payload["changes"]["body"]["from"] == "/test a"


def test_a_deleted_comment_is_in_its_event(hub: github.Server) -> None:
    comment = hub.delete_comment(hub.comment(hub.open_issue(by="alice"), "mallory", "/test"))
    event = events.issue_comment(hub, comment, "deleted", by="alice")
    github_schema.check_event("issue_comment", event.payload)
    assert (event.payload["comment"]["user"]["login"], event.actor) == ("mallory", "alice")


@pytest.mark.parametrize("action", ["opened", "labeled", "synchronize"])
def test_the_event_of_a_pull_request_runs_on_its_merge(
    hub: github.Server, tmp_path: Path, action: Literal["opened", "labeled", "synchronize"]
) -> None:
    number = hub.open_pull_request("feature", by="alice", labels=["ok-to-test"])
    before = hub.repository.branches["feature"]
    sha = hub.push("feature", {"model.py": "steps = 2\n"}, by="alice")
    event = events.pull_request(hub, number, action, label="ok-to-test")
    github_schema.check_event("pull_request", event.payload)
    variables = events.start(hub, event, tmp_path)
    assert variables["GITHUB_REF"] == f"refs/pull/{number}/merge"
    assert variables["GITHUB_HEAD_REF"] == "feature"
    assert event.payload.get("before", before) == before
    assert [run.head_sha for run in hub.repository.workflow_runs.values()] == [sha]


@pytest.mark.parametrize("force", [False, True])
def test_the_event_of_a_push_has_its_commit(hub: github.Server, force: bool) -> None:
    sha = hub.push("feature", {"model.py": "steps = 2\n"}, by="alice", force=force)
    event = events.push(hub, "feature")
    github_schema.check_event("push", event.payload)
    assert (event.sha, event.payload["forced"], event.payload["created"]) == (sha, force, False)


def test_a_workflow_is_started_by_hand(hub: github.Server) -> None:
    event = events.workflow_dispatch(hub, "alice", {"project": "training_e2e"})
    github_schema.check_event("workflow_dispatch", event.payload)
    assert event.payload["inputs"] == {"project": "training_e2e"}


def test_a_schedule_has_its_expression(hub: github.Server, tmp_path: Path) -> None:
    variables = events.start(hub, events.schedule(hub, "0 3 * * *"), tmp_path)
    assert events.read(variables)["schedule"] == "0 3 * * *"
    assert (variables["GITHUB_REF"], variables["GITHUB_EVENT_NAME"]) == ("refs/heads/main", "schedule")
    assert Path(variables["GITHUB_STEP_SUMMARY"]).read_text() == ""
