"""A TCP proxy that can break all connections and refuse new ones, so that a server seems to be down."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

_PIECE: Final = 1 << 16
Address = tuple[str, int]


class Proxy:
    """A proxy that listens on all addresses of this machine until `stop`, and again from `start`.

    Args:
        target: returns the address to connect to, given the local address that the client has connected to.
    """

    def __init__(self, target: Callable[[Address], Address]) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self._connections: set[socket.socket] = set()
        self.port = 0
        self.start()

    def start(self) -> None:
        """Accept connections: the first time on a free port, and later on the same port."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("0.0.0.0", self.port))
        listener.listen(128)
        self.port = listener.getsockname()[1]
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def stop(self) -> None:
        """Break all connections, and refuse new ones."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # `accept` in the other thread returns
            listener.close()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            try:
                server = socket.create_connection(self._target(client.getsockname()))
            except OSError:
                return
            with server:
                with self._lock:
                    self._connections |= {client, server}
                back = threading.Thread(target=_pump, args=(server, client), daemon=True)
                back.start()
                _pump(client, server)
                back.join()
                with self._lock:
                    self._connections -= {client, server}


def _pump(source: socket.socket, sink: socket.socket) -> None:
    """Copy bytes until one side ends."""
    with suppress(OSError):
        while piece := source.recv(_PIECE):
            sink.sendall(piece)
    for one in (source, sink):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
