"""Reads and comments the merge requests of a project on GitLab. Implements `extensions.protocols.PullRequests`.

GitLab records a version of a merge request for each push to its branch, with the time of the push. The latest version
must be older than the comment, as for GitHub (`toolbox/features/ci/github/pull_requests.py`).
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final

from toolbox.features.ci.gitlab.gitlab_api import GitLabApi, mapping, segment
from toolbox.ground.model import owners_file
from toolbox.ground.model.errors import RefusedRequest, UsageError
from toolbox.ground.model.forge_data import Commenters, CommentEvent, CommitState, CommitStatus, PostedComment

_DEVELOPER: Final = 30  # the access level of https://docs.gitlab.com/api/members/#roles that may push
_GUEST: Final = 10  # the lowest access level of a member who can read a group
_ACTIVE: Final = "active"
_REVISION = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_USERNAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}")
_LONGEST_DESCRIPTION: Final = 255  # characters of a commit status
_STATES: Final = {
    CommitState.PENDING: "pending",
    CommitState.SUCCESS: "success",
    CommitState.FAILURE: "failed",
    CommitState.ERROR: "canceled",
}
_SAME_STATE: Final = "Cannot transition status"


class GitLabMergeRequests:
    """The merge requests of one project."""

    def __init__(self, api: GitLabApi) -> None:
        self._api = api

    def may_start(self, event: CommentEvent, allowed: Commenters) -> bool:
        """Return whether the author of a note may start and cancel runs.

        Raises:
            UsageError: the OWNERS file is not YAML.
            InfrastructureError: GitLab refused a request.
        """
        if not _USERNAME.fullmatch(event.author) or (user := self._user(event.author)) is None:
            return False
        return (
            (allowed.write_access and self._level(f"members/all/{user}") >= _DEVELOPER)
            or any(self._level(f"/groups/{segment(group)}/members/all/{user}") >= _GUEST for group in allowed.teams)
            or (allowed.owners_file is not None and event.author.lower() in self._owners(event, allowed.owners_file))
        )

    def verify(self, event: CommentEvent) -> None:
        """Check that the note still exists on the merge request as the event describes it.

        Raises:
            UsageError: the note was deleted or edited, or the event is forged.
            InfrastructureError: GitLab refused a request.
        """
        try:
            note = mapping(self._api.get(f"merge_requests/{event.pull_request}/notes/{event.id}"))
        except RefusedRequest as refusal:
            if refusal.status != HTTPStatus.NOT_FOUND:
                raise
            raise UsageError("the comment was deleted: nothing runs") from None
        created = _time(note.get("created_at"))
        # The webhook sends the time without the fraction of the second.
        same_time = created is not None and created.replace(microsecond=0) == _whole_seconds(event.created)
        same_author = mapping(note.get("author")).get("username") == event.author
        if not (same_time and same_author and note.get("body") == event.text):
            raise UsageError("the comment was edited: nothing runs. Write a new comment")

    def revision(self, event: CommentEvent) -> str:
        """Return the head of the merge request at the time of the note.

        Raises:
            UsageError: the merge request may not be tested, or its branch has changed since the note.
            InfrastructureError: GitLab refused a request.
        """
        number = event.pull_request
        request = mapping(self._api.get(f"merge_requests/{number}"))
        if request.get("state") != "opened":
            raise UsageError(f"the merge request {number} is not open: open it, and comment again")
        if not request.get("source_project_id") == request.get("target_project_id") == self._api.project:
            raise UsageError(
                f"the merge request {number} comes from a fork, whose code does not run with credentials:\n"
                "  review the code, push the branch to this project, and comment on a merge request of that branch"
            )
        revision = str(request.get("sha"))
        if not _REVISION.fullmatch(revision):
            raise UsageError(f"the merge request {number} has no head commit")
        versions = list(self._api.items(f"merge_requests/{number}/versions"))
        latest = max(versions, key=lambda version: int(version.get("id") or 0), default={})
        pushed = _time(latest.get("created_at"))
        is_older = pushed is not None and event.created is not None and pushed < event.created
        if latest.get("head_commit_sha") != revision or not is_older:
            raise UsageError(
                f"the merge request {number} may have changed since the comment:\n"
                "  look at its latest commits, and comment again"
            )
        return revision

    def account(self) -> str:
        """Return the username of the account that writes notes.

        Raises:
            InfrastructureError: GitLab refused the request.
        """
        return str(mapping(self._api.get("/user")).get("username") or "")

    def comments(self, number: int) -> Iterator[PostedComment]:
        """Yield the notes of a merge request, the oldest first.

        Raises:
            InfrastructureError: GitLab refused a request.
        """
        return map(_posted, self._api.items(f"merge_requests/{number}/notes", sort="asc", order_by="created_at"))

    def create_comment(self, number: int, text: str) -> str:
        """Write a note on a merge request, and return its address.

        Raises:
            InfrastructureError: GitLab refused the request.
        """
        note = self._api.send("POST", f"merge_requests/{number}/notes", {"body": text})
        return self._address(number, note)

    def replace_comment(self, number: int, comment: PostedComment, text: str) -> str:
        """Replace the text of a note, and return its address.

        Raises:
            InfrastructureError: GitLab refused the request.
        """
        note = self._api.send("PUT", f"merge_requests/{number}/notes/{comment.id}", {"body": text})
        return self._address(number, note)

    def delete_comment(self, number: int, comment: PostedComment) -> None:
        """Delete a note.

        Raises:
            InfrastructureError: GitLab refused the request.
        """
        self._api.delete(f"merge_requests/{number}/notes/{comment.id}")

    def set_status(self, revision: str, status: CommitStatus) -> None:
        """Show a status on a commit.

        Raises:
            InfrastructureError: GitLab refused the request.
        """
        content = {
            "state": _STATES[status.state],
            "name": status.context,
            "description": status.description[:_LONGEST_DESCRIPTION],
            **({"target_url": status.url} if status.url else {}),
        }
        try:
            self._api.send("POST", f"statuses/{revision}", content)
        except RefusedRequest as refusal:
            # GitLab refuses a status that the commit already has.
            if refusal.status != HTTPStatus.BAD_REQUEST or _SAME_STATE not in str(refusal):
                raise

    def _user(self, username: str) -> int | None:
        """Return the number of a user; None if there is no such user."""
        users = map(mapping, self._api.get("/users", username=username))
        return next((int(user["id"]) for user in users if user.get("username") == username), None)

    def _level(self, path: str) -> int:
        """Return the access level of a member; 0 if the user is not a member, or is blocked."""
        try:
            member = mapping(self._api.get(path))
        except RefusedRequest as refusal:
            if refusal.status != HTTPStatus.NOT_FOUND:  # no member, or no such group
                raise
            return 0
        return int(member.get("access_level") or 0) if member.get("state") == _ACTIVE else 0

    def _owners(self, event: CommentEvent, path: str) -> frozenset[str]:
        """Return the usernames in the OWNERS file on the target branch, as the branch is now."""
        branch = mapping(self._api.get(f"merge_requests/{event.pull_request}")).get("target_branch")
        commit = mapping(mapping(self._api.get(f"repository/branches/{segment(str(branch))}")).get("commit")).get("id")
        try:
            return owners_file.logins(self._text(path, str(commit)), self._text(owners_file.ALIASES_FILE, str(commit)))
        except ValueError as error:
            raise UsageError(f"{path} or {owners_file.ALIASES_FILE} on the target branch {error}") from None

    def _text(self, path: str, commit: str) -> str:
        """Return the text of a file; empty if there is no such file."""
        try:
            return self._api.text(f"repository/files/{segment(path)}/raw", ref=commit)
        except RefusedRequest as refusal:
            if refusal.status != HTTPStatus.NOT_FOUND:
                raise
            return ""

    def _address(self, number: int, note: Any) -> str:
        page = mapping(self._api.get(f"merge_requests/{number}")).get("web_url")
        return f"{page}#note_{mapping(note).get('id')}"


def _posted(note: Mapping[str, Any]) -> PostedComment:
    author = str(mapping(note.get("author")).get("username") or "")
    return PostedComment(int(note.get("id") or 0), author, str(note.get("body") or ""))


def _time(text: Any) -> dt.datetime | None:
    """Parse a time of GitLab, such as `2026-11-23T04:55:00.123Z`; None if it is not a time with a time zone."""
    try:
        time = dt.datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return None if time.tzinfo is None else time


def _whole_seconds(time: dt.datetime | None) -> dt.datetime | None:
    return None if time is None else time.replace(microsecond=0)
