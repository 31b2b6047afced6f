"""Events of GitHub Actions, derived from the state of a server: the payloads, and the variables of a job.

    event = events.issue_comment(server, comment)
    variables = events.start(server, event, directory)

The payloads have the form of https://docs.github.com/webhooks/webhook-events-and-payloads. The variables are those of
https://docs.github.com/actions/reference/workflows-and-actions/variables, with the commit and the ref that
https://docs.github.com/actions/reference/workflows-and-actions/events-that-trigger-workflows names for each event.
GitHub documents only the field `schedule` of the payload of a schedule; its other fields are assumptions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from tests.features.ci.servers.github import account_views, commit_views, issue_views
from tests.features.ci.servers.github.account_views import WEB, Json, Site
from tests.features.ci.servers.github.github_server import Server
from tests.features.ci.servers.github.state import NO_COMMIT, Account, Activity, Comment, Commit

_WRITTEN_FILES: Final = ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_PATH")


@dataclass(frozen=True, slots=True)
class WorkflowEvent:
    """An event that starts a workflow.

    Args:
        sha: the commit that the workflow runs on, as $GITHUB_SHA.
        ref: the ref that the workflow runs on, as $GITHUB_REF.
        branch: the branch that the list of runs shows.
        refs: the variables $GITHUB_HEAD_REF and $GITHUB_BASE_REF.
    """

    name: str
    payload: Json
    actor: str
    sha: str
    ref: str
    branch: str
    refs: Mapping[str, str] = field(default_factory=dict)


def issue_comment(
    server: Server,
    comment: int | Comment,
    action: Literal["created", "edited", "deleted"] = "created",
    *,
    by: str = "",
) -> WorkflowEvent:
    """Return the event of a comment.

    Args:
        comment: the id of the comment, or the comment that `Server.delete_comment` returned.
        by: the login of the account that caused the event; by default the author of the comment.
    """
    with server.state.lock:
        shown = server.repository.comments[comment] if isinstance(comment, int) else comment
        sender = server.state.account(by) if by else shown.author
        issue = issue_views.issue(_site(server), server.repository, shown.issue)
        del issue["closed_by"]  # the payloads of events lack this field
        payload = {"issue": issue, "comment": issue_views.comment(_site(server), server.repository, shown)}
        changes = {"changes": {"body": {"from": shown.previous_body}}} if action == "edited" else {}
        return _on_default_branch(server, "issue_comment", {"action": action, **changes, **payload}, sender)


def pull_request(
    server: Server,
    number: int,
    action: Literal["opened", "labeled", "synchronize"] = "opened",
    *,
    by: str = "",
    label: str = "",
) -> WorkflowEvent:
    """Return the event of a pull request. `labeled` needs the name of a label that the repository has."""
    with server.state.lock:
        issue, site = server.issue(number), _site(server)
        assert issue.pull is not None
        sender, pull = server.state.account(by) if by else issue.author, issue.pull
        more: Json = {}
        if action == "labeled":
            more = {"label": issue_views.label(site, server.repository, server.repository.labels[label.lower()])}
        if action == "synchronize":
            more = {"before": _latest_push(server, number).before, "after": pull.head_sha}
        shown = issue_views.pull_request(site, server.state, server.repository, issue)
        return WorkflowEvent(
            name="pull_request",
            payload={"action": action, "number": number, "pull_request": shown, **more, **_about(server, sender)},
            actor=sender.login,
            sha=issue_views.merge_commit(pull),
            ref=f"refs/pull/{number}/merge",
            branch=pull.head_branch,
            refs={"GITHUB_HEAD_REF": pull.head_branch, "GITHUB_BASE_REF": pull.base_branch},
        )


def _latest_push(server: Server, number: int) -> Activity:
    pull = server.issue(number).pull
    assert pull is not None
    activities = (pull.head or server.repository).activities
    return next(one for one in reversed(activities) if one.after == pull.head_sha)


def push(server: Server, branch: str = "main") -> WorkflowEvent:
    """Return the event of the latest push to a branch of the repository."""
    with server.state.lock:
        ref, site, repository = f"refs/heads/{branch}", _site(server), server.repository
        activity = next(one for one in reversed(repository.activities) if one.ref == ref)
        commit, page = server.state.commits[activity.after], site.page(repository)
        shown = _pushed_commit(server, commit)
        pusher = {"name": activity.account.login, "email": commit_views.email(commit)}
        about = _about(server, activity.account)
        times = {"created_at": int(repository.created.timestamp()), "pushed_at": int(repository.pushed.timestamp())}
        payload = {
            "ref": ref,
            "before": activity.before,
            "after": activity.after,
            **about,
            "repository": {**about["repository"], **times, "stargazers": 0, "master_branch": repository.default_branch},
            "pusher": pusher,
            "created": activity.before == NO_COMMIT,
            "deleted": False,
            "forced": activity.kind == "force_push",
            "base_ref": None,
            "compare": f"{page}/compare/{activity.before[:12]}...{activity.after[:12]}",
            "commits": [shown],
            "head_commit": shown,
        }
        return WorkflowEvent("push", payload, activity.account.login, activity.after, ref, branch)


def _pushed_commit(server: Server, commit: Commit) -> Json:
    before = server.state.commits[commit.parent].files if commit.parent else {}
    person = {"name": commit.author.login, "email": commit_views.email(commit), "username": commit.author.login}
    return {
        **commit_views.simple_commit(commit),
        "distinct": True,
        "url": f"{_site(server).page(server.repository)}/commit/{commit.sha}",
        "author": person,
        "committer": person,
        "added": sorted({*commit.files} - {*before}),
        "removed": sorted({*before} - {*commit.files}),
        "modified": sorted(path for path in {*before} & {*commit.files} if before[path] != commit.files[path]),
    }


def schedule(server: Server, cron: str = "30 5 * * 1") -> WorkflowEvent:
    """Return the event of a schedule, whose actor is the account that last changed the schedule."""
    with server.state.lock:
        sender = server.state.commits[server.repository.branches[server.repository.default_branch]].author
        return _on_default_branch(server, "schedule", {"schedule": cron}, sender)


def workflow_dispatch(
    server: Server, by: str, inputs: Mapping[str, str] | None = None, *, workflow: str = "topgallant"
) -> WorkflowEvent:
    """Return the event of a workflow that a person started by hand."""
    with server.state.lock:
        ref = f"refs/heads/{server.repository.default_branch}"
        facts = {"inputs": dict(inputs or {}), "ref": ref, "workflow": f".github/workflows/{workflow}.yml"}
        return _on_default_branch(server, "workflow_dispatch", facts, server.state.account(by))


def _on_default_branch(server: Server, name: str, facts: Json, sender: Account) -> WorkflowEvent:
    branch = server.repository.default_branch
    sha, ref = server.repository.branches[branch], f"refs/heads/{branch}"
    return WorkflowEvent(name, {**facts, **_about(server, sender)}, sender.login, sha, ref, branch)


def _about(server: Server, sender: Account) -> Json:
    """Return the fields that all payloads have."""
    site, owner = _site(server), server.repository.owner
    organization = {
        "login": owner.login,
        "id": owner.id,
        "node_id": account_views.node_id("O", owner.id),
        "url": f"{site.api}/orgs/{owner.login}",
        "repos_url": f"{site.api}/orgs/{owner.login}/repos",
        "events_url": f"{site.api}/orgs/{owner.login}/events",
        "hooks_url": f"{site.api}/orgs/{owner.login}/hooks",
        "issues_url": f"{site.api}/orgs/{owner.login}/issues",
        "members_url": f"{site.api}/orgs/{owner.login}/members{{/member}}",
        "public_members_url": f"{site.api}/orgs/{owner.login}/public_members{{/member}}",
        "avatar_url": f"https://avatars.githubusercontent.com/u/{owner.id}?v=4",
        "description": None,
    }
    return {
        "repository": {**account_views.repository(site, server.repository), "custom_properties": {}},
        "organization": organization,
        "sender": account_views.account(site, sender),
    }


def start(
    server: Server, event: WorkflowEvent, directory: Path, *, workflow: str = "topgallant", job: str = "test"
) -> Mapping[str, str]:
    """Start a run of a workflow for an event, and return the environment variables of its first job.

    The run is in the list of runs of the server, so that it can be cancelled. A token is not among the variables,
    because a job has one only if its workflow file passes it.

    Args:
        directory: the directory for the payload, and for the files to which a job writes. It is made if necessary.
    """
    with server.state.lock:
        directory.mkdir(parents=True, exist_ok=True)
        head = event.payload.get("pull_request", {}).get("head", {}).get("sha", event.sha)
        number = server.start_workflow(workflow, event.name, event.actor, sha=head, branch=event.branch)
        payload = directory / "event.json"
        payload.write_text(json.dumps(event.payload, indent=2), encoding="utf-8")
        run = server.repository.workflow_runs[number]
        return {
            **_constants(server, directory),
            **_files(directory),
            "GITHUB_EVENT_NAME": event.name,
            "GITHUB_EVENT_PATH": str(payload),
            "GITHUB_SHA": event.sha,
            "GITHUB_REF": event.ref,
            "GITHUB_REF_NAME": event.ref.removeprefix("refs/heads/").removeprefix("refs/pull/"),
            "GITHUB_HEAD_REF": "",
            "GITHUB_BASE_REF": "",
            **event.refs,
            "GITHUB_ACTOR": event.actor,
            "GITHUB_ACTOR_ID": str(run.actor.id),
            "GITHUB_TRIGGERING_ACTOR": event.actor,
            "GITHUB_RUN_ID": str(run.id),
            "GITHUB_RUN_NUMBER": str(run.number),
            "GITHUB_RUN_ATTEMPT": str(run.attempt),
            "GITHUB_WORKFLOW": run.workflow,
            "GITHUB_WORKFLOW_REF": f"{server.repository.full_name}/{run.path}@{event.ref}",
            "GITHUB_WORKFLOW_SHA": event.sha,
            "GITHUB_JOB": job,
        }


def _constants(server: Server, directory: Path) -> Mapping[str, str]:
    repository = server.repository
    return {
        "CI": "true",
        "GITHUB_ACTIONS": "true",
        "GITHUB_API_URL": server.url,
        "GITHUB_SERVER_URL": WEB,
        "GITHUB_REPOSITORY": repository.full_name,
        "GITHUB_REPOSITORY_ID": str(repository.id),
        "GITHUB_REPOSITORY_OWNER": repository.owner.login,
        "GITHUB_REPOSITORY_OWNER_ID": str(repository.owner.id),
        "GITHUB_REF_TYPE": "branch",
        "GITHUB_REF_PROTECTED": "false",
        "GITHUB_WORKSPACE": str(directory),
        "RUNNER_TEMP": str(directory),
        "RUNNER_OS": "Linux",
    }


def _files(directory: Path) -> Mapping[str, str]:
    """Make the empty files to which a job writes, and return their variables."""
    files = {name: directory / name.lower() for name in _WRITTEN_FILES}
    for file in files.values():
        file.write_text("", encoding="utf-8")
    return {name: str(file) for name, file in files.items()}


def _site(server: Server) -> Site:
    return Site(server.url)


def read(variables: Mapping[str, str]) -> Any:
    """Return the payload that the variables of a job name."""
    return json.loads(Path(variables["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
