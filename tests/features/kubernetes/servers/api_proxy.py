"""A proxy in front of the API server of a cluster, which can drop, stall and refuse connections.

It forwards bytes without interpreting them. The proxy in `tests/features/kubernetes/servers/http_proxy.py` understands
HTTP.

    with api_proxy.Proxy(kubeconfig, directory) as proxy:
        subprocess.run(["kubectl", "--kubeconfig", proxy.kubeconfig, "get", "pods"])
        proxy.drop()
"""

from __future__ import annotations

import asyncio
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

from tests.features.kubernetes.servers import kubeconfigs

ADDRESS: Final = "127.0.0.1"
CHUNK: Final = 1 << 18


class Proxy:
    """A proxy that listens from `start` until `stop`, or inside a `with` block.

    Args:
        source: kubeconfig of the cluster.
        directory: directory for the kubeconfig of the proxy.
    """

    def __init__(self, source: Path, directory: Path) -> None:
        address = urlsplit(kubeconfigs.server(source))
        self.source = source
        self.kubeconfig = directory / "kubeconfig-of-the-proxy"
        self.host, self.port_there = address.hostname or ADDRESS, address.port or 443
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="api-proxy", daemon=True)
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._server: asyncio.Server | None = None
        self._clients: list[Connection] = []

    def __enter__(self) -> Self:
        self._thread.start()
        self.start()
        kubeconfigs.derive(
            self.source, self.kubeconfig, server=f"https://{ADDRESS}:{self.port}", authority=self.authority()
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.resume()
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def authority(self) -> str | None:
        """Return the certificate with which clients verify the proxy, or None for the certificate of the server."""
        return None

    def start(self) -> None:
        """Listen: the first time on a free port, and later on the same port."""
        self._do(self._listen())

    def stop(self) -> None:
        """Refuse new connections and break the open ones, as when the server has crashed."""

        async def close() -> None:
            if self._server is not None:
                self._server.close()
                self._server = None
            await asyncio.sleep(0.01)  # until connections that were just accepted have their tasks, which close them
            await _break(self.connections())

        self._do(close())

    def refuse(self) -> None:
        """Refuse new connections and break the open ones. Call this only in the thread of the event loop."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in self.connections():
            connection.writer.transport.abort()

    def drop(self) -> None:
        """Break all connections, also stalled ones. Clients can connect again."""
        self.break_off(self.connections())

    def stall(self) -> None:
        """Hold back all bytes from now on and keep all connections open, as when the network is down."""
        self._call(self._flowing.clear)

    def resume(self) -> None:
        """Forward the bytes that were held back, and all later ones."""
        self._call(self._flowing.set)

    def connections(self) -> list[Connection]:
        """Return the open connections of clients."""
        return list(self._clients)

    def break_off(self, broken: Sequence[Connection]) -> None:
        """Break connections at once. The bytes that are held back for them are lost."""
        self._do(_break(broken))

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Serve one client until its connection closes."""
        there, to_there = await asyncio.open_connection(self.host, self.port_there)
        await self.tunnel(reader, writer, there, to_there)

    async def tunnel(
        self, reader: StreamReader, writer: StreamWriter, there: StreamReader, to_there: StreamWriter
    ) -> None:
        """Forward the bytes of both sides until one side has closed its connection."""
        pumps = [asyncio.create_task(self._pump(*pair)) for pair in ((reader, to_there), (there, writer))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            to_there.transport.abort()
            raise
        finally:
            for pump in pumps:
                pump.cancel()
            to_there.close()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def give(self, writer: StreamWriter, content: bytes) -> None:
        """Write bytes as soon as the proxy is not stalled."""
        await self._flowing.wait()
        writer.write(content)
        await writer.drain()

    async def _pump(self, reader: StreamReader, writer: StreamWriter) -> None:
        while content := await reader.read(CHUNK):
            await self.give(writer, content)
        await self._flowing.wait()  # a stalled proxy does not forward the end of a stream either

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, ADDRESS, self.port, backlog=1024, **self.security())
        self.port = self._server.sockets[0].getsockname()[1]

    def security(self) -> dict[str, Any]:
        """Return further arguments of `asyncio.start_server`."""
        return {}

    async def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "asyncio runs this callback in a task"
        connection = Connection(self, writer, task)
        self._clients.append(connection)
        try:
            with suppress(OSError, EOFError, asyncio.CancelledError):
                await self.serve(reader, writer)
        finally:
            self._clients.remove(connection)
            writer.close()

    def _do(self, what: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(timeout=30)

    def _call(self, what: Callable[[], None]) -> None:
        async def call() -> None:  # in the thread of the loop
            what()

        self._do(call())


@dataclass(frozen=True, eq=False)
class Connection:
    """An open connection of a client."""

    proxy: Proxy
    writer: StreamWriter
    task: asyncio.Task[None]

    def kill(self) -> None:
        """Break this connection."""
        self.proxy.break_off([self])


async def _break(broken: Sequence[Connection]) -> None:
    for connection in broken:
        connection.writer.transport.abort()
        connection.task.cancel()
    await asyncio.gather(*(connection.task for connection in broken), return_exceptions=True)
