"""Chooses free ports for a server, so that no two workers on a machine choose the same port.

A port looks free until the server listens on it, which takes minutes for a large model. If a second worker chose the
same port, it would find the server of the first worker ready, and judge the answers of the wrong server. So a worker
reserves its ports by abstract sockets of Linux. Like ports, they belong to a network namespace, and they end with the
worker.
"""

from __future__ import annotations

import errno
import secrets
import socket
import sys
from collections.abc import Sequence
from typing import Final

# Most systems take the ports of outgoing connections from 32768 upwards, so that they do not collide with these.
LOWEST: Final = 20_000
HIGHEST: Final = 32_767
_MAX_TRIES: Final = 100


class PortReservations:
    """The ports that a worker has chosen. Programs other than workers may take them at any time."""

    def __init__(self) -> None:
        self._held: list[socket.socket] = []

    def choose(self, count: int) -> Sequence[int]:
        """Return different ports on which no program listens, and reserve them."""
        ports: list[int] = []
        while len(ports) < count:
            port = self._choose()
            ports += [port] if port not in ports else []
        return ports

    def release(self) -> None:
        """Let other workers choose the ports."""
        for held in self._held:
            held.close()
        self._held.clear()

    def _choose(self) -> int:
        for _ in range(_MAX_TRIES):
            port = LOWEST + secrets.randbelow(HIGHEST - LOWEST + 1)
            if is_free(port) and self._reserve(port):
                return port
        with socket.create_server(("127.0.0.1", 0)) as listener:
            return int(listener.getsockname()[1])

    def _reserve(self, port: int) -> bool:
        """Reserve a port, and tell whether no other worker has. Other systems than Linux have no reservations."""
        if sys.platform != "linux":
            return True
        held = socket.socket(socket.AF_UNIX)
        try:
            held.bind(f"\0topgallant-inference-port-{port}")
        except OSError as error:
            held.close()
            return error.errno != errno.EADDRINUSE
        self._held.append(held)
        return True


def is_free(port: int) -> bool:
    """Tell whether a server could listen on a port of all addresses."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("", port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return False
    return True
