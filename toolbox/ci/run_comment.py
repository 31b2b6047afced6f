"""Keeps one comment on a pull request for each run of a workflow: the plan, and later the verdict.

A comment is found by a marker in its first line and by its author, because people can write comments with any text. All
jobs of a workflow run, also jobs that are repeated, change the same comment.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Final, TypeVar

from toolbox.ci.github_api import Api, Refusal, mapping
from toolbox.model import backoff
from toolbox.model.errors import InfrastructureError, describe
from toolbox.system import cancellation

log = logging.getLogger(__name__)

LONGEST: Final = 1 << 16  # characters of a comment
_TRIES: Final = 3
_FIRST_PAUSE: Final = 5.0  # seconds, in which the effect of a request without an answer becomes visible
_LONGEST_PAUSE: Final = 30.0  # seconds
_MOST_CANCELLED: Final = 20  # the newest runs
_MARKER = re.compile(r"<!-- topgallant-run: (?P<name>[\w./-]{1,200}) -->\r?(?:\n|$)")
_LONGEST_DESCRIPTION: Final = 140  # characters that GitHub shows of a commit status

T = TypeVar("T")


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

    If GitHub does not answer a request that creates the comment, the comment may exist. So the next try looks for it
    after a pause. GitHub may also carry out such a request later. Then there are several comments, and the next update
    keeps only the oldest.

    Args:
        text: Markdown, with at most `LONGEST - 1000` characters.

    Raises:
        InfrastructureError: GitHub refused a request, or did not answer several requests.
    """
    author, tries = api.login(), 0

    def write() -> str:
        nonlocal tries
        tries += 1
        return _write(api, pull_request, part, author, body_of(part, text))

    address = repeated(write)
    if tries > 1:  # GitHub may have carried out an earlier request since the last look
        with contextlib.suppress(InfrastructureError):
            address = write()
    return address


def body_of(part: WorkflowPart, text: str) -> str:
    """Return the body of the comment: the marker, by which the comment is found, and the text."""
    return f"<!-- topgallant-run: {part.marker} -->\n{text}"


def cancel(api: Api, pull_request: int, part: WorkflowPart) -> list[str]:
    """Cancel the other runs of a workflow that have comments on a pull request, and return their numbers.

    GitHub interrupts a cancelled run, and kills it after ten seconds. Then it executes the steps that clean up.

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
    content = status_content(part, state, description)
    repeated(lambda: api.send("POST", f"statuses/{revision}", content))  # the newest status counts


def status_content(part: WorkflowPart, state: State, description: str) -> dict[str, object]:
    """Return the body of the request that sets a commit status."""
    return {
        "state": state,
        "context": f"{part.project} {part.workflow}",
        "description": description[:_LONGEST_DESCRIPTION],
        "target_url": part.url,
    }


def repeated(request: Callable[[], T]) -> T:
    """Return the result of a request. Repeat the request if GitHub does not answer."""
    for tries in range(_TRIES - 1):
        try:
            return request()
        except InfrastructureError as error:
            if isinstance(error, Refusal) and error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                raise
        cancellation.current().sleep(backoff.pause(tries, first=_FIRST_PAUSE, most=_LONGEST_PAUSE))
    return request()


def _write(api: Api, pull_request: int, part: WorkflowPart, author: str, body: str) -> str:
    comments = api.items(f"issues/{pull_request}/comments")
    own = sorted(int(comment["id"]) for comment in comments if _is_own(comment, part, author))
    if not own:
        written = api.send("POST", f"issues/{pull_request}/comments", {"body": body})
    else:
        written = api.send("PATCH", f"issues/comments/{own[0]}", {"body": body})
        _delete(api, own[1:])
    return str(mapping(written).get("html_url") or "")


def _delete(api: Api, comments: Iterable[int]) -> None:
    """Delete copies of the comment. If this fails, the next update tries again."""
    for comment in comments:
        try:
            api.send("DELETE", f"issues/comments/{comment}", {})
        except InfrastructureError as error:
            log.warning("a second comment on the pull request could not be deleted: %s", describe(error))


def _is_own(comment: Mapping[str, Any], part: WorkflowPart, author: str) -> bool:
    return _marker(comment) == part.marker and _author(comment) == author


def _marker(comment: Mapping[str, Any]) -> str:
    match = _MARKER.match(comment.get("body") or "")
    return match["name"] if match else ""


def _author(comment: Mapping[str, Any]) -> str:
    return str(mapping(comment.get("user")).get("login") or "")
