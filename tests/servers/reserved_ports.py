"""Ports that no other process gets before the server of a test listens on them, or while that server is restarted."""

from __future__ import annotations

import socket


def reserve(address: str) -> socket.socket:
    """Return a socket that keeps a free port until the socket is closed: `reserve(address).getsockname()[1]`.

    Linux gives the port to no other socket that asks for any free port. A server that sets SO_REUSEADDR can listen on
    the port, because this socket does not listen.
    """
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind((address, 0))
    return kept
