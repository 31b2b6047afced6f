"""The event of a webhook of GitLab becomes the event of a comment."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolbox.features.ci.gitlab import note_payload
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.forge_data import CommentAction, CommentEvent

PAYLOAD: dict[str, Any] = {
    "object_kind": "note",
    "user": {"username": "alice"},
    "object_attributes": {
        "id": 5,
        "note": "/test small",
        "noteable_type": "MergeRequest",
        "created_at": "2026-11-23 05:00:00 UTC",
    },
    "merge_request": {"iid": 7},
}
Read = Callable[[dict[str, Any]], list[CommentEvent]]


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    """Return a function that reads a payload from a file."""
    monkeypatch.setenv("TRIGGER_PAYLOAD", str(tmp_path / "payload"))

    def read(payload: dict[str, Any]) -> list[CommentEvent]:
        (tmp_path / "payload").write_text(json.dumps(payload))
        return note_payload.read("TRIGGER_PAYLOAD")

    return read


def changed(**attributes: Any) -> dict[str, Any]:
    return {**PAYLOAD, "object_attributes": {**PAYLOAD["object_attributes"], **attributes}}


@pytest.mark.parametrize("time", ["2026-11-23 05:00:00 UTC", "2026-11-23T05:00:00Z", "2026-11-23T07:00:00+02:00"])
def test_a_note_on_a_merge_request_is_a_comment(read: Read, time: str) -> None:
    created = dt.datetime(2026, 11, 23, 5, tzinfo=dt.UTC)
    assert read(changed(created_at=time)) == [CommentEvent("/test small", "alice", 7, 5, created)]


def test_an_edited_note_is_told_from_a_new_one(read: Read) -> None:
    assert [event.action for event in read(changed(action="update"))] == [CommentAction.EDITED]
    assert [event.action for event in read(changed(action="create"))] == [CommentAction.CREATED]


@pytest.mark.parametrize(
    "payload",
    [{"object_kind": "push"}, changed(noteable_type="Issue"), changed(system=True), {**PAYLOAD, "merge_request": None}],
    ids=["push", "issue", "system note", "no merge request"],
)
def test_other_events_are_no_comments(read: Read, payload: dict[str, Any]) -> None:
    assert read(payload) == []


@pytest.mark.parametrize(
    ("attribute", "value"),
    [("id", "5"), ("id", 0), ("note", None), ("created_at", "yesterday"), ("created_at", "2026-11-23T05:00:00")],
)
def test_a_wrong_field_is_named(read: Read, attribute: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"object_attributes.{attribute}: "):
        read(changed(**{attribute: value}))
