"""A proxy in front of the API server that understands HTTP: it counts requests, and answers some of them itself.

Its clients have to authenticate with a token, because the proxy ends TLS and cannot pass client certificates on.

    with http_proxy.HttpProxy(kubeconfig, directory) as proxy:
        proxy.inject("GET", "/pods", 429, headers={"Retry-After": "1"}, times=2)
        subprocess.run(["kubectl", "--kubeconfig", proxy.kubeconfig, "get", "pods"])
        assert proxy.requests["LIST", "pods"] == 3
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from asyncio import StreamReader, StreamWriter
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from tests.features.kubernetes.servers import kubeconfigs
from tests.features.kubernetes.servers.api_proxy import ADDRESS, CHUNK, Proxy
from tests.servers import certificates

_END: Final = b"\r\n"
_SWITCHING, _NO_CONTENT, _NOT_MODIFIED = 101, 204, 304
_REASONS: Final = {401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 410: "Expired", 429: "TooManyRequests"}


@dataclass
class Injection:
    """An answer of the proxy in place of the server's answer.

    Args:
        path: pattern that is searched for in the path and query of a request.
        answer: the answer, or None if the server answers and the proxy stops instead of forwarding its answer.
        left: how many requests still get this answer; None for all.
        used: how many requests have got this answer.
    """

    method: str
    path: re.Pattern[str]
    answer: bytes | None
    left: int | None
    used: int = 0

    def use(self) -> None:
        """Count one more use."""
        self.used += 1
        self.left = None if self.left is None else self.left - 1

    def fits(self, head: Head) -> bool:
        """Return whether a request gets this answer."""
        return self.left != 0 and self.method in {"*", head.words[0]} and self.path.search(head.words[1]) is not None


@dataclass(frozen=True)
class Head:
    """The head of a request or of an answer.

    Args:
        content: raw bytes of the head.
        words: the three parts of the first line, such as `GET /api HTTP/1.1` or `HTTP/1.1 200 OK`.
        fields: headers, with their names in lower case.
    """

    content: bytes
    words: list[str]
    fields: Mapping[str, str]

    @classmethod
    async def read(cls, reader: StreamReader) -> Head:
        """Read a head.

        Raises:
            EOFError: the stream has ended.
        """
        content = await reader.readuntil(_END + _END)
        first, *lines = content.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines if line)
        return cls(content, first.split(" ", 2), {name.lower(): value.strip() for name, _, value in pairs})

    async def body(self, reader: StreamReader, *, until_the_end: bool = False) -> AsyncIterator[bytes]:
        """Yield the raw bytes of the body as they arrive, chunk headers included.

        Args:
            until_the_end: whether a body without a declared length extends to the end of the stream.
        """
        if "chunked" in self.fields.get("transfer-encoding", ""):
            count = -1
            while count != 0:
                line = await reader.readuntil(_END)
                count = int(line.split(b";")[0], 16)
                yield line + await reader.readexactly(count + len(_END))
        elif "content-length" in self.fields or not until_the_end:
            left = int(self.fields.get("content-length", 0))
            while left:
                content = await reader.readexactly(min(left, CHUNK))
                left -= len(content)
                yield content
        else:
            while content := await reader.read(CHUNK):
                yield content


class HttpProxy(Proxy):
    """A proxy that understands HTTP.

    Args:
        source: kubeconfig of the cluster.
        directory: directory for the kubeconfig and the certificate of the proxy.
    """

    def __init__(self, source: Path, directory: Path) -> None:
        super().__init__(source, directory)
        self.requests: Counter[tuple[str, str]] = Counter()
        """Number of requests by verb and resource, as `requested` returns them. A test may clear it."""
        self._injections: list[Injection] = []
        self._certificate = certificates.make(directory / "proxy.pem", ADDRESS)
        self._as_client = ssl.create_default_context(cadata=kubeconfigs.authority(source))

    def inject(
        self,
        method: str,
        path: str,
        status: int,
        *,
        headers: Mapping[str, str] | None = None,
        body: Any = None,
        times: int | None = 1,
    ) -> Injection:
        """Answer requests in place of the server. If several injections fit a request, the first one is used.

        Args:
            method: HTTP method; `*` for any.
            path: regular expression that is searched for in the path and query of a request.
            body: JSON; by default a Kubernetes `Status` with this HTTP status.
            times: how many requests to answer; None for all.
        """
        shown = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": status}
        shown |= {"reason": _REASONS.get(status, "InternalError"), "message": f"the proxy of the tests says {status}"}
        content = json.dumps(shown if body is None else body).encode() + b"\n"
        lines = {"Content-Type": "application/json", "Content-Length": str(len(content)), **(headers or {})}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        answer = f"HTTP/1.1 {status} Injected\r\n{head}\r\n".encode() + content
        injection = Injection(method, re.compile(path), answer, times)
        self._injections.append(injection)
        return injection

    def lose(self, method: str, path: str) -> Injection:
        """Let the server carry out one request, and then stop the proxy until the next `start`: the answer is lost.

        Args:
            method: HTTP method; `*` for any.
            path: regular expression, as for `inject`.
        """
        injection = Injection(method, re.compile(path), None, 1)
        self._injections.append(injection)
        return injection

    def clear(self) -> None:
        """Forward all requests to the server again."""
        self._injections.clear()

    def authority(self) -> str | None:
        """See `Proxy`."""
        return self._certificate.read_text()

    def security(self) -> dict[str, Any]:
        """See `Proxy`."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self._certificate, self._certificate.with_suffix(".key"))
        return {"ssl": context, "limit": CHUNK}

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """See `Proxy`."""
        exchange = asyncio.create_task(self._exchange(reader, writer))
        # During a long answer, such as a watch, the proxy does not read from the client, and has to wait for its end.
        gone = asyncio.create_task(writer.wait_closed())
        try:
            await asyncio.wait({exchange, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            exchange.cancel()
            gone.cancel()
            await asyncio.gather(exchange, gone, return_exceptions=True)
        if not exchange.cancelled():
            exchange.result()

    async def _exchange(self, reader: StreamReader, writer: StreamWriter) -> None:
        there: tuple[StreamReader, StreamWriter] | None = None
        try:
            is_kept = True
            while is_kept:
                request = await Head.read(reader)
                self.requests[requested(request)] += 1
                injection = next((each for each in self._injections if each.fits(request)), None)
                if injection is not None and injection.answer is not None:
                    await self._answer(injection, request, injection.answer, (reader, writer))
                    continue
                if there is None or there[0].at_eof():  # the server has closed the connection
                    _close(there)
                    there = await asyncio.open_connection(self.host, self.port_there, ssl=self._as_client, limit=CHUNK)
                if injection is not None:
                    await self._lose(injection, request, reader, there)
                    return
                is_kept = await self._pass(request, reader, writer, there)
        finally:
            _close(there)

    async def _answer(
        self, injection: Injection, request: Head, answer: bytes, client: tuple[StreamReader, StreamWriter]
    ) -> None:
        reader, writer = client
        injection.use()
        async for _ in request.body(reader):
            continue
        await self.give(writer, answer)

    async def _forward_request(
        self, request: Head, reader: StreamReader, there: tuple[StreamReader, StreamWriter]
    ) -> Head:
        """Forward a request to the server, and return the head of the answer."""
        await self.give(there[1], request.content)
        async for piece in request.body(reader):
            await self.give(there[1], piece)
        return await Head.read(there[0])

    async def _lose(
        self, injection: Injection, request: Head, reader: StreamReader, there: tuple[StreamReader, StreamWriter]
    ) -> None:
        """Let the server carry out a request, and refuse and break all connections instead of forwarding the answer."""
        answer = await self._forward_request(request, reader, there)
        async for _ in answer.body(there[0], until_the_end=True):
            continue
        injection.use()
        self.refuse()

    async def _pass(
        self, request: Head, reader: StreamReader, writer: StreamWriter, there: tuple[StreamReader, StreamWriter]
    ) -> bool:
        """Forward a request and its answer, and return whether the connection can serve another request."""
        answer = await self._forward_request(request, reader, there)
        await self.give(writer, answer.content)
        status = int(answer.words[1])
        if status == _SWITCHING:
            await self.tunnel(reader, writer, *there)
            return False
        has_body = request.words[0] != "HEAD" and status not in (_NO_CONTENT, _NOT_MODIFIED)
        if has_body:
            async for piece in answer.body(there[0], until_the_end=True):
                await self.give(writer, piece)
        frames = {"content-length", "transfer-encoding"}
        return answer.fields.get("connection") != "close" and (not has_body or bool(frames & answer.fields.keys()))


def requested(head: Head) -> tuple[str, str]:
    """Return the verb and the resource of a request, such as `("GET", "pods/log")` or `("WATCH", "jobs")`.

    The verb is the HTTP method, except that `LIST` and `WATCH` are distinguished from the `GET` of one object. For a
    request that is not about objects, the path is returned instead of the resource.
    """
    method, address = head.words[:2]
    parsed = urlsplit(address)
    parts = parsed.path.strip("/").split("/")
    rest = {"api": parts[2:], "apis": parts[3:]}.get(parts[0], [])
    if len(rest) > 2 and rest[0] == "namespaces":
        rest = rest[2:]
    if not rest:
        return method, parsed.path
    if method == "GET" and parse_qs(parsed.query).get("watch", ["false"])[0] in {"true", "True", "1"}:
        method = "WATCH"
    elif method == "GET" and len(rest) == 1:
        method = "LIST"
    return method, "/".join([rest[0], *rest[2:3]])


def _close(connection: tuple[StreamReader, StreamWriter] | None) -> None:
    """Close a connection at once, without the closing messages of TLS."""
    if connection is not None:
        connection[1].transport.abort()
