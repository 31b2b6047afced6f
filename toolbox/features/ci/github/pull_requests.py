"""Reads and comments the pull requests of a repository on GitHub. Implements `extensions.protocols.PullRequests`.

The event of a comment does not contain a revision. The head of the pull request may have changed since the comment was
written: a run of the current head would test, with credentials, code that the author of the comment has not seen. So
the latest push to the branch must be older than the comment. GitHub records the times of pushes; the dates in commits
can be forged.
"""

from __future__ import annotations

import base64
import datetime as dt
import re
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final

from toolbox.features.ci.github import check_runs, github_api, repository_tree, result_labels
from toolbox.features.ci.github.github_api import Api, mapping, segment
from toolbox.ground.model import owners_file
from toolbox.ground.model.errors import RefusedRequest, UsageError
from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.forge_data import (
    CommentAction,
    Commenters,
    CommentEvent,
    CommitReport,
    CommitStatus,
    PostedComment,
    ResultLabel,
)
from toolbox.ground.model.text import abbreviated
from toolbox.ground.system import environ

_MAY_WRITE: Final = frozenset({"admin", "maintain", "write"})
_LOGIN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,99})")
_REVISION = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_LONGEST_DESCRIPTION: Final = 140  # characters that GitHub shows of a commit status
MEMBERS_TOKEN: Final = "TOPGALLANT_MEMBERS_TOKEN"  # noqa: S105  # the name of a variable


class GitHubPullRequests:
    """The pull requests of one repository.

    Args:
        members_api: the API with a token that can read the members of teams; by default `api`.
        allows_forks: whether pull requests of forks may be tested.
    """

    def __init__(self, api: Api, members_api: Api | None = None, *, allows_forks: bool = False) -> None:
        self._api = api
        self._members_api = members_api or api
        self._allows_forks = allows_forks

    def may_start(self, event: CommentEvent, allowed: Commenters) -> bool:
        """Return whether the author of a comment may start and cancel runs.

        Raises:
            UsageError: the OWNERS file is not YAML.
            InfrastructureError: GitHub refused a request.
        """
        if not _LOGIN.fullmatch(event.author):  # for example, the name of a bot
            return False
        return (
            (allowed.write_access and self._has_write_access(event.author))
            or any(self._is_member(team, event.author) for team in allowed.teams)
            or (allowed.owners_file is not None and event.author.lower() in self._owners(event, allowed.owners_file))
        )

    def verify(self, event: CommentEvent) -> None:
        """Check that the comment still exists on the pull request as the event describes it.

        Raises:
            UsageError: the comment was deleted or edited, or the event is forged.
            InfrastructureError: GitHub refused a request.
        """
        try:
            comment = mapping(self._api.get(f"issues/comments/{event.id}"))
        except RefusedRequest as refusal:
            if refusal.status != HTTPStatus.NOT_FOUND:
                raise
            raise UsageError("the comment was deleted: nothing runs") from None
        same_pull_request = str(comment.get("issue_url")).endswith(f"/issues/{event.pull_request}")
        same_author = mapping(comment.get("user")).get("login") == event.author
        same_time = event.created == _time(comment.get("created_at")) == _time(comment.get("updated_at"))
        if not (same_pull_request and same_author and same_time and comment.get("body") == event.text):
            raise UsageError("the comment was edited: nothing runs. Write a new comment")

    def revision(self, event: CommentEvent) -> str:
        """Return the head of the pull request at the time of the comment.

        Raises:
            UsageError: the pull request may not be tested, or its branch has changed since the comment.
            InfrastructureError: GitHub refused a request.
        """
        number = event.pull_request
        pull_request = mapping(self._api.get(f"pulls/{number}"))
        head = mapping(pull_request.get("head"))
        if pull_request.get("state") != "open":
            raise UsageError(f"the pull request {number} is not open: open it, and comment again")
        repository = mapping(head.get("repo")).get("full_name")
        if repository != self._api.repository and not (self._allows_forks and isinstance(repository, str)):
            raise UsageError(
                f"the pull request {number} comes from a fork, whose code does not run with credentials:\n"
                "  review the code, push the branch to this repository, and comment on a pull request of that branch"
            )
        branch, revision = str(head.get("ref")), str(head.get("sha"))
        if not _REVISION.fullmatch(revision):
            raise UsageError(f"the pull request {number} has no head commit")
        if event.created is None or not _is_older(self._api.of(repository), branch, revision, event.created):
            raise UsageError(
                f"the branch {abbreviated(clean(branch))} may have changed since the comment:\n"
                "  look at its latest commits, and comment again"
            )
        return revision

    def events(self, number: int) -> Iterator[CommentEvent]:
        """Yield the comments of a pull request as events, the oldest first.

        Raises:
            InfrastructureError: GitHub refused a request.
        """
        for comment in self._api.items(f"issues/{number}/comments"):
            posted = _posted(comment)
            created = _time(comment.get("created_at"))
            is_original = _time(comment.get("updated_at")) == created
            action = CommentAction.CREATED if is_original else CommentAction.EDITED
            yield CommentEvent(posted.text, posted.author, number, posted.id, created, action)

    def account(self) -> str:
        """Return the login of the account that writes comments.

        Raises:
            InfrastructureError: GitHub refused the request.
        """
        return self._api.login()

    def comments(self, number: int) -> Iterator[PostedComment]:
        """Yield the comments of a pull request, the oldest first.

        Raises:
            InfrastructureError: GitHub refused a request.
        """
        return map(_posted, self._api.items(f"issues/{number}/comments"))

    def create_comment(self, number: int, text: str) -> str:
        """Write a comment on a pull request, and return its address.

        Raises:
            InfrastructureError: GitHub refused the request.
        """
        return _address(self._api.send("POST", f"issues/{number}/comments", {"body": text}))

    def replace_comment(self, number: int, comment: PostedComment, text: str) -> str:
        """Replace the text of a comment, and return its address.

        Raises:
            InfrastructureError: GitHub refused the request.
        """
        del number
        return _address(self._api.send("PATCH", f"issues/comments/{comment.id}", {"body": text}))

    def delete_comment(self, number: int, comment: PostedComment) -> None:
        """Delete a comment.

        Raises:
            InfrastructureError: GitHub refused the request.
        """
        del number
        self._api.send("DELETE", f"issues/comments/{comment.id}", {})

    def files(self, revision: str) -> frozenset[str]:
        """Return the paths of all files of a revision.

        Raises:
            InfrastructureError: GitHub refused the request.
        """
        return repository_tree.paths(self._api, revision)

    def show_report(self, report: CommitReport) -> None:
        """Show a report as a check run with annotations.

        Raises:
            InfrastructureError: GitHub refused a request.
        """
        check_runs.publish(self._api, report)

    def set_label(self, number: int, label: ResultLabel) -> None:
        """Label a pull request with a result, and remove the label for the other result.

        Raises:
            InfrastructureError: GitHub refused a request.
        """
        result_labels.apply(self._api, number, label)

    def set_status(self, revision: str, status: CommitStatus) -> None:
        """Show a status on a commit.

        Raises:
            InfrastructureError: GitHub refused the request.
        """
        content = {
            "state": status.state,
            "context": status.context,
            "description": status.description[:_LONGEST_DESCRIPTION],
            "target_url": status.url,
        }
        self._api.send("POST", f"statuses/{revision}", content)

    def _has_write_access(self, login: str) -> bool:
        answer = mapping(self._api.get(f"collaborators/{segment(login)}/permission"))
        return answer.get("permission") in _MAY_WRITE

    def _is_member(self, team: str, login: str) -> bool:
        organization, _, name = team.partition("/")
        path = f"/orgs/{segment(organization)}/teams/{segment(name)}/memberships/{segment(login)}"
        try:
            answer = mapping(self._members_api.get(path))
        except RefusedRequest as refusal:
            if refusal.status != HTTPStatus.NOT_FOUND:  # no member, or there is no such team
                raise
            return False
        return answer.get("state") == "active"

    def _owners(self, event: CommentEvent, path: str) -> frozenset[str]:
        """Return the logins in the OWNERS file on the base branch of the pull request, as the branch is now."""
        base = mapping(mapping(self._api.get(f"pulls/{event.pull_request}")).get("base"))
        ref = f"refs/heads/{base.get('ref')}"
        try:
            return owners_file.logins(self._text(path, ref), self._text(owners_file.ALIASES_FILE, ref))
        except ValueError as error:
            raise UsageError(f"{path} or {owners_file.ALIASES_FILE} on the base branch {error}") from None

    def _text(self, path: str, ref: str) -> str:
        """Return the text of a file; empty if there is no such file.

        Raises:
            ValueError: the file is too large, or not text.
        """
        try:
            answer = mapping(self._api.get(f"contents/{github_api.quoted_path(path)}", ref=ref))
        except RefusedRequest as refusal:
            if refusal.status != HTTPStatus.NOT_FOUND:
                raise
            return ""
        if answer.get("encoding") != "base64":
            raise ValueError("is too large, or is not a file")
        return base64.b64decode(str(answer.get("content"))).decode()


