"""The client of OpenAI's HTTP protocol. Only this module and `http_transport` import httpx."""

from __future__ import annotations

import json
import os
import re
import ssl
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import Any, Final

import httpx

from . import event_stream, openai_bodies
from .answer_format import Answer, Case, FaultError, InvalidRequestError, Limits, SettingsError, merged
from .event_stream import Event, EventStreamError, EventStreamParser
from .http_transport import IS_RESENT, LoadTransport
from .json_values import decoded, excerpt, mapping, sequence, text
from .server_addresses import tls_context

_PATHS: Final = {"models": "/v1/models", "completions": "/v1/completions", "chat": "/v1/chat/completions"}
_END_OF_STREAM: Final = "[DONE]"
_REFUSALS: Final = (httpx.codes.TOO_MANY_REQUESTS, httpx.codes.SERVICE_UNAVAILABLE)
_SECONDS: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_IDLE_SECONDS: Final = 1.0  # shorter than the limits of servers: uvicorn has 5 s, gunicorn 2 s


class OpenAiClient:
    """Sends requests to a server, each over a connection of its own.

    Args:
        url: address of the server, with or without `/v1` at its end.
        key: the API key.
        model: the name for requests without `model`. By default, it is the first model that the server lists.
        ca_file: the certificates of the authorities (PEM) that are trusted with https; None for those of the system.
        keeps_connections: use a connection for several requests. A connection that was idle for a second is not used
            again, because the server might close it at the moment of the next request, which would then have a fault.
    """

    def __init__(
        self,
        url: str,
        limits: Limits,
        *,
        key: str | None = None,
        model: str | None = None,
        ca_file: str | None = None,
        keeps_connections: bool = False,
    ) -> None:
        self._limits = limits
        self._model = model
        try:
            address = httpx.URL(url.rstrip("/").removesuffix("/v1"))
        except httpx.InvalidURL as error:
            raise SettingsError(f"server.url is not a URL: {error}") from error
        if address.scheme not in ("http", "https") or not address.host or address.userinfo or address.query:
            raise SettingsError("server.url must be http://HOST:PORT or https://HOST:PORT, without user, key or query")
        headers = {"Accept-Encoding": "identity", "User-Agent": "topgallant"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        tls = tls_context(ca_file) if address.scheme == "https" else None  # HTTP needs no certificates
        self._http = httpx.AsyncClient(
            base_url=address,
            headers=headers,
            verify=tls or False,
            transport=LoadTransport(tls, idle_seconds=_IDLE_SECONDS) if keeps_connections else None,
            trust_env=False,  # no proxies, and no passwords from .netrc
            timeout=None,  # noqa: S113  # the caller limits the time of the whole request
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def check_ready(self, path: str | None) -> None:
        """Request a path, by default the list of models. Raise FaultError unless the status is 200."""
        async with self._response("GET", path or _PATHS["models"]) as response:
            if response.status_code != httpx.codes.OK:
                raise FaultError(f"HTTP status {response.status_code}")
            await self._content(response)

    async def send(self, case: Case, answer: Answer) -> None:
        """Send a case, and fill the answer. Raise FaultError, or InvalidRequestError before anything is sent."""
        if case.protocol == "models":
            async with self._response("GET", _PATHS["models"]) as response:
                await self._take_whole(response, case, answer)
            return
        content = await self._request_content(case, answer)
        async with self._response("POST", _PATHS[case.protocol], content) as response:
            answer.is_resent = IS_RESENT in response.extensions
            if answer.stream and response.status_code < httpx.codes.BAD_REQUEST:
                await self._take_stream(response, case, answer)
            else:
                await self._take_whole(response, case, answer)

    async def _request_content(self, case: Case, answer: Answer) -> bytes:
        request = dict(case.request)
        if request.get("model") is None:
            request["model"] = await self.choose_model()
        if answer.stream:
            request["stream"] = True
            request.setdefault("stream_options", {"include_usage": True})
        try:
            return json.dumps(request, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidRequestError(str(error)) from error

    async def choose_model(self) -> str:
        """Return the name for requests without `model`. Raise FaultError if the server does not list one."""
        if self._model is None:
            async with self._response("GET", _PATHS["models"]) as response:
                body = mapping(decoded(await self._content(response)), "the list of models")
            models = sequence(body.get("data"), "data")
            if not models:
                raise FaultError("the server lists no model, and the request has no field `model`")
            self._model = text(mapping(models[0], "data[0]").get("id"), "data[0].id")
        return self._model

    @asynccontextmanager
    async def _response(self, method: str, path: str, content: bytes | None = None) -> AsyncIterator[httpx.Response]:
        headers = {"Content-Type": "application/json"} if content is not None else {}
        try:
            async with self._http.stream(method, path, content=content, headers=headers) as response:
                if response.has_redirect_location:
                    place = excerpt(response.headers["location"])
                    raise FaultError(f"the server redirects to {place} (HTTP status {response.status_code})")
                encoding = response.headers.get("content-encoding", "identity")
                if encoding.lower() != "identity":
                    raise FaultError(f"the answer is compressed ({excerpt(encoding)}), which was not allowed")
                yield response
        except httpx.ConnectError as error:
            raise FaultError(f"no connection to the server: {_reason(error)}") from error
        except httpx.ProtocolError as error:
            raise FaultError(f"the answer is not HTTP, or is not complete: {error}") from error
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise FaultError(f"the connection was lost: {_reason(error)}") from error

    async def _content(self, response: httpx.Response) -> bytes:
        pieces = []
        size = 0
        async for piece in response.aiter_raw():
            size += len(piece)
            if size > self._limits.body_bytes:
                raise FaultError(f"the answer is larger than {self._limits.body_bytes} bytes")
            pieces.append(piece)
        return b"".join(pieces)

    async def _take_whole(self, response: httpx.Response, case: Case, answer: Answer) -> None:
        content = await self._content(response)
        if response.status_code >= httpx.codes.BAD_REQUEST:
            error = openai_bodies.error_of_content(content, response.status_code)
            answer.error = replace(error, retry_after=_retry_after(response))
            return
        body = mapping(decoded(content), "the body")
        if error_in_body := openai_bodies.error_in(body):
            answer.error = error_in_body
            return
        answer.response = body
        with _quoting(content):
            _take_body(body, case, answer)

    async def _take_stream(self, response: httpx.Response, case: Case, answer: Answer) -> None:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "text/event-stream":
            await self._take_no_stream(response, kind, answer)
            return
        is_ended = False
        parser = EventStreamParser(self._limits.event_bytes)
        async for event in self._events(response, parser):  # to the end, so that the connection can be used again
            is_ended = is_ended or event.data == _END_OF_STREAM
            if not is_ended:
                _take_event(event, case, answer)
            if answer.error:
                return
        if not is_ended and parser.rest not in ("", _END_OF_STREAM):
            raise FaultError(f"the stream ended within an event: {excerpt(parser.rest)}")
        with _quoting(parser.foreign_line):
            answer.end_stream()

    async def _take_no_stream(self, response: httpx.Response, kind: str, answer: Answer) -> None:
        """Take an answer that is not a stream although the request asks for one. It may be an error."""
        content = await self._content(response)
        fault = FaultError(f"the answer to a request for a stream has the type {excerpt(kind)}: {excerpt(content)}")
        try:
            body = decoded(content)
        except FaultError:
            raise fault from None
        answer.error = openai_bodies.error_in(body) if isinstance(body, dict) else None
        if answer.error is None:
            raise fault

    async def _events(self, response: httpx.Response, parser: EventStreamParser) -> AsyncIterator[Event]:
        size = 0
        async for piece in response.aiter_raw():
            size += len(piece)
            if size > self._limits.body_bytes:
                raise FaultError(f"the stream is larger than {self._limits.body_bytes} bytes")
            try:
                for event in parser.feed(piece):
                    yield event
            except EventStreamError as error:
                raise FaultError(str(error)) from error


def _retry_after(response: httpx.Response) -> float | None:
    """Return the seconds after which a refused request may be sent again; None if the server does not say so.

    `Retry-After` is a number of seconds or a date (RFC 9110, section 10.2.3).
    """
    value = response.headers.get("retry-after", "").strip()
    if response.status_code not in _REFUSALS or not value:
        return None
    if _SECONDS.fullmatch(value):
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _reason(error: BaseException) -> str:
    """Return the reason of the operating system, which libraries hide behind their own errors."""
    reason = str(error) or type(error).__name__
    inner: BaseException | None = error
    while inner:
        if isinstance(inner, ssl.SSLError):
            return str(inner)  # its number is not one of the operating system
        if isinstance(inner, OSError) and inner.errno and inner.errno > 0:
            reason = os.strerror(inner.errno)
        inner = inner.__cause__ or inner.__context__
    return reason


def _take_body(body: Mapping[str, Any], case: Case, answer: Answer) -> None:
    if case.protocol == "models":
        sequence(body.get("data"), "data")
        return
    if case.protocol == "chat":
        openai_bodies.check_messages(body, "message")
    answer.generations = [merged([generation]) for _, generation in openai_bodies.generations(body)]


def _take_event(event: Event, case: Case, answer: Answer) -> None:
    if event.type == event_stream.ERROR:
        answer.error = openai_bodies.error_of_content(event.data.encode(), None)
        return
    body = mapping(decoded(event.data), "an event")
    answer.error = openai_bodies.error_in(body)
    if answer.error is None:
        with _quoting(event.data):
            if case.protocol == "chat":
                openai_bodies.check_messages(body, "delta")
            _take_chunk(body, answer)


@contextmanager
def _quoting(content: bytes | str) -> Iterator[None]:
    """Add the beginning of what the server sent to a fault that is found in the block, as evidence."""
    try:
        yield
    except FaultError as error:
        if not content:
            raise
        raise FaultError(f"{error}; the server sent {excerpt(content)}") from error


def _take_chunk(body: Mapping[str, Any], answer: Answer) -> None:
    usage = openai_bodies.usage_part(body)
    if usage and len(answer.generation_indexes) == 1:
        answer.add(answer.generation_indexes[0], usage, body)
        return
    for index, part in openai_bodies.generations(body):
        answer.add(index, part, body)
