"""The endpoints of issues, labels, comments and reactions."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Final, Literal

from tests.features.ci.servers.github import issue_views, refusals
from tests.features.ci.servers.github.endpoints import Answer, Call, endpoint
from tests.features.ci.servers.github.state import Comment, Issue, Label, Reaction, Role

LONGEST_BODY: Final = 65_536
_LONGEST_TITLE: Final = 256
_LONGEST_LABEL: Final = 50
_DEFAULT_COLOR: Final = "ededed"
_BOTH: Final = ("issues", "pull_requests")


# Issues


@endpoint("GET", "/repos/{owner}/{repo}/issues", "issues/issues#list-repository-issues", "issues")
def list_issues(call: Call) -> Answer:
    """List issues and pull requests, the newest first unless the query says otherwise."""
    key = "updated" if call.query.get("sort") == "updated" else "created"
    found = [issue for issue in call.repository.issues.values() if _is_listed(call, issue)]
    found.sort(key=lambda issue: (getattr(issue, key), issue.number), reverse=call.query.get("direction") != "asc")
    return call.page(found, lambda issue: issue_views.issue(call.site, call.repository, issue))


def _is_listed(call: Call, issue: Issue) -> bool:
    names = {label.name.lower() for label in issue.labels}
    wanted = {name.strip().lower() for name in call.query.get("labels", "").split(",") if name.strip()}
    state, creator = call.query.get("state", "open"), call.query.get("creator", issue.author.login)
    since = _since(call)
    is_since = since is None or issue.updated >= since
    return state in (issue.state, "all") and wanted <= names and creator == issue.author.login and is_since


def _since(call: Call) -> dt.datetime | None:
    text = call.query.get("since")
    return dt.datetime.fromisoformat(text) if text else None


@endpoint("POST", "/repos/{owner}/{repo}/issues", "issues/issues#create-an-issue", "issues")
def create_issue(call: Call) -> Answer:
    """Create an issue. The labels of people without the role `triage` are dropped."""
    repository, fields = call.repository, call.fields
    title, body, now = _title(fields.text("title")), fields.optional("body"), call.state.clock.tick()
    _check_body("Issue", body)
    labels = add_labels(call, fields.names("labels")) if call.may_moderate() else []
    number = max(repository.issues, default=0) + 1
    issue = Issue(call.state.next_id(), number, title, body, call.account, now, now, labels, app=call.account.app)
    repository.issues[number] = issue
    return Answer(issue_views.issue(call.site, repository, issue), HTTPStatus.CREATED)


@endpoint("GET", "/repos/{owner}/{repo}/issues/{number}", "issues/issues#get-an-issue", *_BOTH)
def get_issue(call: Call) -> Answer:
    """Return an issue or a pull request."""
    return Answer(issue_views.issue(call.site, call.repository, call.issue))


@endpoint("PATCH", "/repos/{owner}/{repo}/issues/{number}", "issues/issues#update-an-issue", *_BOTH)
def update_issue(call: Call) -> Answer:
    """Change an issue."""
    issue, fields = call.issue, call.fields
    if call.account is not issue.author and not call.may_moderate():
        raise refusals.forbidden("Must have admin rights to Repository.")
    _check_body("Issue", fields.optional("body"))
    title = _title(fields.text("title")) if "title" in fields else issue.title
    state = fields.choice("state", "Issue", ("open", "closed")) if "state" in fields else issue.state
    issue.title, issue.updated = title, call.state.clock.tick()
    issue.body = fields.optional("body") if "body" in fields else issue.body
    issue.labels = add_labels(call, fields.names("labels")) if "labels" in fields else issue.labels
    if state != issue.state:
        _set_state(call, issue, is_open=state == "open", reason=fields.optional("state_reason"))
    return Answer(issue_views.issue(call.site, call.repository, issue))


def _set_state(call: Call, issue: Issue, *, is_open: bool, reason: str | None) -> None:
    state: Literal["open", "closed"] = "open" if is_open else "closed"
    issue.state = state
    issue.closed = None if is_open else issue.updated
    issue.closed_by = None if is_open else call.account
    issue.state_reason = "reopened" if is_open else reason or "completed"
    if issue.pull:
        issue.state_reason = None


def _title(title: str) -> str:
    if not title.strip():
        raise refusals.validation_failed("Issue", "missing_field", "title")
    if len(title) > _LONGEST_TITLE:
        message = f"title is too long (maximum is {_LONGEST_TITLE} characters)"
        raise refusals.validation_failed("Issue", "custom", "title", message)
    return title


def _check_body(resource: str, body: str | None) -> None:
    if body is not None and len(body) > LONGEST_BODY:
        message = f"body is too long (maximum is {LONGEST_BODY} characters)"
        raise refusals.validation_failed(resource, "custom", "body", message)


# Labels


def add_labels(call: Call, names: Iterable[str]) -> list[Label]:
    """Return labels of the repository by their names, and create the missing ones."""
    return [call.repository.labels.get(name.lower()) or _create_label(call, name) for name in dict.fromkeys(names)]


def _create_label(call: Call, name: str, color: str = _DEFAULT_COLOR, description: str | None = None) -> Label:
    if not name.strip():
        raise refusals.validation_failed("Label", "missing_field", "name")
    if len(name) > _LONGEST_LABEL:
        message = f"name is too long (maximum is {_LONGEST_LABEL} characters)"
        raise refusals.validation_failed("Label", "custom", "name", message)
    label = Label(call.state.next_id(), name, color, description)
    call.repository.labels[name.lower()] = label
    return label


@endpoint("GET", "/repos/{owner}/{repo}/labels", "issues/labels#list-labels-for-a-repository", *_BOTH)
def list_labels(call: Call) -> Answer:
    """List the labels of the repository."""
    labels = sorted(call.repository.labels.values(), key=lambda label: label.name.lower())
    return call.page(labels, lambda label: issue_views.label(call.site, call.repository, label))


@endpoint("POST", "/repos/{owner}/{repo}/labels", "issues/labels#create-a-label", *_BOTH, role=Role.write)
def create_label(call: Call) -> Answer:
    """Create a label."""
    fields = call.fields
    name, color = fields.text("name"), fields.optional("color") or _DEFAULT_COLOR
    if not re.fullmatch("[0-9a-fA-F]{6}", color):
        raise refusals.validation_failed("Label", "invalid", "color")
    if name.lower() in call.repository.labels:
        raise refusals.validation_failed("Label", "already_exists", "name")
    label = _create_label(call, name, color, fields.optional("description"))
    return Answer(issue_views.label(call.site, call.repository, label), HTTPStatus.CREATED)


@endpoint("GET", "/repos/{owner}/{repo}/labels/{name}", "issues/labels#get-a-label", *_BOTH)
def get_label(call: Call) -> Answer:
    """Return a label."""
    label = call.repository.labels.get(call.parameters["name"].lower())
    if label is None:
        raise refusals.not_found()
    return Answer(issue_views.label(call.site, call.repository, label))


@endpoint("GET", "/repos/{owner}/{repo}/issues/{number}/labels", "issues/labels#list-labels-for-an-issue", *_BOTH)
def list_issue_labels(call: Call) -> Answer:
    """List the labels of an issue."""
    return call.page(call.issue.labels, lambda label: issue_views.label(call.site, call.repository, label))


@endpoint(
    "POST", "/repos/{owner}/{repo}/issues/{number}/labels", "issues/labels#add-labels-to-an-issue", *_BOTH,
    role=Role.triage,
)  # fmt: skip
def add_issue_labels(call: Call) -> Answer:
    """Add labels to an issue, and return all labels of it."""
    issue = call.issue
    names = [str(name) for name in call.body] if isinstance(call.body, list) else call.fields.names("labels")
    issue.labels += [label for label in add_labels(call, names) if label not in issue.labels]
    issue.updated = call.state.clock.tick()
    return _labels(call, issue)


@endpoint(
    "DELETE", "/repos/{owner}/{repo}/issues/{number}/labels/{name}", "issues/labels#remove-a-label-from-an-issue",
    *_BOTH, role=Role.triage,
)  # fmt: skip
def remove_issue_label(call: Call) -> Answer:
    """Remove a label from an issue, and return the other labels of it."""
    issue, name = call.issue, call.parameters["name"].lower()
    label = next((label for label in issue.labels if label.name.lower() == name), None)
    if label is None:
        raise refusals.ApiError(HTTPStatus.NOT_FOUND, "Label does not exist")
    issue.labels.remove(label)
    issue.updated = call.state.clock.tick()
    return _labels(call, issue)


def _labels(call: Call, issue: Issue) -> Answer:
    return Answer([issue_views.label(call.site, call.repository, label) for label in issue.labels])


# Comments


@endpoint("GET", "/repos/{owner}/{repo}/issues/{number}/comments", "issues/comments#list-issue-comments", *_BOTH)
def list_comments(call: Call) -> Answer:
    """List the comments on an issue, the oldest first."""
    since = _since(call)
    comments = [
        comment
        for comment in call.repository.comments.values()
        if comment.issue is call.issue and (since is None or comment.updated >= since)
    ]
    return call.page(comments, lambda comment: issue_views.comment(call.site, call.repository, comment))


@endpoint("POST", "/repos/{owner}/{repo}/issues/{number}/comments", "issues/comments#create-an-issue-comment", *_BOTH)
def create_comment(call: Call) -> Answer:
    """Create a comment."""
    issue, body = call.issue, _comment_body(call)
    if issue.is_locked and not call.may_moderate():
        raise refusals.forbidden("Unable to create comment because issue is locked.")
    now = call.state.clock.tick()
    comment = Comment(call.state.next_id(), issue, call.account, body, now, now, call.account.app)
    call.repository.comments[comment.id] = comment
    issue.updated = now
    shown = issue_views.comment(call.site, call.repository, comment)
    return Answer(shown, HTTPStatus.CREATED, {"location": str(shown["url"])})


def _comment_body(call: Call) -> str:
    body = call.fields.text("body")
    problem = f"Body is too long (maximum is {LONGEST_BODY} characters)" if len(body) > LONGEST_BODY else ""
    problem = problem if body.strip() else "Body cannot be blank"
    if problem:
        raise refusals.validation_failed("IssueComment", "unprocessable", "data", problem)
    return body


@endpoint("GET", "/repos/{owner}/{repo}/issues/comments/{comment}", "issues/comments#get-an-issue-comment", *_BOTH)
def get_comment(call: Call) -> Answer:
    """Return a comment."""
    return Answer(issue_views.comment(call.site, call.repository, _comment(call)))


@endpoint("PATCH", "/repos/{owner}/{repo}/issues/comments/{comment}", "issues/comments#update-an-issue-comment", *_BOTH)
def update_comment(call: Call) -> Answer:
    """Change the body of a comment."""
    comment = _own_comment(call)
    comment.previous_body, comment.body = comment.body, _comment_body(call)
    comment.updated = call.state.clock.tick()
    return Answer(issue_views.comment(call.site, call.repository, comment))


@endpoint(
    "DELETE", "/repos/{owner}/{repo}/issues/comments/{comment}", "issues/comments#delete-an-issue-comment", *_BOTH
)
def delete_comment(call: Call) -> Answer:
    """Delete a comment."""
    del call.repository.comments[_own_comment(call).id]
    return Answer(status=HTTPStatus.NO_CONTENT)


def _comment(call: Call) -> Comment:
    comment = call.repository.comments.get(call.number("comment"))
    if comment is None:
        raise refusals.not_found()
    return comment


def _own_comment(call: Call) -> Comment:
    """Return a comment that the account may change: its own, or any comment for a person with write access."""
    comment, is_app = _comment(call), call.account.app is not None
    is_writer = not is_app and call.repository.role_of(call.account) >= Role.write
    if comment.author is not call.account and not is_writer:
        message = "Resource not accessible by integration" if is_app else "Must have admin rights to Repository."
        raise refusals.forbidden(message)
    return comment


# Reactions


@endpoint(
    "GET", "/repos/{owner}/{repo}/issues/comments/{comment}/reactions",
    "reactions/reactions#list-reactions-for-an-issue-comment", *_BOTH,
)  # fmt: skip
def list_reactions(call: Call) -> Answer:
    """List the reactions to a comment."""
    return call.page(_reactions(call), lambda one: issue_views.reaction(call.site, one))


def _reactions(call: Call) -> Sequence[Reaction]:
    content = call.query.get("content")
    return [one for one in _comment(call).reactions if content in (None, one.content)]


@endpoint(
    "POST", "/repos/{owner}/{repo}/issues/comments/{comment}/reactions",
    "reactions/reactions#create-reaction-for-an-issue-comment", *_BOTH,
)  # fmt: skip
def create_reaction(call: Call) -> Answer:
    """Add a reaction. An account that has already reacted in this way gets its existing reaction."""
    comment, content = _comment(call), call.fields.choice("content", "Reaction", issue_views.REACTIONS)
    for one in comment.reactions:
        if (one.account, one.content) == (call.account, content):
            return Answer(issue_views.reaction(call.site, one))
    reaction = Reaction(call.state.next_id(), call.account, content, call.state.clock.tick())
    comment.reactions.append(reaction)
    return Answer(issue_views.reaction(call.site, reaction), HTTPStatus.CREATED)


@endpoint(
    "DELETE", "/repos/{owner}/{repo}/issues/comments/{comment}/reactions/{reaction}",
    "reactions/reactions#delete-an-issue-comment-reaction", *_BOTH,
)  # fmt: skip
def delete_reaction(call: Call) -> Answer:
    """Remove a reaction of the account."""
    comment, number = _comment(call), call.number("reaction")
    reaction = next((one for one in comment.reactions if one.id == number), None)
    if reaction is None or reaction.account is not call.account:
        raise refusals.not_found()
    comment.reactions.remove(reaction)
    return Answer(status=HTTPStatus.NO_CONTENT)
