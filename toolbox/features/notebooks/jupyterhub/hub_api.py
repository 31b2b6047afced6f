"""Sends requests to the REST API of a JupyterHub.

One event loop in a separate thread sends all requests of a connection. So a single thread follows the starts of all
servers. Each attempt of a request has a deadline. While the hub does not answer or is overloaded, the request is
repeated. This is safe, because the caller chooses the names of servers.

The token is sent to the host of the hub only, because redirects are not followed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from concurrent.futures import CancelledError as FutureCancelled
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from toolbox.features.notebooks.extra import EXTRA
from toolbox.features.notebooks.jupyterhub import hub_address, hub_errors, hub_replies
from toolbox.features.notebooks.jupyterhub.hub_errors import HubError
from toolbox.features.notebooks.jupyterhub.hub_replies import NamedServer, Progress, TokenOwner
from toolbox.ground.model import backoff
from toolbox.ground.model.errors import Cancelled, ConfigurationError
from toolbox.ground.model.secrets import MASK, Secret
from toolbox.ground.system import cancellation, extras

if TYPE_CHECKING:
    import httpx

log = logging.getLogger(__name__)

TIMEOUT: Final = 60.0
"""For how many seconds a request is repeated by default while the hub does not answer."""
_TRY_SECONDS: Final = 30.0  # a hub may take 10 s to answer the request for a start
_CONNECT_SECONDS: Final = 10.0
_SILENT_SECONDS: Final = 30.0  # while a server starts, a hub sends an empty line every 8 s
_FIRST_PAUSE: Final = 0.3
_LONGEST_PAUSE: Final = 5.0
_LARGEST_REPLY: Final = 16 << 20
_LONGEST_LINE: Final = 1 << 18

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class HubAccess:
    """How to reach a hub.

    Args:
        url: the address of the hub.
        token: a token of the REST API.
        ca_file: the certificates of the authorities to trust; None for the authorities of the system.
    """

    url: str
    token: Secret = field(repr=False)
    ca_file: Path | None = None


class HubApi:
    """A connection to a hub. Its coroutines run in the loop of the connection, and any thread may call `run`.

    Args:
        transport: the transport of httpx, for tests; None for the network.

    Raises:
        ConfigurationError: the library httpx is not installed, or the file of certificates cannot be read.
    """

    def __init__(self, access: HubAccess, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        extras.require(EXTRA, "JupyterHub")
        self.access = access
        self._client = _client(access, transport)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="jupyterhub", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, work: Coroutine[Any, Any, None]) -> Callable[[], object]:
        """Start a coroutine in the loop, and return a function that cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).cancel

    def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Run a coroutine in the loop, and return its result.

        Raises:
            Cancelled: the scope of this thread was cancelled.
        """
        is_done = threading.Event()
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        future.add_done_callback(lambda _: is_done.set())
        try:
            cancellation.current().wait(is_done, float("inf"))
            return future.result()
        except FutureCancelled:
            raise Cancelled("the connection to the hub is closed") from None
        finally:
            future.cancel()

    def close(self) -> None:
        """End all requests and coroutines, and close the connection."""
        if not self._thread.is_alive():
            return
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.aclose()

    # The requests

    async def token_owner(self, *, seconds: float = TIMEOUT) -> TokenOwner:
        """Return the owner and the scopes of the token."""
        document = await self._request("GET", "/hub/api/user", "the token cannot be checked", seconds)
        return hub_replies.token_owner(document)

    async def servers(self, user: str, *, seconds: float = TIMEOUT) -> dict[str, NamedServer]:
        """Return the named servers of a user, also stopped ones, by name.

        Raises:
            HubError: the request failed; `is_absent` if there is no such user.
        """
        path = f"{hub_address.user_path(user)}?include_stopped_servers"
        document = await self._request("GET", path, f"the servers of the user {user} cannot be listed", seconds)
        return hub_replies.named_servers(document)

    async def start_server(self, user: str, name: str, options: Mapping[str, Any], *, seconds: float = TIMEOUT) -> None:
        """Request a named server. The request returns when the server has begun to start.

        Raises:
            HubError: the request failed; `is_bad_request` if the server is running or stopping.
        """
        # A hub before version 6 reads the whole body as options. A later hub reads the options from `user_options`, if
        # it exists.
        path, action = hub_address.server_path(user, name), f"the server {name} cannot be started"
        await self._request("POST", path, action, seconds, dict(options))

    async def delete_server(self, user: str, name: str, *, seconds: float = TIMEOUT) -> None:
        """Request that the hub stops and removes a named server. The server may exist for some time after the request.

        Raises:
            HubError: the request failed; `is_absent` if there is no such server.
        """
        path, action = hub_address.server_path(user, name), f"the server {name} cannot be deleted"
        await self._request("DELETE", path, action, seconds, {"remove": True})

    async def progress(self, user: str, name: str) -> AsyncIterator[Progress]:
        """Yield the events of the start of a server until the stream ends. The stream may end before the server is
        ready.

        Raises:
            HubError: the hub refuses the request, or the connection breaks.
        """
        import httpx

        action = f"the start of the server {name} cannot be followed"
        path = f"{hub_address.server_path(user, name)}/progress"
        try:
            async with self._client.stream("GET", path, timeout=_timeout(_SILENT_SECONDS)) as reply:
                if not reply.is_success:
                    raise self._error(reply.status_code, await _body(reply), action)
                async for line in _lines(reply):
                    if (event := hub_replies.progress(line)) is not None:
                        yield event
        except (httpx.HTTPError, ValueError) as error:
            raise HubError(f"{action}: {self._described(error)}") from None

    async def _request(
        self, method: str, path: str, action: str, seconds: float, body: Mapping[str, Any] | None = None
    ) -> Any:
        """Return the JSON of a reply. Repeat the request while the hub is overloaded or does not answer."""
        deadline = time.monotonic() + seconds
        tries = 0
        while True:
            left = max(1.0, deadline - time.monotonic())
            error = await self._try(method, path, action, body, min(_TRY_SECONDS, left))
            if not isinstance(error, HubError):
                return error
            left = deadline - time.monotonic()
            is_temporary = error.status is None or hub_errors.is_temporary(error.status)
            if left <= 0 or not is_temporary:
                raise _after_tries(error, tries + 1, seconds) if is_temporary else error
            pause = min(left, backoff.pause(tries, first=_FIRST_PAUSE, most=_LONGEST_PAUSE))
            log.debug("%s: retrying in %.1f s", error, pause)
            await asyncio.sleep(pause)
            tries += 1

    async def _try(self, method: str, path: str, action: str, body: Mapping[str, Any] | None, seconds: float) -> Any:
        """Send a request once, and return the JSON of the reply or the error."""
        import httpx

        try:
            async with asyncio.timeout(seconds), self._client.stream(method, path, json=body) as reply:
                content = await _body(reply)
                if not reply.is_success:
                    return self._error(reply.status_code, content, action)
        except (httpx.HTTPError, TimeoutError) as error:
            return HubError(f"{action}: {self._described(error)}")
        except ValueError as error:
            raise HubError(f"{action}: {error}") from None
        return _json(content)

    def _error(self, status: int, content: bytes, action: str) -> HubError:
        message = hub_errors.message_in(_json(content)).replace(self.access.token.reveal(), MASK)
        return hub_errors.error_of(status, message, action)

    def _described(self, error: BaseException) -> str:
        """Return a description of a connection error. The texts of httpx contain no headers, so no token."""
        text = hub_errors.one_line(str(error)) or "the hub does not answer in time"
        return f"{self.access.url}: {text}".replace(self.access.token.reveal(), MASK)


def _after_tries(error: HubError, tries: int, timeout: float) -> HubError:
    text = f"{error} ({tries} tries in {timeout:.0f} s)"
    return HubError(text, status=error.status, cause=error.cause)


def _client(access: HubAccess, transport: httpx.AsyncBaseTransport | None) -> httpx.AsyncClient:
    import httpx

    # A connection to this machine must not use the proxy of the user.
    logging.getLogger("httpx").setLevel(logging.WARNING)  # httpx would log each request
    has_proxy = not hub_address.is_loopback(access.url)
    headers = {"Authorization": f"token {_token(access.token)}", "Accept": "application/json, text/event-stream"}
    try:
        verify = ssl.create_default_context(cafile=access.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"the `ca_file` {access.ca_file} cannot be read: {error}") from None
    return httpx.AsyncClient(
        base_url=access.url,
        headers=headers,
        timeout=_timeout(_TRY_SECONDS),
        verify=verify,
        transport=transport,
        trust_env=has_proxy,
        follow_redirects=False,
    )


def _token(secret: Secret) -> str:
    """Return the token if it is valid in a header.

    Raises:
        ConfigurationError: the token is empty, or contains other characters than tokens do.
    """
    token = secret.reveal().strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigurationError("the token of the hub is empty, or contains characters that no token has")
    return token


def _timeout(read: float) -> httpx.Timeout:
    import httpx

    return httpx.Timeout(read, connect=_CONNECT_SECONDS)


async def _body(reply: httpx.Response) -> bytes:
    """Return the body of a reply.

    Raises:
        ValueError: the body is too long.
    """
    content = bytearray()
    async for piece in reply.aiter_bytes():
        content += piece
        if len(content) > _LARGEST_REPLY:
            raise ValueError(f"the reply of the hub is longer than {_LARGEST_REPLY} bytes")
    return bytes(content)


async def _lines(reply: httpx.Response) -> AsyncIterator[str]:
    """Yield the lines of a reply as they arrive.

    Raises:
        ValueError: a line is too long.
    """
    rest = b""
    async for piece in reply.aiter_bytes():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace")
        if len(rest) > _LONGEST_LINE:
            raise ValueError(f"a progress event of the hub is longer than {_LONGEST_LINE} bytes")


def _json(content: bytes) -> Any:
    """Return the JSON of a reply; None if the reply is not JSON."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None
