"""A log is copied to another stream, and a slow reader of that stream does not block the supervisor."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolbox.targets.agent.echo import Echo

FULL = 1 << 18  # more bytes than a pipe holds


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    os.set_blocking(ends[0], False)
    yield ends
    for end in ends:
        os.close(end)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "stdout.log"


@pytest.fixture
def echo(log: Path, pipe: tuple[int, int]) -> Echo:
    return Echo(str(log), pipe[1])


def read_all(descriptor: int) -> bytes:
    """Read all bytes that a pipe holds."""
    content = b""
    while True:
        try:
            content += os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return content


def test_new_output_is_written_once_and_as_it_is(echo: Echo, pipe: tuple[int, int], log: Path) -> None:
    log.write_bytes(b"one\n\x00\\")
    echo.pump()
    assert read_all(pipe[0]) == b"one\n\x00\\"
    with log.open("ab") as stream:
        stream.write(b"two\n")
    echo.pump()
    assert read_all(pipe[0]) == b"two\n"


def test_a_missing_log_is_not_an_error(echo: Echo, pipe: tuple[int, int]) -> None:
    echo.pump()
    assert (read_all(pipe[0]), echo.is_behind) == (b"", False)


def test_a_slow_reader_blocks_nothing_and_gets_everything(echo: Echo, pipe: tuple[int, int], log: Path) -> None:
    content = os.urandom(FULL)
    log.write_bytes(content)
    echo.pump()  # a blocking write would hang here
    received, rounds = read_all(pipe[0]), 0
    while echo.is_behind:
        echo.pump()
        received, rounds = received + read_all(pipe[0]), rounds + 1
    assert rounds > 1
    assert received == content


def test_little_of_a_long_log_is_held_in_memory(echo: Echo, log: Path) -> None:
    log.write_bytes(b"line\n" * FULL)
    echo.pump()
    assert len(echo._pending) < FULL


def test_a_deleted_or_truncated_log_loses_only_its_new_output(echo: Echo, pipe: tuple[int, int], log: Path) -> None:
    log.write_bytes(b"one\n")
    echo.pump()
    log.unlink()
    echo.pump()
    log.write_bytes(b"")
    echo.pump()
    log.write_bytes(b"one\ntwo\n")
    echo.pump()
    assert read_all(pipe[0]) == b"one\ntwo\n"


def test_nothing_more_is_written_after_the_reader_has_gone(log: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    echo = Echo(str(log), writer)
    log.write_bytes(b"one\n")
    echo.pump()
    echo.pump()
    assert not echo.is_behind
    os.close(writer)
