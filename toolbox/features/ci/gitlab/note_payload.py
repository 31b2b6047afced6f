"""Reads the event of a note (a comment) that a webhook of GitLab sends.

https://docs.gitlab.com/user/project/integrations/webhook_events/#comment-events describes the payload.
"""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any, Final

from pydantic import AwareDatetime, BaseModel, BeforeValidator, Field

from toolbox.ground.model.forge_data import CommentAction, CommentEvent
from toolbox.ground.system import event_files

_NOTE: Final = "note"
_MERGE_REQUEST: Final = "MergeRequest"
_ACTIONS: Final = {"create": CommentAction.CREATED, "update": CommentAction.EDITED}


def _time(value: Any) -> Any:
    """Parse a time of a webhook: `2026-11-23 04:55:00 UTC` or `2026-11-23T04:55:00Z`."""
    return dt.datetime.fromisoformat(value.replace(" UTC", "Z")) if isinstance(value, str) else value


_Number = Annotated[int, Field(ge=1, le=2**63 - 1)]


class _Kind(BaseModel):
    object_kind: str


class _User(BaseModel):
    username: Annotated[str, Field(max_length=300)]


class _Note(BaseModel):
    id: _Number
    note: Annotated[str, Field(max_length=1 << 20)]
    noteable_type: str
    created_at: Annotated[AwareDatetime, BeforeValidator(_time)]
    action: str = "create"  # older servers send only events of new notes, and no action
    system: bool = False


class _MergeRequest(BaseModel):
    iid: _Number


class Payload(BaseModel):
    """The used fields of a comment event."""

    user: _User
    object_attributes: _Note
    merge_request: _MergeRequest | None = None


def read(variable: str) -> list[CommentEvent]:
    """Return the note in the file that an environment variable names; nothing if it is not on a merge request.

    Raises:
        UsageError: there is no such file, or it does not contain the event of a webhook.
    """
    event = event_files.read(variable)
    if event.parsed(_Kind).object_kind != _NOTE:
        return []
    payload = event.parsed(Payload)
    note = payload.object_attributes
    if payload.merge_request is None or note.noteable_type != _MERGE_REQUEST or note.system:
        return []
    comment = CommentEvent(
        text=note.note,
        author=payload.user.username,
        pull_request=payload.merge_request.iid,
        id=note.id,
        created=note.created_at,
        action=_ACTIONS.get(note.action, CommentAction.EDITED),
    )
    return [comment]
