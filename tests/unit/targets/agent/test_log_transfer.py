"""The record of the logs in a termination message carries short logs, and a forged record does no harm."""

from __future__ import annotations

import base64
import os
import zlib
from pathlib import Path
from typing import Any

import pytest

from toolbox.targets.agent import log_transfer

STREAMS = ("stdout", "stderr")


def record_of(directory: Path) -> dict[str, Any]:
    """Return the record of the logs in a directory, with the contents of short logs."""
    checksums = {stream: log_transfer.checksum(str(directory / f"{stream}.log")) for stream in STREAMS}
    return {**checksums, "content": log_transfer.pack(str(directory), checksums)}


def test_short_logs_are_carried_whole(tmp_path: Path) -> None:
    (tmp_path / "stdout.log").write_bytes(bytes(range(256)))
    (tmp_path / "stderr.log").write_bytes(b"no end of line")
    carried = log_transfer.unpack(record_of(tmp_path), STREAMS)
    assert carried == {"stdout": bytes(range(256)), "stderr": b"no end of line"}


def test_missing_logs_are_empty(tmp_path: Path) -> None:
    assert log_transfer.unpack(record_of(tmp_path), STREAMS) == {"stdout": b"", "stderr": b""}


def test_long_logs_are_not_carried(tmp_path: Path) -> None:
    (tmp_path / "stdout.log").write_bytes(bytes(1 << 16))
    (tmp_path / "stderr.log").write_bytes(b"x")
    assert record_of(tmp_path)["content"] is None


@pytest.mark.parametrize("content", [None, b"", b"two", b"one more"])
def test_logs_that_were_changed_are_not_carried(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "stdout.log").write_bytes(content)
    assert log_transfer.pack(str(tmp_path), {"stdout": [3, zlib.crc32(b"one")], "stderr": [0, 0]}) is None


def test_a_checksum_distinguishes_contents_of_the_same_size(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    content = os.urandom(3 << 20)
    one.write_bytes(content)
    other.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert log_transfer.checksum(str(one)) == [3 << 20, zlib.crc32(content)]
    assert log_transfer.checksum(str(one)) != log_transfer.checksum(str(other))


def packed(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content)).decode()


@pytest.mark.parametrize(
    "logs",
    [
        None,
        "text",
        {},
        {"content": 3},
        {"content": "not base64!", "stdout": [0, 0], "stderr": [0, 0]},
        {"content": "AAAA", "stdout": [0, 0], "stderr": [0, 0]},
        {"content": packed(b"one"), "stdout": [3, 0], "stderr": [0, 0]},
        {"content": packed(b"one"), "stdout": "abc", "stderr": [0, 0]},
        {"content": packed(b"one"), "stdout": [3, zlib.crc32(b"one")]},
        {"content": packed(b"one"), "stdout": ["3", zlib.crc32(b"one")], "stderr": [0, 0]},
    ],
)
def test_a_forged_record_carries_nothing(logs: object) -> None:
    assert log_transfer.unpack(logs, STREAMS) is None


def test_a_forged_record_cannot_fill_the_memory() -> None:
    bomb = bytes(100 << 20)
    logs = {"content": packed(bomb), "stdout": [len(bomb), zlib.crc32(bomb)], "stderr": [0, 0]}
    assert log_transfer.unpack(logs, STREAMS) is None
