"""A proxy in front of the hub of the tests, which fails as a script says.

Requests to `/hub/` go to the hub itself, because configurable-http-proxy 0.4 sends the events of a progress stream only
when the stream has ended. All other requests, and with them all websockets, go to configurable-http-proxy. Each
connection serves one request.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from asyncio import StreamReader, StreamWriter
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Self

ADDRESS: Final = "127.0.0.1"
_CHUNK: Final = 1 << 16
_MAX_HEAD_BYTES: Final = 1 << 20


@dataclass
class Fault:
    """A fault of the proxy.

    Args:
        request: a pattern that is searched for in the method and the path of a request, such as `GET /hub/api/user`.
        status: the status of the answer of the proxy; None if the server answers.
        cut_after: break the connection after this number of bytes of the server's answer; None for no break.
        headers: headers of the answer of the proxy.
        left: how many requests still meet the fault; None for all.
    """

    request: re.Pattern[str]
    status: int | None = None
    cut_after: int | None = None
    headers: str = ""
    left: int | None = 1
    used: int = 0


class FrontProxy:
    """A proxy that listens inside a `with` block."""

    def __init__(self) -> None:
        self.hub_port = 0
        self.proxy_port = 0
        self.port = 0
        self.base_path = "/"
        self.requests: Counter[str] = Counter()
        """The number of requests by method and path, without the query."""
        self._faults: list[Fault] = []
        self._open: dict[StreamWriter, str] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="front-proxy", daemon=True)
        self._server: asyncio.Server | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def start(self) -> None:
        """Accept connections: the first time on a free port, and later on the same port."""
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()

    def stop(self) -> None:
        """Break all connections, and refuse new ones."""

        async def close() -> None:
            if self._server is not None:
                self._server.close()
                self._server = None
            await asyncio.sleep(0.01)  # until connections that were just accepted have their tasks, which close them
            self._break("")
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(close(), self._loop).result()

    def fail(self, request: str, status: int, *, times: int | None = None, headers: str = "") -> Fault:
        """Answer requests with a status; see `Fault`."""
        return self._add(Fault(re.compile(request), status, headers=headers, left=times))

    def cut(self, request: str, after: int, *, times: int | None = 1) -> Fault:
        """Break the connections of requests in the middle of the answer; see `Fault`."""
        return self._add(Fault(re.compile(request), cut_after=after, left=times))

    def clear(self) -> None:
        """Forget all faults."""
        self._faults.clear()

    def drop(self, request: str) -> int:
        """Break the open connections whose request matches, and return their number."""

        async def drop() -> int:
            return self._break(request)

        return asyncio.run_coroutine_threadsafe(drop(), self._loop).result()

    def _break(self, request: str) -> int:
        matching = [writer for writer, line in self._open.items() if re.search(request, line)]
        for writer in matching:
            writer.transport.abort()
        return len(matching)

    def _add(self, fault: Fault) -> Fault:
        self._faults.append(fault)
        return fault

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, ADDRESS, self.port, limit=_MAX_HEAD_BYTES)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        with suppress(OSError, EOFError, asyncio.CancelledError):
            head = await reader.readuntil(b"\r\n\r\n")
            method, path, _ = head.decode("latin-1").split(" ", 2)
            line = f"{method} {path}"
            self.requests[line.partition("?")[0]] += 1
            self._open[writer] = line
            fault = self._fault(line)
            if fault is not None and fault.status is not None:
                await _answer(writer, fault)
            else:
                await self._pass(path, head, reader, writer, fault.cut_after if fault else None)
        self._open.pop(writer, None)
        with suppress(OSError):
            writer.close()

    def _fault(self, line: str) -> Fault | None:
        for fault in self._faults:
            if fault.left != 0 and fault.request.search(line):
                fault.used += 1
                fault.left = None if fault.left is None else fault.left - 1
                return fault
        return None

    async def _pass(
        self, path: str, head: bytes, reader: StreamReader, writer: StreamWriter, cut_after: int | None
    ) -> None:
        port = self.hub_port if path.startswith(f"{self.base_path}hub/") else self.proxy_port
        there, to_there = await asyncio.open_connection(ADDRESS, port)
        if b"\r\nupgrade:" not in head.lower():
            head = re.sub(rb"(?i)\r\nconnection:[^\r]*", b"", head)[:-2] + b"Connection: close\r\n\r\n"
        to_there.write(head)
        pumps = [
            asyncio.create_task(_pump(reader, to_there, None)),
            asyncio.create_task(_pump(there, writer, cut_after)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            to_there.close()


async def _pump(reader: StreamReader, writer: StreamWriter, most: int | None) -> None:
    """Copy bytes until one side ends. Break the connection after `most` bytes."""
    while content := await reader.read(_CHUNK):
        if most is not None and len(content) >= most:
            writer.write(content[:most])
            await writer.drain()
            writer.transport.abort()
            return
        most = None if most is None else most - len(content)
        writer.write(content)
        await writer.drain()


async def _answer(writer: StreamWriter, fault: Fault) -> None:
    body = json.dumps({"status": fault.status, "message": "the proxy of the tests says no"}).encode()
    head = (
        f"HTTP/1.1 {fault.status} Injected\r\nContent-Length: {len(body)}\r\nConnection: close\r\n{fault.headers}\r\n"
    )
    writer.write(head.encode() + body)
    await writer.drain()
