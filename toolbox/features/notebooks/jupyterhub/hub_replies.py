"""Converts the replies of a JupyterHub to dataclasses. The replies are untrusted. Unknown fields are ignored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from toolbox.features.notebooks.jupyterhub.hub_errors import HubError, one_line

LABELS: Final = "topgallant_labels"
"""The name of the spawner option that contains the labels of the owner."""
_MAX_LABELS: Final = 20
_NO_ROOM: Final = "FailedScheduling"  # the reason of a Kubernetes event that KubeSpawner forwards


@dataclass(frozen=True, slots=True)
class TokenOwner:
    """The owner of a token.

    Args:
        name: the name of the user; empty if the token belongs to a service.
        scopes: the expanded scopes of the token.
    """

    name: str
    scopes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class NamedServer:
    """A named server of a user.

    Args:
        is_ready: whether the server answers.
        pending: `spawn`, `stop`, or another change that is going on; empty if there is none.
        labels: the labels of its owner; empty if Topgallant did not start the server.
        started: when the server was started; None if it is stopped.
    """

    name: str
    is_ready: bool = False
    pending: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    started: datetime | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """An event of the start of a server.

    Args:
        message: the message for people.
        is_ready: whether the server is ready, so that this is the last event.
        has_failed: whether the start has failed, so that this is the last event.
        lacks_room: whether the server waits because the cluster has no room for it.
    """

    message: str
    is_ready: bool = False
    has_failed: bool = False
    lacks_room: bool = False


def token_owner(document: Any) -> TokenOwner:
    """Return the owner of a token from the reply of `/user`.

    Raises:
        HubError: the reply is malformed.
    """
    _require(isinstance(document, dict) and isinstance(document.get("name"), str), "/user")
    scopes = document.get("scopes")
    known = frozenset(filter(_is_text, scopes)) if isinstance(scopes, list) else frozenset()
    return TokenOwner(document["name"] if document.get("kind", "user") == "user" else "", known)


def named_servers(document: Any) -> dict[str, NamedServer]:
    """Return the named servers in the model of a user, by name.

    Raises:
        HubError: the reply is malformed, or does not contain servers, because the token may not read them.
    """
    _require(isinstance(document, dict), "a user")
    servers = document.get("servers")
    _require(isinstance(servers, dict), "the servers of a user")
    models = {name: model for name, model in servers.items() if name and isinstance(model, dict)}
    return {name: _server(name, model) for name, model in models.items()}


def progress(line: str) -> Progress | None:
    """Return the event in a line of a stream of server-sent events; None if the line contains no event."""
    field_name, _, data = line.partition(":")
    if field_name != "data":
        return None
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    event = document.get("raw_event")
    reason = event.get("reason") if isinstance(event, dict) else None
    is_ready, has_failed = document.get("ready") is True, document.get("failed") is True
    return Progress(one_line(document.get("message")), is_ready, has_failed, reason == _NO_ROOM)


def _server(name: str, model: Mapping[str, Any]) -> NamedServer:
    options = model.get("user_options")
    labels = options.get(LABELS) if isinstance(options, dict) else None
    texts = {key: value for key, value in labels.items() if _is_text(value)} if isinstance(labels, dict) else {}
    pending = model.get("pending")
    return NamedServer(
        name,
        model.get("ready") is True,
        pending if isinstance(pending, str) else "",
        texts if len(texts) <= _MAX_LABELS else {},
        _time(model.get("started")),
    )


def _time(value: object) -> datetime | None:
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return time.replace(tzinfo=UTC) if time is not None and time.tzinfo is None else time


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise HubError(f"the hub's reply about {what} is malformed: check that `url` is the address of a JupyterHub")
