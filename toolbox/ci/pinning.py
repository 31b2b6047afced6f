"""Decides whether a comment on a pull request may start a run, and pins the revision to test.

The event of a comment does not contain a revision. The head of the pull request may have changed since the comment was
written: a run of the current head would test, with credentials, code that the author of the comment has not seen. So
the latest push to the branch must be older than the comment. GitHub records the times of pushes; the dates in commits
can be forged.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import Final

from toolbox.ci import github_api
from toolbox.ci.github_api import Api, mapping
from toolbox.model.errors import UsageError
from toolbox.model.foreign_text import clean
from toolbox.model.text import abbreviated

_MAY_START: Final = frozenset({"admin", "maintain", "write"})
_LOGIN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,99})")
_REVISION = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment on a pull request.

    Args:
        pull_request: the number of the pull request.
        author: the login of the author.
        time: when the comment was created.
    """

    pull_request: int
    author: str
    time: dt.datetime


def revision(api: Api, comment: Comment) -> str:
    """Return the head of the pull request at the time of the comment, whose author may start runs.

    Raises:
        UsageError: the pull request may not be tested, or its branch has changed since the comment.
        InfrastructureError: GitHub refused a request.
    """
    pull_request = mapping(api.get(f"pulls/{comment.pull_request}"))
    head = mapping(pull_request.get("head"))
    if pull_request.get("state") != "open":
        raise UsageError(f"the pull request {comment.pull_request} is not open: open it, and comment again")
    if mapping(head.get("repo")).get("full_name") != api.repository:
        raise UsageError(
            f"the pull request {comment.pull_request} comes from a fork, whose code does not run with credentials:\n"
            "  review the code, push the branch to this repository, and comment on a pull request of that branch"
        )
    branch, head_revision = str(head.get("ref")), str(head.get("sha"))
    if not _REVISION.fullmatch(head_revision):
        raise UsageError(f"the pull request {comment.pull_request} has no head commit")
    if not _is_older(api, branch, head_revision, comment.time):
        raise UsageError(
            f"the branch {abbreviated(clean(branch))} may have changed since the comment:\n"
            "  look at its latest commits, and comment again"
        )
    return head_revision


def may_start(api: Api, author: str) -> bool:
    """Return whether an account may start and cancel runs, because it has write access.

    Raises:
        InfrastructureError: GitHub refused a request.
    """
    if not _LOGIN.fullmatch(author):  # for example, the name of a bot
        return False
    answer = mapping(api.get(f"collaborators/{github_api.segment(author)}/permission"))
    return answer.get("permission") in _MAY_START


def _is_older(api: Api, branch: str, head: str, time: dt.datetime) -> bool:
    """Return whether the latest change of a branch made its present head, and is older than a time."""
    activities = api.get("activity", ref=f"refs/heads/{branch}", per_page=1)
    latest = mapping(activities[0]) if isinstance(activities, list) and activities else {}
    try:
        changed = parse_time(str(latest.get("timestamp")))
    except UsageError:
        return False
    return latest.get("after") == head and changed < time


def parse_time(text: str) -> dt.datetime:
    """Parse a time of GitHub, such as `2026-11-23T04:55:00Z`.

    Raises:
        UsageError: the text is not a time, or has no time zone.
    """
    try:
        time = dt.datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise UsageError(f"{abbreviated(text)} is not a time such as 2026-11-23T04:55:00Z")
    return time
