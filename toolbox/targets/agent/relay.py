"""Relays the connections of a fork server (`fork_server`) between two machines, through pipes such as those of `ssh`.

Both sides send frames: the number of a connection, the number of a stream, the length of the content, and the content.
Stream 0 is the socket of the connection, in both directions. Streams 1 and 2 are the standard output and the standard
error of the fork. A frame without content ends the stream. The first frame of a connection is the beginning of its
request.

Each side has two threads, which write without a time limit. One thread sends frames, and the other thread receives
frames. So a side that cannot send can still receive, and a slow reader slows the writer down.
"""

from __future__ import annotations

import functools
import os
import select
import socket
import struct
from typing import IO, Callable, Dict, Optional, Tuple

from toolbox.ground.kit.streams import write_all

HELLO = b"topgallant modules\n"
"""What the remote side sends before the first frame."""
CHUNK_BYTES = 1 << 16
_HEADER = struct.Struct("!IBI")
_SOCKET, STREAMS = 0, (0, 1, 2)


class InvalidFrame(Exception):
    """The other side does not follow the protocol."""


class Relay:
    """One side of a relay.

    Args:
        sink: the descriptor for the frames.
    """

    def __init__(self, sink: int) -> None:
        self._sink = sink
        self._poll = select.epoll()
        self._watched: Dict[int, Callable[[], None]] = {}
        # A descriptor becomes None when its reader has ended.
        self._writers: Dict[Tuple[int, int], Optional[int]] = {}

    def watch(self, descriptor: int, on_ready: Callable[[], None]) -> None:
        """Call a function in the thread of `forward` whenever a descriptor can be read."""
        self._watched[descriptor] = on_ready
        self._poll.register(descriptor, select.EPOLLIN)

    def unwatch(self, descriptor: int) -> None:
        """Stop watching a descriptor."""
        self._poll.unregister(descriptor)
        del self._watched[descriptor]

    def add(self, number: int, connection: socket.socket, readers: Dict[int, int], writers: Dict[int, int]) -> None:
        """Add a connection.

        Args:
            connection: its socket, which the relay closes.
            readers: descriptors whose content is forwarded, by the number of the stream.
            writers: descriptors to which received content is written, by the number of the stream.
        """
        for stream, descriptor in {_SOCKET: os.dup(connection.fileno()), **writers}.items():
            self._writers[number, stream] = descriptor
        for stream, descriptor in {_SOCKET: connection.detach(), **readers}.items():
            self.watch(descriptor, functools.partial(self._forward_from, number, stream, descriptor))

    def forward(self) -> None:
        """Forward what can be read, until a function that `watch` has added raises an exception."""
        while True:
            for descriptor, _ in self._poll.poll():
                self._watched[descriptor]()

    def send(self, number: int, stream: int, content: bytes) -> None:
        """Send a frame."""
        write_all(self._sink, _HEADER.pack(number, stream, len(content)) + content)

    def receive(self, source: IO[bytes]) -> None:
        """Receive frames until the end of `source`.

        Raises:
            InvalidFrame: the other side does not follow the protocol.
        """
        while True:
            header = source.read(_HEADER.size)
            if len(header) < _HEADER.size:
                return
            number, stream, length = _HEADER.unpack(header)
            if stream not in STREAMS or length > CHUNK_BYTES:
                raise InvalidFrame("a frame has an unknown stream or is too long")
            content = source.read(length)
            if len(content) < length:
                return
            self.handle(number, stream, content)

    def handle(self, number: int, stream: int, content: bytes) -> None:
        """Write the content of a frame to its stream."""
        try:
            writer = self._writers[number, stream]
        except KeyError:
            raise InvalidFrame("a frame has an unknown connection or stream") from None
        if writer is not None:
            try:
                if content:
                    write_all(writer, content)
                    return
                if stream == _SOCKET:
                    _shut_down(writer)
            except OSError:  # its reader has ended
                pass
            os.close(writer)
            self._writers[number, stream] = None
        if not content:
            del self._writers[number, stream]

    def _forward_from(self, number: int, stream: int, descriptor: int) -> None:
        try:
            content = os.read(descriptor, CHUNK_BYTES)
        except OSError:  # the other end was closed before it had read everything
            content = b""
        if not content:
            self.unwatch(descriptor)
            os.close(descriptor)
        self.send(number, stream, content)


def _shut_down(descriptor: int) -> None:
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        connection.shutdown(socket.SHUT_WR)
