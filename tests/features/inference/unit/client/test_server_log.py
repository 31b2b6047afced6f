"""The log of a server has a limited size, is useful while the server runs, and never blocks the server."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from toolbox.features.inference.client.key_mask import KeyMask
from toolbox.features.inference.client.server_log import LogPipe, ServerLog


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "server.log"


def small(path: Path, key: str | None = None) -> ServerLog:
    return ServerLog(path, KeyMask(key), kept_bytes=10)


def write_and_close(path: Path, content: bytes, *, stays_open: bool) -> None:
    """Write to the pipe of a log, and close the pipe before the event loop has read from it."""

    async def main() -> None:
        pipe = LogPipe(ServerLog(path, KeyMask(None)))
        kept = os.dup(pipe.inlet)
        os.write(kept, content)
        pipe.close_inlet()
        if not stays_open:
            os.close(kept)
        pipe.close()
        if stays_open:
            os.close(kept)

    asyncio.run(main())


@pytest.mark.parametrize("size", range(21))
def test_a_short_log_is_whole(path: Path, size: int) -> None:
    log = small(path)
    content = bytes(range(65, 65 + size))
    for start in range(0, size, 3):
        log.add(content[start : start + 3])
    log.close()
    assert path.read_bytes() == content


@pytest.mark.parametrize("piece", [1, 7, 10, 11, 1000])
def test_a_long_log_has_its_beginning_and_its_end(path: Path, piece: int) -> None:
    log = small(path)
    content = b"0123456789" + b"x" * 980 + b"abcdefghij"
    for start in range(0, 1000, piece):
        log.add(content[start : start + piece])
    log.close()
    assert path.read_bytes() == b"0123456789\n[980 bytes of the output were left out here]\nabcdefghij"


def test_the_beginning_is_in_the_file_while_the_server_runs(path: Path) -> None:
    log = small(path)
    log.add(b"first")
    assert path.read_bytes() == b"first"
    log.add(b" and much more")
    assert path.read_bytes() == b"first and "
    assert log.tail(5) == ["first and much more"]
    log.close()


def test_a_key_in_two_pieces_is_masked_in_the_file_and_in_the_tail(path: Path) -> None:
    log = ServerLog(path, KeyMask("secret"))
    log.add(b"the key is sec")
    log.add(b"ret\n")
    assert log.tail(5) == ["the key is ***"]
    log.close()
    assert path.read_bytes() == b"the key is ***\n"


def test_the_tail_is_short(path: Path) -> None:
    log = ServerLog(path, KeyMask(None))
    log.add(b"x" * 10_000_000 + b"\n\nlast\n\n")
    assert log.tail(1) == ["last"]
    assert len("".join(log.tail(5))) < 70_000
    log.close()


def test_a_full_disk_does_not_end_the_reading() -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    log = ServerLog(full, KeyMask(None))
    log.add(b"first\n")
    log.add(b"second\n")
    assert log.tail(5) == ["first", "second"]
    log.close()


@pytest.mark.parametrize("stays_open", [True, False])
def test_what_is_in_the_pipe_at_the_end_is_in_the_log(path: Path, stays_open: bool) -> None:
    write_and_close(path, b"x" * 40_000, stays_open=stays_open)
    assert path.read_bytes() == b"x" * 40_000


def test_a_server_may_close_its_output_long_before_it_ends(path: Path) -> None:
    async def main() -> None:
        pipe = LogPipe(log)
        pipe.close_inlet()
        for _ in range(3):
            await asyncio.sleep(0)
        assert not asyncio.get_running_loop().remove_reader(pipe._outlet)  # else the loop would never rest
        pipe.close()

    log = ServerLog(path, KeyMask(None))
    asyncio.run(main())
