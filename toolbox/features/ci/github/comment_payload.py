"""Reads the event `issue_comment` of GitHub: a webhook sends it, and GitHub Actions writes it into a file.

https://docs.github.com/webhooks/webhook-events-and-payloads#issue_comment describes the payload.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AwareDatetime, BaseModel, Field

from toolbox.ground.model.forge_data import CommentAction, CommentEvent
from toolbox.ground.system import event_files

_Number = Annotated[int, Field(ge=1, le=2**63 - 1)]


class _User(BaseModel):
    login: Annotated[str, Field(max_length=100)]


class _Comment(BaseModel):
    id: _Number
    body: Annotated[str, Field(max_length=1 << 20)]
    user: _User | None
    created_at: AwareDatetime


class _Issue(BaseModel):
    number: _Number
    pull_request: dict[str, object] | None = None
    body: Annotated[str, Field(max_length=1 << 20)] | None = None


class Payload(BaseModel):
    """The used fields of an event `issue_comment`."""

    action: CommentAction
    comment: _Comment
    issue: _Issue


def read(variable: str) -> list[CommentEvent]:
    """Return the comment in the file that an environment variable names; nothing if it is not on a pull request.

    Raises:
        UsageError: there is no such file, or it does not contain the event of a comment.
    """
    payload = event_files.read(variable).parsed(Payload)
    if payload.issue.pull_request is None:
        return []
    comment = payload.comment
    event = CommentEvent(
        text=comment.body,
        author=comment.user.login if comment.user else "",
        pull_request=payload.issue.number,
        id=comment.id,
        created=comment.created_at,
        action=payload.action,
        description=payload.issue.body or "",
    )
    return [event]
