"""Starts a named server, and follows its progress until the server is ready."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

from toolbox.features.notebooks.jupyterhub.hub_api import HubApi
from toolbox.features.notebooks.jupyterhub.hub_errors import HubError
from toolbox.features.notebooks.jupyterhub.hub_replies import NamedServer, Progress
from toolbox.ground.model import backoff
from toolbox.ground.model.text import duration
from toolbox.ground.model.verdicts import Cause

_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 5.0
_STOPPING: Final = "stop"


async def start(
    api: HubApi,
    user: str,
    name: str,
    options: Mapping[str, Any],
    *,
    seconds: float,
    report: Callable[[str], None] = lambda _: None,
) -> None:
    """Start a named server if it does not exist, and return when the server is ready.

    Args:
        options: the options for the spawner of the hub.
        report: called with each message of the hub.

    Raises:
        HubError: the server was not ready in time, or its start failed. The error contains the last message of the hub.
    """
    start_, deadline = _Start(api, user, name, report), time.monotonic() + seconds
    await start_.request(options, seconds)
    try:
        async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
            await start_.follow()
    except TimeoutError:
        cause = Cause.CAPACITY if start_.latest.lacks_room else Cause.INFRASTRUCTURE
        text = f"the server {name} is not ready after {duration(seconds, digits=0)}{start_.last_message()}"
        raise HubError(text, cause=cause) from None


class _Start:
    """The start of one server.

    Args:
        latest: the last event of the start.
        refusal: the error of the request for the start. A later event may explain it.
    """

    def __init__(self, api: HubApi, user: str, name: str, report: Callable[[str], None]) -> None:
        self._api = api
        self._user = user
        self._name = name
        self._report = report
        self.latest = Progress("")
        self.refusal: HubError | None = None

    def last_message(self) -> str:
        """Return the end of an error message: the last message of the hub."""
        return f": {self.latest.message}" if self.latest.message else ": the hub has sent no message"

    async def request(self, options: Mapping[str, Any], seconds: float) -> None:
        """Request the server, unless it is starting or running."""
        deadline, tries = time.monotonic() + seconds, 0
        while True:
            left = max(0.0, deadline - time.monotonic())
            try:
                await self._api.start_server(self._user, self._name, options, seconds=left)
            except HubError as error:
                if error.status == HTTPStatus.INTERNAL_SERVER_ERROR:
                    self.refusal = error  # the start failed at once; an event may explain why
                    return
                if not error.is_bad_request:
                    raise
                server = await self._server()
                if server is not None and (server.is_ready or server.pending not in ("", _STOPPING)):
                    return
                is_full = error.cause is Cause.CAPACITY  # until another server of the user is deleted
                if not (is_full or (server is not None and server.pending == _STOPPING)) or not left:
                    raise
                self._report(str(error))
            else:
                return
            await asyncio.sleep(backoff.pause(tries, first=_FIRST_PAUSE, most=_LONGEST_PAUSE))
            tries += 1

    async def follow(self) -> None:
        """Wait until the server is ready."""
        tries = 0
        while not await self._is_ready():
            await asyncio.sleep(backoff.pause(tries, first=_FIRST_PAUSE, most=_LONGEST_PAUSE))
            tries += 1

    async def _is_ready(self) -> bool:
        """Read one stream of events to its end. Return False if the server is still starting."""
        try:
            async for event in self._api.progress(self._user, self._name):
                self._take(event)
                if event.is_ready:
                    return True
                if event.has_failed:
                    raise self._failure()
        except HubError as error:
            if self.latest.has_failed or error.cause is Cause.CONFIGURATION:
                raise
        server = await self._server()  # the stream may have broken, or a proxy may delay the events
        if server is not None and server.pending:
            return False
        if server is None or not server.is_ready:
            raise self.refusal or self._failure()
        return True

    def _take(self, event: Progress) -> None:
        if event.message != self.latest.message and event.message:
            self._report(event.message)
        # The last event of a failed start rarely contains the reason, so the reason of an earlier event is kept.
        lacks_room = event.lacks_room or (event.has_failed and self.latest.lacks_room)
        message = event.message or self.latest.message
        self.latest = Progress(message, event.is_ready, event.has_failed, lacks_room)

    def _failure(self) -> HubError:
        cause = Cause.CAPACITY if self.latest.lacks_room else Cause.INFRASTRUCTURE
        return HubError(f"the server {self._name} did not start{self.last_message()}", cause=cause)

    async def _server(self) -> NamedServer | None:
        return (await self._api.servers(self._user)).get(self._name)
