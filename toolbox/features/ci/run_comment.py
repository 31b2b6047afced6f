"""Keeps one comment on a pull request for each run of a workflow: the plan, and later the verdict.

A comment is found by a marker in its first line and by its author, because people can write comments with any text. All
jobs of a workflow run, also jobs that are repeated, change the same comment.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, TypeVar

from toolbox.ground.extensions.protocols import Forge, PullRequests
from toolbox.ground.model import backoff
from toolbox.ground.model.errors import InfrastructureError, RefusedRequest, describe
from toolbox.ground.model.forge_data import CommitState, CommitStatus, PostedComment
from toolbox.ground.system import cancellation

log = logging.getLogger(__name__)

LONGEST: Final = 1 << 16  # characters of a comment
_TRIES: Final = 3
_FIRST_PAUSE: Final = 5.0  # seconds, in which the effect of a request without an answer becomes visible
_LONGEST_PAUSE: Final = 30.0  # seconds
_MAX_CANCELLED: Final = 20  # the newest runs
_MARKER = re.compile(r"<!-- topgallant-run: (?P<name>[\w./-]{1,500}) -->\r?(?:\n|$)")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WorkflowRun:
    """A workflow of a project that tests a pull request.

    Args:
        workflow: the name of the workflow in the configuration.
        run: the id of the run of the CI system, which is the same in all its attempts.
        url: the page of the run; empty if there is none.
        differences: what the runs leave out or change, compared with the full run of the workflow. With differences,
            the commit status has another name, so that a partial run never fulfils a required check.
    """

    project: str
    workflow: str
    run: str
    url: str
    differences: tuple[str, ...] = ()

    @property
    def is_partial(self) -> bool:
        """Whether a run leaves out or changes something."""
        return bool(self.differences)

    @property
    def status_name(self) -> str:
        """The name of the commit status."""
        return f"{self.project} {self.workflow}{' (partial)' if self.is_partial else ''}"

    @property
    def marker(self) -> str:
        """The name that the first line of the comment contains."""
        return f"{self.project}/{self.workflow}/{self.run}"


def publish(pull_requests: PullRequests, number: int, part: WorkflowRun, text: str) -> str:
    """Create the comment of a workflow run, or replace its text. Return the address of the comment.

    If the forge does not answer the request that creates the comment, the comment may exist. So the next try looks for
    it after a pause. The forge may also carry out such a request later. Then there are several comments, and the next
    update keeps only the oldest.

    Args:
        number: the number of the pull request.
        text: Markdown, with at most `LONGEST - 1000` characters.

    Raises:
        InfrastructureError: the forge refused a request, or did not answer several requests.
    """
    author, tries = pull_requests.account(), 0

    def write() -> str:
        nonlocal tries
        tries += 1
        return _write(pull_requests, number, part, author, body_of(part, text))

    address = repeated(write)
    if tries > 1:  # the forge may have carried out an earlier request since the last look
        with contextlib.suppress(InfrastructureError):
            address = write()
    return address


def body_of(part: WorkflowRun, text: str) -> str:
    """Return the body of the comment: the marker, by which the comment is found, and the text."""
    return f"<!-- topgallant-run: {part.marker} -->\n{text}"


def cancel(forge: Forge, pull_requests: PullRequests, number: int, part: WorkflowRun) -> list[str]:
    """Cancel the other runs of a workflow that have comments on a pull request, and return their ids.

    Raises:
        UsageError: runs of this CI system cannot be cancelled.
        InfrastructureError: the forge refused a request.
    """
    ids = [run for run, _ in earlier(pull_requests, number, part)]
    return [run for run in ids[-_MAX_CANCELLED:] if forge.cancel(run)]


def earlier(pull_requests: PullRequests, number: int, part: WorkflowRun) -> list[tuple[str, str]]:
    """Return the ids of the other runs of a workflow with comments on a pull request, and the texts of the comments.

    Raises:
        InfrastructureError: the forge refused a request.
    """
    author = pull_requests.account()
    own = {marker_of(each): each.text for each in pull_requests.comments(number) if each.author == author}
    prefix = f"{part.project}/{part.workflow}/"
    others = {marker: text for marker, text in own.items() if marker.startswith(prefix) and marker != part.marker}
    return [(marker.removeprefix(prefix), text) for marker, text in others.items()]


def set_status(
    pull_requests: PullRequests, revision: str, part: WorkflowRun, state: CommitState, description: str
) -> None:
    """Show the state of a workflow on a commit.

    Raises:
        InfrastructureError: the forge refused the request.
    """
    status = status_of(part, state, description)
    repeated(lambda: pull_requests.set_status(revision, status))  # the newest status counts


def status_of(part: WorkflowRun, state: CommitState, description: str) -> CommitStatus:
    """Return the commit status of a workflow."""
    return CommitStatus(state, part.status_name, description, part.url)


def marker_of(comment: PostedComment) -> str:
    """Return the marker of the run to which a comment belongs; empty if it belongs to no run."""
    match = _MARKER.match(comment.text)
    return match["name"] if match else ""


def repeated(request: Callable[[], T]) -> T:
    """Return the result of a request. Repeat the request if the forge does not answer."""
    for tries in range(_TRIES - 1):
        try:
            return request()
        except InfrastructureError as error:
            if isinstance(error, RefusedRequest) and error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                raise
        cancellation.current().sleep(backoff.pause(tries, first=_FIRST_PAUSE, most=_LONGEST_PAUSE))
    return request()


def _write(pull_requests: PullRequests, number: int, part: WorkflowRun, author: str, body: str) -> str:
    comments = pull_requests.comments(number)
    own = [each for each in comments if each.author == author and marker_of(each) == part.marker]
    if not own:
        return pull_requests.create_comment(number, body)
    address = pull_requests.replace_comment(number, own[0], body)
    _delete(pull_requests, number, own[1:])
    return address


def _delete(pull_requests: PullRequests, number: int, comments: Iterable[PostedComment]) -> None:
    """Delete copies of the comment. If this fails, the next update tries again."""
    for comment in comments:
        try:
            pull_requests.delete_comment(number, comment)
        except InfrastructureError as error:
            log.warning("a second comment on the pull request could not be deleted: %s", describe(error))
