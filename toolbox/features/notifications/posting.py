"""Posts a message to a webhook, with a time limit and few tries.

The URL of a webhook is a secret, because it is enough to post. So no error and no log contains the URL, and redirects
are not followed. A proxy or a server may repeat parts of the URL in its answer, so these parts are masked too.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from toolbox.features.notifications.extra import EXTRA
from toolbox.ground.model import backoff
from toolbox.ground.model.errors import ConfigurationError, InfrastructureError
from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.secrets import MASK, Secret
from toolbox.ground.model.text import duration, truncate
from toolbox.ground.system import extras

if TYPE_CHECKING:
    import httpx

TIMEOUT: Final = 25.0
"""The time limit in seconds for all tries together."""
_TRY_SECONDS: Final = 10.0
_MAX_TRIES: Final = 3
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 5.0
_LARGEST_EXCERPT: Final = 1 << 12  # bytes of an answer that are read; the rest is not received
_LONGEST_FAULT: Final = 300
_MAX_DIGITS: Final = 9  # of a number of seconds
_SHORTEST_SECRET: Final = 6  # a shorter part of a URL, such as `hooks`, is not a secret
_SCHEMES: Final = ("https", "http")
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class WebhookError(InfrastructureError):
    """A webhook does not accept a message."""


@dataclass(frozen=True, slots=True)
class _Fault:
    """Why a try failed.

    Args:
        is_temporary: whether another try may succeed.
        pause: how many seconds the server asks to wait; None if it does not say.
    """

    message: str
    is_temporary: bool = True
    pause: float | None = None


def verify(url: Secret, feature: str) -> None:
    """Check that the library is installed and that the secret is a URL, before a run begins.

    Args:
        feature: what needs the webhook, for the messages.

    Raises:
        ConfigurationError: the library is missing, or the secret is not a URL. The message does not contain the secret.
    """
    extras.require(EXTRA, feature)
    _parsed(url, feature)


def post(url: Secret, body: bytes, headers: Mapping[str, str], *, timeout: float = TIMEOUT) -> None:
    """Post JSON to a webhook. Call this in a thread without an event loop.

    Args:
        timeout: the time limit in seconds for all tries together.

    Raises:
        WebhookError: the webhook did not accept the message in time.
        ConfigurationError: the secret is not a URL.
    """
    address = _parsed(url, "the webhook")
    fault = asyncio.run(_post(address, body, {"Content-Type": "application/json", **headers}, timeout))
    if fault is not None:
        raise WebhookError(truncate(_masked(fault.message, url.reveal().strip(), address), _LONGEST_FAULT))


async def _post(address: httpx.URL, body: bytes, headers: Mapping[str, str], seconds: float) -> _Fault | None:
    deadline, tries = time.monotonic() + seconds, 0
    async with _client(address) as client:
        while True:
            left = deadline - time.monotonic()
            fault = await _try(client, address, body, headers, min(_TRY_SECONDS, left))
            tries += 1
            if fault is None or not fault.is_temporary or tries == _MAX_TRIES:
                return fault
            pause = backoff.pause(tries - 1, first=_FIRST_PAUSE, most=_LONGEST_PAUSE)
            pause = pause if fault.pause is None else max(pause, fault.pause)
            if pause >= deadline - time.monotonic():
                asked = f"; it asks to wait {duration(fault.pause, digits=0)}" if fault.pause is not None else ""
                return _Fault(f"{fault.message}{asked}")
            await asyncio.sleep(pause)


async def _try(
    client: httpx.AsyncClient, address: httpx.URL, body: bytes, headers: Mapping[str, str], seconds: float
) -> _Fault | None:
    """Send a request once, and return why it failed; None if the webhook accepted the message."""
    import httpx

    try:
        async with (
            asyncio.timeout(seconds),
            client.stream("POST", address, content=body, headers=dict(headers)) as reply,
        ):
            return None if reply.is_success else _refusal(reply, await _excerpt(reply))
    except TimeoutError:
        return _Fault(f"no answer within {duration(seconds, digits=0)}")
    except (httpx.HTTPError, OSError) as error:
        return _Fault(f"{type(error).__name__}: {error}")


def _refusal(reply: httpx.Response, excerpt: str) -> _Fault:
    status = reply.status_code
    message = f"HTTP status {status}" + (f": {excerpt}" if excerpt else "")
    if reply.is_redirect:
        return _Fault(f"{message} (a redirect, which is not followed)", is_temporary=False)
    is_busy = status == HTTPStatus.TOO_MANY_REQUESTS
    is_temporary = is_busy or status == HTTPStatus.REQUEST_TIMEOUT or reply.is_server_error
    return _Fault(message, is_temporary, _retry_after(reply.headers.get("Retry-After")) if is_temporary else None)


def _retry_after(text: str | None) -> float | None:
    """Return the seconds of a header `Retry-After`, which contains seconds or a date (RFC 9110, 10.2.3)."""
    if text is None:
        return None
    if text.isascii() and text.isdigit():
        return float(text[:_MAX_DIGITS])
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


async def _excerpt(reply: httpx.Response) -> str:
    """Return the beginning of an answer as one line. The caller masks the URL before it truncates the text."""
    content = b""
    async for piece in reply.aiter_raw():
        content += piece
        if len(content) > _LARGEST_EXCERPT:
            break
    if len(content) > _LARGEST_EXCERPT:  # a part of the URL at the end of the excerpt would not be masked
        content = content[: _LARGEST_EXCERPT - len(str(reply.url))]
    return " ".join(clean(content.decode("utf-8", "replace")).split())


def _client(address: httpx.URL) -> httpx.AsyncClient:
    import httpx

    logging.getLogger("httpx").setLevel(logging.WARNING)  # httpx would log the URL of each request
    return httpx.AsyncClient(
        timeout=_TRY_SECONDS,
        verify=ssl.create_default_context(),  # the authorities of the system, or those of $SSL_CERT_FILE
        trust_env=address.host not in _LOOPBACK,  # a connection to this machine must not use the proxy of the user
        follow_redirects=False,
    )


def _parsed(url: Secret, feature: str) -> httpx.URL:
    import httpx

    try:
        text = url.reveal().strip()
        address = httpx.URL(text)
        _ = address.port, address.raw_path
    except (httpx.InvalidURL, ValueError):
        raise _no_url(url, feature) from None
    if address.scheme not in _SCHEMES or not address.host or not text.isprintable() or " " in text:
        raise _no_url(url, feature)
    return address


def _no_url(url: Secret, feature: str) -> ConfigurationError:
    where = f" {url.reference}" if url.reference else ""
    return ConfigurationError(f"{feature}: the secret{where} is not a URL that begins with https:// or http://")


def _masked(text: str, url: str, address: httpx.URL) -> str:
    """Return a text with the URL, and the parts of the URL that may be secret, masked."""
    for part in sorted({url, str(address), *_secret_parts(address)}, key=len, reverse=True):
        text = text.replace(part, MASK)
    return text


def _secret_parts(address: httpx.URL) -> Iterator[str]:
    path = address.raw_path.decode("ascii", "replace")
    parts = [path, address.path, address.query.decode("ascii", "replace"), address.userinfo.decode("ascii", "replace")]
    parts += [*address.path.split("/"), *(value for _, value in address.params.multi_items()), address.password]
    yield from (part for part in parts if len(part) >= _SHORTEST_SECRET)
