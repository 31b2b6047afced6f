"""The endpoints of check runs, statuses of commits, and runs of workflows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

from tests.features.ci.servers.github import account_views, commit_views, refusals
from tests.features.ci.servers.github.endpoints import Answer, Call, Fields, endpoint
from tests.features.ci.servers.github.state import App, CheckRun, Commit, Role, Status, WorkflowRun

_MAX_ANNOTATIONS: Final = 50
_LONGEST_OUTPUT: Final = 65_535
_LONGEST_DESCRIPTION: Final = 140
_MAX_STATUSES: Final = 1000
_STATUSES: Final = ("queued", "in_progress", "completed")
_CONCLUSIONS: Final = ("action_required", "cancelled", "failure", "neutral", "success", "skipped", "timed_out")
_STATES: Final = ("error", "failure", "pending", "success")
_LEVELS: Final = ("notice", "warning", "failure")
_COMPLETED: Final = "completed"


def _commit(call: Call, ref: str) -> Commit:
    commit = call.find_commit(ref)
    if commit is None:
        raise refusals.unprocessable(f"No commit found for SHA: {ref}")
    return commit


# Check runs


@endpoint("POST", "/repos/{owner}/{repo}/check-runs", "checks/runs#create-a-check-run", "checks")
def create_check_run(call: Call) -> Answer:
    """Create a check run, which only apps may do."""
    app, fields = _app(call), call.fields
    name, sha = fields.text("name"), _commit(call, fields.text("head_sha")).sha
    run = CheckRun(call.state.next_id(), app.id + int(sha[:6], 16), sha, app, name, started=call.state.clock.tick())
    _change(call, run, fields)
    call.repository.check_runs[run.id] = run
    return Answer(commit_views.check_run(call.site, call.repository, run), HTTPStatus.CREATED)


@endpoint("PATCH", "/repos/{owner}/{repo}/check-runs/{run}", "checks/runs#update-a-check-run", "checks")
def update_check_run(call: Call) -> Answer:
    """Change a check run of the same app."""
    app, run = _app(call), _check_run(call)
    if run.app is not app:
        message = f"Invalid app_id `{app.id}` - check run can only be modified by the GitHub App that created it."
        raise refusals.forbidden(message)
    _change(call, run, call.fields)
    return Answer(commit_views.check_run(call.site, call.repository, run))


def _app(call: Call) -> App:
    if call.account.app is None:
        raise refusals.forbidden("You must authenticate via a GitHub App.")
    return call.account.app


def _change(call: Call, run: CheckRun, fields: Fields) -> None:
    """Apply the fields of a request. A conclusion completes the run, and annotations are appended."""
    conclusion = fields.choice("conclusion", "CheckRun", _CONCLUSIONS) if "conclusion" in fields else None
    status = fields.choice("status", "CheckRun", _STATUSES) if "status" in fields else run.status
    if status == _COMPLETED and not (conclusion or run.conclusion):
        raise refusals.not_supplied("conclusion")
    output = fields.nested("output")
    annotations = _annotations(output) if output else []
    texts = (
        {name: _output_text(output, name) for name in ("title", "summary", "text") if name in output} if output else {}
    )
    run.name = fields.optional("name") or run.name
    run.details_url = fields.optional("details_url") or run.details_url
    run.external_id = fields.optional("external_id") or run.external_id
    run.output |= texts
    run.annotations += annotations
    started = fields.optional("started_at")
    run.started = dt.datetime.fromisoformat(started) if started else run.started
    if conclusion or status == _COMPLETED:
        completed = fields.optional("completed_at")
        run.completed = dt.datetime.fromisoformat(completed) if completed else call.state.clock.tick()
        run.status, run.conclusion = _COMPLETED, conclusion or run.conclusion
    else:
        run.status, run.conclusion, run.completed = status, None, None


def _output_text(output: Fields, name: str) -> str | None:
    text = output.optional(name)
    if text is not None and len(text) > _LONGEST_OUTPUT:
        raise refusals.unprocessable(
            f"Invalid request.\n\nOnly {_LONGEST_OUTPUT} characters are allowed; {len(text)} were supplied."
        )
    return text


def _annotations(output: Fields) -> Sequence[Any]:
    annotations = output.items("annotations")
    if len(annotations) > _MAX_ANNOTATIONS:
        raise refusals.unprocessable(
            f"Invalid request.\n\nNo more than {_MAX_ANNOTATIONS} items are allowed; {len(annotations)} were supplied."
        )
    if annotations or "title" in output:
        output.text("title")
        output.text("summary")
    for annotation in annotations:
        _check_annotation(annotation)
    return annotations


def _check_annotation(annotation: Any) -> None:
    fields = Fields(annotation)
    fields.text("path")
    fields.text("message")
    fields.choice("annotation_level", "CheckAnnotation", _LEVELS)
    for name in ("start_line", "end_line"):
        if name not in annotation:
            raise refusals.not_supplied(name)
        if not isinstance(annotation[name], int):
            raise refusals.wrong_type(name, annotation[name], "an integer")


def _check_run(call: Call) -> CheckRun:
    run = call.repository.check_runs.get(call.number("run"))
    if run is None:
        raise refusals.not_found()
    return run


@endpoint("GET", "/repos/{owner}/{repo}/check-runs/{run}", "checks/runs#get-a-check-run", "checks")
def get_check_run(call: Call) -> Answer:
    """Return a check run."""
    return Answer(commit_views.check_run(call.site, call.repository, _check_run(call)))


@endpoint(
    "GET", "/repos/{owner}/{repo}/check-runs/{run}/annotations", "checks/runs#list-check-run-annotations", "checks"
)
def list_annotations(call: Call) -> Answer:
    """List the annotations of a check run."""
    run = _check_run(call)
    return call.page(run.annotations, lambda one: commit_views.annotation(call.site, call.repository, run, one))


@endpoint(
    "GET",
    "/repos/{owner}/{repo}/commits/{ref}/check-runs",
    "checks/runs#list-check-runs-for-a-git-reference",
    "checks",
)
def list_check_runs(call: Call) -> Answer:
    """List the check runs of a commit, by default only the latest of each app and name."""
    commit, query = _commit(call, call.parameters["ref"]), call.query
    found = [run for run in call.repository.check_runs.values() if run.head_sha == commit.sha]
    if query.get("filter", "latest") == "latest":
        found = list({(run.app.id, run.name): run for run in found}.values())
    found = [run for run in found if query.get("check_name", run.name) == run.name]
    found = [run for run in found if query.get("status", run.status) == run.status]
    found = [run for run in found if query.get("app_id", str(run.app.id)) == str(run.app.id)]
    view = commit_views.check_run
    return call.page(found[::-1], lambda run: view(call.site, call.repository, run), wrapper="check_runs")


# Statuses


@endpoint(
    "POST", "/repos/{owner}/{repo}/statuses/{sha}", "commits/statuses#create-a-commit-status", "statuses",
    role=Role.write,
)  # fmt: skip
def create_status(call: Call) -> Answer:
    """Create a status of a commit."""
    fields, repository = call.fields, call.repository
    sha, state = _commit(call, call.parameters["sha"]).sha, fields.choice("state", "Status", _STATES)
    context, description = fields.optional("context") or "default", fields.optional("description")
    if description is not None and len(description) > _LONGEST_DESCRIPTION:
        message = f"description is too long (maximum is {_LONGEST_DESCRIPTION} characters)"
        raise refusals.validation_failed("Status", "custom", "description", message)
    if sum((one.sha, one.context) == (sha, context) for one in repository.statuses) >= _MAX_STATUSES:
        message = "This SHA and context has reached the maximum number of statuses."
        raise refusals.validation_failed("Status", "custom", "base", message)
    now, number = call.state.clock.tick(), call.state.next_id()
    status = Status(number, sha, state, context, description, fields.optional("target_url"), call.account, now)
    repository.statuses.append(status)
    return Answer(commit_views.status(call.site, repository, status), HTTPStatus.CREATED)


def _statuses(call: Call) -> Sequence[Status]:
    sha = _commit(call, call.parameters["ref"]).sha
    return [one for one in reversed(call.repository.statuses) if one.sha == sha]


@endpoint(
    "GET", "/repos/{owner}/{repo}/statuses/{ref}",  # an older address, which PyGithub uses
    "commits/statuses#list-commit-statuses-for-a-reference", "statuses",
)  # fmt: skip
@endpoint(
    "GET", "/repos/{owner}/{repo}/commits/{ref}/statuses",
    "commits/statuses#list-commit-statuses-for-a-reference", "statuses",
)  # fmt: skip
def list_statuses(call: Call) -> Answer:
    """List the statuses of a commit, the newest first."""
    return call.page(_statuses(call), lambda one: commit_views.status(call.site, call.repository, one))


@endpoint(
    "GET", "/repos/{owner}/{repo}/commits/{ref}/status",
    "commits/statuses#get-the-combined-status-for-a-specific-reference", "statuses",
)  # fmt: skip
def get_combined_status(call: Call) -> Answer:
    """Return the latest status of each context, and the state of all together."""
    sha = _commit(call, call.parameters["ref"]).sha
    latest = {one.context: one for one in reversed(_statuses(call))}
    page = call.page(
        list(latest.values()),
        lambda one: commit_views.simple_status(call.site, call.repository, one),
        wrapper="statuses",
    )
    url = f"{call.site.repository(call.repository)}/commits/{sha}"
    facts = {
        "state": _combined({one.state for one in latest.values()}),
        "sha": sha,
        "repository": account_views.minimal_repository(call.site, call.repository),
        "commit_url": url,
        "url": f"{url}/status",
    }
    return Answer({**page.content, **facts}, headers=page.headers)


def _combined(states: set[str]) -> str:
    if states & {"error", "failure"}:
        return "failure"
    return "success" if states == {"success"} else "pending"


# Runs of workflows


@endpoint(
    "GET", "/repos/{owner}/{repo}/actions/runs", "actions/workflow-runs#list-workflow-runs-for-a-repository", "actions"
)
def list_workflow_runs(call: Call) -> Answer:
    """List the runs of workflows, the newest first."""
    found = [run for run in reversed(call.repository.workflow_runs.values()) if _is_listed(call, run)]
    return call.page(found, lambda run: _shown(call, run), wrapper="workflow_runs")


def _is_listed(call: Call, run: WorkflowRun) -> bool:
    facts = {"head_sha": run.head_sha, "branch": run.head_branch, "event": run.event, "actor": run.actor.login}
    return all(call.query.get(name, fact) == fact for name, fact in facts.items()) and call.query.get(
        "status", run.status
    ) in (run.status, run.conclusion)


def _shown(call: Call, run: WorkflowRun) -> Any:
    return commit_views.workflow_run(call.site, call.repository, run, call.state.commits[run.head_sha])


def _workflow_run(call: Call) -> WorkflowRun:
    run = call.repository.workflow_runs.get(call.number("run"))
    if run is None:
        raise refusals.not_found()
    return run


@endpoint("GET", "/repos/{owner}/{repo}/actions/runs/{run}", "actions/workflow-runs#get-a-workflow-run", "actions")
def get_workflow_run(call: Call) -> Answer:
    """Return a run of a workflow."""
    return Answer(_shown(call, _workflow_run(call)))


@endpoint(
    "POST", "/repos/{owner}/{repo}/actions/runs/{run}/cancel", "actions/workflow-runs#cancel-a-workflow-run",
    "actions", role=Role.write,
)  # fmt: skip
def cancel_workflow_run(call: Call) -> Answer:
    """Cancel a run of a workflow, which ends at once here."""
    run = _workflow_run(call)
    if run.status == _COMPLETED:
        raise refusals.ApiError(HTTPStatus.CONFLICT, "Cannot cancel a workflow run that is completed.")
    run.status, run.conclusion, run.updated = _COMPLETED, "cancelled", call.state.clock.tick()
    return Answer({}, HTTPStatus.ACCEPTED)


@endpoint(
    "GET", "/repos/{owner}/{repo}/actions/runs/{run}/artifacts", "actions/artifacts#list-workflow-run-artifacts",
    "actions",
)  # fmt: skip
def list_artifacts(call: Call) -> Answer:
    """List the artifacts of a run of a workflow."""
    run = _workflow_run(call)
    found = [one for one in run.artifacts if call.query.get("name", one.name) == one.name]
    view = commit_views.artifact
    return call.page(found, lambda one: view(call.site, call.repository, run, one), wrapper="artifacts")
