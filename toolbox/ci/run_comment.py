"""Keeps one comment on a pull request for each run of a workflow: the plan, and later the verdict.

A comment is found by a marker in its first line and by its author, because people can write comments with any text. All
jobs of a workflow run, also jobs that are repeated, change the same comment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Final

from toolbox.ci.github_api import Api, Refusal, mapping
from toolbox.model.errors import InfrastructureError

LONGEST: Final = 1 << 16  # characters of a comment
_TRIES: Final = 3
_MOST_CANCELLED: Final = 20  # the newest runs
_MARKER = re.compile(r"<!-- topgallant-run: (?P<name>[\w./-]{1,200}) -->\r?(?:\n|$)")
_LONGEST_DESCRIPTION: Final = 140  # characters that GitHub shows of a commit status


class State(StrEnum):
    """The state of a commit status, in the words of GitHub."""

    PENDING = "pending"
    SUCCESS = "success"
    FAILURE = "failure"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class WorkflowPart:
    """A workflow of a project that tests a pull request.

    Args:
        workflow: the name of the workflow in the configuration.
        run: the number of the workflow run, which is the same in all its attempts.
        url: the page of the workflow run.
    """

    project: str
    workflow: str
    run: str
    url: str

    @property
    def marker(self) -> str:
        """The name that the first line of the comment contains."""
        return f"{self.project}/{self.workflow}/{self.run}"


def publish(api: Api, pull_request: int, part: WorkflowPart, text: str) -> str:
    """Create the comment of a workflow run, or replace its text. Return the address of the comment.

    If GitHub does not answer a request that creates the comment, the comment may exist. So the next try looks for it.

    Args:
        text: Markdown, with at most `LONGEST - 1000` characters.

    Raises:
        InfrastructureError: GitHub refused a request, or did not answer several requests.
    """
    body = f"<!-- topgallant-run: {part.marker} -->\n{text}"
    author = api.login()
    for attempt in range(1, _TRIES + 1):
        try:
            return _write(api, pull_request, part, author, body)
        except InfrastructureError as error:
            is_final = isinstance(error, Refusal) and error.status < HTTPStatus.INTERNAL_SERVER_ERROR
            if is_final or attempt == _TRIES:
                raise
    raise AssertionError("each try returns or raises")


def cancel(api: Api, pull_request: int, part: WorkflowPart) -> list[str]:
    """Cancel the other runs of a workflow that have comments on a pull request, and return their numbers.

    A cancelled run ends as after Ctrl-C: it cleans up, and changes its comment.

    Raises:
        InfrastructureError: GitHub refused a request.
    """
    author = api.login()
    comments = api.items(f"issues/{pull_request}/comments")
    markers = [_marker(comment) for comment in comments if _author(comment) == author]
    prefix = f"{part.project}/{part.workflow}/"
    numbers = [marker.removeprefix(prefix) for marker in markers if marker.startswith(prefix) and marker != part.marker]
    return [number for number in numbers[-_MOST_CANCELLED:] if number.isdecimal() and _is_cancelled(api, number)]


def _is_cancelled(api: Api, number: str) -> bool:
    """Cancel a workflow run. Return whether it was running."""
    try:
        api.send("POST", f"actions/runs/{number}/cancel", {})
    except Refusal as refusal:
        if refusal.status not in {HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND}:  # it has ended, or was deleted
            raise
        return False
    return True


def set_status(api: Api, revision: str, part: WorkflowPart, state: State, description: str) -> None:
    """Show the state of a workflow on a commit.

    Raises:
        InfrastructureError: GitHub refused the request.
    """
    content = {
        "state": state,
        "context": f"{part.project} {part.workflow}",
        "description": description[:_LONGEST_DESCRIPTION],
        "target_url": part.url,
    }
    api.send("POST", f"statuses/{revision}", content)


def _write(api: Api, pull_request: int, part: WorkflowPart, author: str, body: str) -> str:
    comments = api.items(f"issues/{pull_request}/comments")
    own = next((comment for comment in comments if _is_own(comment, part, author)), None)
    if own is None:
        written = api.send("POST", f"issues/{pull_request}/comments", {"body": body})
    else:
        written = api.send("PATCH", f"issues/comments/{int(own['id'])}", {"body": body})
    return str(mapping(written).get("html_url") or "")


def _is_own(comment: Mapping[str, Any], part: WorkflowPart, author: str) -> bool:
    return _marker(comment) == part.marker and _author(comment) == author


def _marker(comment: Mapping[str, Any]) -> str:
    match = _MARKER.match(comment.get("body") or "")
    return match["name"] if match else ""


def _author(comment: Mapping[str, Any]) -> str:
    return str(mapping(comment.get("user")).get("login") or "")