def _posted(comment: Mapping[str, Any]) -> PostedComment:
    author = str(mapping(comment.get("user")).get("login") or "")
    return PostedComment(int(comment.get("id") or 0), author, str(comment.get("body") or ""))


def _address(comment: Any) -> str:
    return str(mapping(comment).get("html_url") or "")


def _is_older(api: Api, branch: str, head: str, time: dt.datetime) -> bool:
    """Return whether the latest change of a branch made its present head, and is older than a time."""
    activities = api.get("activity", ref=f"refs/heads/{branch}", per_page=1)
    latest = mapping(activities[0]) if isinstance(activities, list) and activities else {}
    changed = _time(latest.get("timestamp"))
    return latest.get("after") == head and changed is not None and changed < time


def _time(text: Any) -> dt.datetime | None:
    """Parse a time of GitHub, such as `2026-11-23T04:55:00Z`; None if the text is not a time with a time zone."""
    try:
        time = dt.datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return None if time.tzinfo is None else time


def from_environment(repository: str | None = None, *, allows_forks: bool = False) -> GitHubPullRequests:
    """Return the pull requests of a repository, with the tokens of the environment.

    Args:
        repository: the owner and the name; by default the value of `$GITHUB_REPOSITORY`.
        allows_forks: whether pull requests of forks may be tested.

    Raises:
        UsageError: a variable is missing or wrong.
    """
    reads_members = environ.get(MEMBERS_TOKEN) is not None
    members_api = github_api.from_environment(repository, MEMBERS_TOKEN) if reads_members else None
    return GitHubPullRequests(github_api.from_environment(repository), members_api, allows_forks=allows_forks)
