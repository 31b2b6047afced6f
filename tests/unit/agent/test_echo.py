"""What of the logs is said again, while nobody is kept waiting by who reads it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolbox.agent import echo as module
from toolbox.agent import frames
from toolbox.agent.echo import Echo

STREAMS = ("stdout", "stderr")
FULL = 1 << 18  # more than a pipe holds


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    os.set_blocking(ends[0], False)
    yield ends
    for end in ends:
        os.close(end)


@pytest.fixture
def echo(tmp_path: Path, pipe: tuple[int, int]) -> Echo:
    return Echo(str(tmp_path), STREAMS, pipe[1])


def taken(descriptor: int) -> bytes:
    """Read what there is."""
    found = b""
    while True:
        try:
            found += os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return found


def printed(said: bytes, stream: str) -> bytes:
    """Return what was said of a stream, which has no gaps."""
    pieces = [frames.decode(line) for line in said.split(b"\n")[:-1]]
    found = b""
    for piece in pieces:
        if piece is not None and piece.stream == stream:
            assert piece.offset == len(found)
            found += piece.content
    return found


def test_what_is_new_is_said_once(echo: Echo, pipe: tuple[int, int], tmp_path: Path) -> None:
    (tmp_path / "stdout.log").write_bytes(b"one\n")
    echo.pump()
    assert taken(pipe[0]) == b"out 0 one\n"
    with (tmp_path / "stdout.log").open("ab") as stream:
        stream.write(b"two\n")
    (tmp_path / "stderr.log").write_bytes(b"oh\n")
    echo.pump()
    assert taken(pipe[0]) == b"out 4 two\nerr 0 oh\n"
    assert echo.offsets == {"stdout": 8, "stderr": 3}


def test_where_nothing_is_new_nothing_is_said(echo: Echo, pipe: tuple[int, int]) -> None:
    echo.pump()
    assert (taken(pipe[0]), echo.is_behind) == (b"", False)


def test_who_does_not_read_keeps_nobody_waiting_and_has_all_of_it_in_the_end(
    echo: Echo, pipe: tuple[int, int], tmp_path: Path
) -> None:
    content = {"stdout": os.urandom(FULL), "stderr": b"line\n" * (FULL // 5)}
    for stream, printed_there in content.items():
        (tmp_path / f"{stream}.log").write_bytes(printed_there)
    echo.pump()  # it would wait here
    said, turns = taken(pipe[0]), 0
    while echo.is_behind:
        echo.pump()
        said, turns = said + taken(pipe[0]), turns + 1
    assert turns > 1
    assert {stream: printed(said, stream) for stream in STREAMS} == content


def test_of_a_long_log_little_is_held(echo: Echo, tmp_path: Path) -> None:
    (tmp_path / "stdout.log").write_bytes(b"line\n" * FULL)
    echo.pump()
    assert len(echo._pending) < FULL


def test_a_log_that_is_deleted_or_cut_costs_what_is_new_and_no_more(
    echo: Echo, pipe: tuple[int, int], tmp_path: Path
) -> None:
    (tmp_path / "stdout.log").write_bytes(b"one\n")
    (tmp_path / "stderr.log").write_bytes(b"one\n")
    echo.pump()
    (tmp_path / "stdout.log").unlink()
    (tmp_path / "stderr.log").write_bytes(b"")
    echo.pump()
    (tmp_path / "stderr.log").write_bytes(b"one\ntwo\n")
    echo.pump()
    assert taken(pipe[0]) == b"out 0 one\nerr 0 one\nerr 4 two\n"


def test_a_reader_that_is_gone_is_told_nothing_more(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    echo = Echo(str(tmp_path), STREAMS, writer)
    (tmp_path / "stdout.log").write_bytes(b"one\n")
    echo.pump()
    echo.pump()
    assert not echo.is_behind
    os.close(writer)


def settling(echo: Echo, reader: int, pause: float, piece: int) -> float:
    """Return how long it takes while somebody reads a piece after each pause; 0 is all that there is."""
    is_over = threading.Event()

    def read() -> None:
        while not is_over.wait(pause):
            try:
                os.read(reader, piece or FULL)
            except BlockingIOError:
                return

    thread = threading.Thread(target=read)
    thread.start()
    began = time.monotonic()
    echo.settle()
    seconds = time.monotonic() - began
    is_over.set()
    thread.join()
    return seconds


def test_where_all_was_read_nobody_is_waited_for(echo: Echo, pipe: tuple[int, int]) -> None:
    assert settling(echo, pipe[0], 0.01, 0) < 5


def test_a_reader_that_is_behind_is_given_time_for_what_it_holds(
    echo: Echo, pipe: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_GRANTED_SECONDS", 0.0)
    (tmp_path / "stdout.log").write_bytes(b"x\n" * 6000)  # of about 70 kB, in 17 pieces
    echo.pump()
    seconds = settling(echo, pipe[0], 0.03, 4096)
    assert seconds > 0.9  # half a second to read them, and as long again for as much, and half
    assert taken(pipe[0]) == b""


def test_of_who_reads_no_more_it_is_given_up(echo: Echo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LONGEST_SECONDS", 0.2)
    (tmp_path / "stdout.log").write_bytes(b"x\n")
    echo.pump()
    began = time.monotonic()
    echo.settle()
    assert 0.2 <= time.monotonic() - began < 5


def test_a_reader_that_is_gone_or_that_is_a_file_is_not_waited_for(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    (tmp_path / "stdout.log").write_bytes(b"x\n")
    gone = Echo(str(tmp_path), STREAMS, writer)
    gone.pump()
    os.close(reader)
    began = time.monotonic()
    gone.settle()
    with (tmp_path / "said").open("wb") as file:
        said = Echo(str(tmp_path), STREAMS, file.fileno())
        said.pump()
        said.settle()
    os.close(writer)
    assert time.monotonic() - began < 5
