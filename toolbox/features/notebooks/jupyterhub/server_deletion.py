"""Stops and deletes a named server, and confirms that it no longer exists.

A server is deleted only if it has the labels of its owner. A deletion can be repeated at any time, because a server
that does not exist counts as deleted. A server that is starting or stopping can be deleted, too.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from toolbox.features.notebooks.jupyterhub.hub_api import HubApi
from toolbox.features.notebooks.jupyterhub.hub_errors import HubError
from toolbox.features.notebooks.jupyterhub.hub_replies import NamedServer
from toolbox.ground.model import backoff
from toolbox.ground.model.errors import StepError
from toolbox.ground.model.resources import Owner
from toolbox.ground.model.text import duration
from toolbox.ground.model.verdicts import Cause

TIMEOUT: Final = 120.0
"""The default time limit of a deletion, in seconds."""
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
_STOPPING: Final = "stop"
_READS_ALL_SERVERS: Final = "read:servers"  # the scope without a filter such as `!user=ann`


class ForeignServer(StepError):
    """The server does not have the labels of the owner. Topgallant must neither use nor delete such a server."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the server {name} has labels of another owner, or no labels, so Topgallant neither uses nor deletes the "
            "server; if it is no longer needed, delete it on the page of the hub",
            cause=Cause.CONFIGURATION,
        )


def check_owner(server: NamedServer, owner: Owner) -> None:
    """Check that a server has the labels of an owner.

    Raises:
        ForeignServer: the server has other labels.
    """
    if not owner.owns(server.labels):
        raise ForeignServer(server.name)


async def delete(api: HubApi, user: str, name: str, owner: Owner, *, seconds: float = TIMEOUT) -> bool:
    """Delete a named server, and return when it no longer exists.

    Returns:
        Whether the server existed.

    Raises:
        ForeignServer: the server belongs to another owner.
        HubError: the server may still exist.
    """
    deadline, tries, reason = time.monotonic() + seconds, 0, ""
    while (server := await _find(api, user, name, deadline)) is not None:
        check_owner(server, owner)
        if time.monotonic() > deadline:
            raise HubError(f"the server {name} still exists after {duration(seconds, digits=0)}{reason}")
        if server.pending != _STOPPING:
            try:
                await api.delete_server(user, name, seconds=_left(deadline))
            except HubError as error:
                if not (error.is_absent or error.is_bad_request):
                    raise
                reason = f": {error}"
        await asyncio.sleep(min(_left(deadline), backoff.pause(tries, first=_FIRST_PAUSE, most=_LONGEST_PAUSE)))
        tries += 1
    return tries > 0


async def _find(api: HubApi, user: str, name: str, deadline: float) -> NamedServer | None:
    """Return a server; None if the server or its user does not exist.

    Raises:
        HubError: the hub does not answer, or refuses the request. If a token has no right to read a user, a hub answers
            that this user does not exist.
    """
    try:
        return (await api.servers(user, seconds=_left(deadline))).get(name)
    except HubError as error:
        if not error.is_absent:
            raise
        if _READS_ALL_SERVERS in (await api.token_owner(seconds=_left(deadline))).scopes:
            return None
        text = f"{error}\nthe token may belong to another user: use a token of {user}, or of an administrator"
        raise HubError(text, cause=Cause.CONFIGURATION) from None


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())
