"""A relay forwards the streams of connections, and trusts no frame of the other side."""

from __future__ import annotations

import io
import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from toolbox.ground.kit import streams
from toolbox.targets.agent import relay, remote_modules
from toolbox.targets.agent.relay import InvalidFrame, Relay

OUTPUT = 1


class Side:
    """One side of a relay, with one connection, and the other ends of its descriptors."""

    def __init__(self, source: int, sink: int, *, receives_output: bool) -> None:
        self._source = source
        self.relay = Relay(sink)
        self.client, connection = socket.socketpair()
        read_end, write_end = os.pipe()
        if receives_output:
            self.relay.add(1, connection, {}, {OUTPUT: write_end})
            self.output = read_end
        else:
            self.relay.add(1, connection, {OUTPUT: read_end}, {})
            self.output = write_end
        self._threads = [threading.Thread(target=target, daemon=True) for target in (self._forward, self._receive)]
        for thread in self._threads:
            thread.start()

    def _forward(self) -> None:
        with suppress(OSError):  # the other side has ended
            self.relay.forward()

    def _receive(self) -> None:
        with os.fdopen(self._source, "rb") as source:
            self.relay.receive(source)


@pytest.fixture
def sides() -> Iterator[tuple[Side, Side]]:
    """Yield the side of a client, and the side of a server."""
    (first_source, first_sink), (second_source, second_sink) = os.pipe(), os.pipe()
    near = Side(first_source, second_sink, receives_output=True)
    far = Side(second_source, first_sink, receives_output=False)
    yield near, far
    for side in (near, far):
        side.client.close()


def frame(number: int, stream: int, content: bytes) -> bytes:
    """Return the bytes of a frame."""
    return struct.pack("!IBI", number, stream, len(content)) + content


def test_requests_and_answers_arrive(sides: tuple[Side, Side]) -> None:
    near, far = sides
    near.client.sendall(b"request")
    assert far.client.recv(100) == b"request"
    far.client.sendall(b"answer")
    assert near.client.recv(100) == b"answer"


def test_the_ends_of_streams_arrive(sides: tuple[Side, Side]) -> None:
    near, far = sides
    near.client.close()
    assert far.client.recv(100) == b""
    os.close(far.output)
    assert os.read(near.output, 100) == b""


def test_a_large_output_arrives_while_a_large_request_is_sent(sides: tuple[Side, Side]) -> None:
    near, far = sides
    content = os.urandom(1 << 22)
    writers = [
        threading.Thread(target=write, args=args)
        for write, args in ((streams.write_all, (far.output, content)), (near.client.sendall, (content,)))
    ]
    for writer in writers:
        writer.start()
    for read in (lambda count: os.read(near.output, count), far.client.recv):
        received = bytearray()
        while len(received) < len(content):
            received += read(len(content) - len(received))
        assert received == content
    for writer in writers:
        writer.join()


def test_output_without_a_reader_is_dropped(sides: tuple[Side, Side]) -> None:
    near, far = sides
    os.close(near.output)
    streams.write_all(far.output, b"x" * (1 << 20))
    far.client.sendall(b"answer")
    assert near.client.recv(100) == b"answer"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (frame(7, 0, b"x"), "unknown connection"),
        (frame(1, 3, b"x"), "unknown stream or is too long"),
        (frame(1, OUTPUT, b"x" * (relay.CHUNK_BYTES + 1)), "unknown stream or is too long"),
        (b"text of a login shell", "unknown stream or is too long"),
        (frame(1, OUTPUT, b"") + frame(1, OUTPUT, b"x"), "unknown connection"),
    ],
)
def test_a_frame_that_is_wrong_ends_the_relay(content: bytes, message: str) -> None:
    side = Relay(os.open(os.devnull, os.O_WRONLY))
    client, connection = socket.socketpair()
    with client:
        side.add(1, connection, {}, {OUTPUT: os.open(os.devnull, os.O_WRONLY)})
        with pytest.raises(InvalidFrame, match=message):
            side.receive(io.BytesIO(content))


def test_a_request_that_the_server_refuses_without_reading_it_ends_only_this_request(tmp_path: Path) -> None:
    path, answer = str(tmp_path / "socket"), b"refused"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def refuse() -> None:
            for _ in range(20):
                connection, _ = listener.accept()
                with connection:
                    connection.sendall(answer)

        thread = threading.Thread(target=refuse, daemon=True)
        thread.start()
        side = remote_modules._RemoteRelay(path)
        side.receive(io.BytesIO(b"".join(frame(number, 0, b"x" * relay.CHUNK_BYTES) for number in range(20))))
        thread.join()


def test_an_incomplete_frame_is_the_end() -> None:
    for content in (b"", frame(1, OUTPUT, b"text")[:4], frame(1, OUTPUT, b"text")[:-1]):
        Relay(os.open(os.devnull, os.O_WRONLY)).receive(io.BytesIO(content))
