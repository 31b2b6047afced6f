"""The record of a workload's logs in the termination message of its container: their sizes, checksums and contents.

    {"stdout": [SIZE, CRC-32], "stderr": [SIZE, CRC-32], "content": "..."}

`content` has both logs, one after the other, compressed by zlib, in base64. It is left out if the logs are too long, or
if the workload has changed them. The sizes and checksums are those of the bytes that the agent wrote to the logs. The
orchestrator learns from the record whether its copies of the logs are complete.
"""

from __future__ import annotations

import base64
import os
import zlib
from typing import Dict, List, Mapping, Optional, Sequence

from toolbox.ground.kit import safe_files
from toolbox.ground.kit.attempt_files import log_name

CONTENT = "content"
_BEFORE_CONTENT = f', "{CONTENT}": '
_MAX_BYTES = 1 << 16  # of both logs together, before compression
_PIECE_BYTES = 1 << 20


def pack(directory: str, checksums: Mapping[str, List[int]]) -> Optional[str]:
    """Return the contents of the logs in a directory for a record.

    Args:
        checksums: the size and the CRC-32 of each log.

    Returns:
        None if the logs are too long, or if a file does not have the checksum of its log.
    """
    if sum(size for size, _ in checksums.values()) > _MAX_BYTES:
        return None
    files = {stream: os.path.join(directory, log_name(stream)) for stream in checksums}
    if any(checksum(file) != checksums[stream] for stream, file in files.items()):
        return None
    content = b"".join(safe_files.read(file, _MAX_BYTES) for file in files.values() if safe_files.is_regular(file))
    return base64.b64encode(zlib.compress(content, 9)).decode()


def without_content(message: str) -> str:
    """Return a termination message that was cut within the contents of the logs as JSON without these contents."""
    return message.rpartition(_BEFORE_CONTENT)[0] + "}}"


def unpack(logs: object, streams: Sequence[str]) -> Optional[Dict[str, bytes]]:
    """Return the contents of the logs by stream; None if a record does not carry them, or is not a valid record."""
    try:
        assert isinstance(logs, Mapping)
        decompressor = zlib.decompressobj()
        content = decompressor.decompress(base64.b64decode(logs[CONTENT], validate=True), _MAX_BYTES)
        contents = {}
        for stream in streams:
            size = logs[stream][0]
            contents[stream], content = content[:size], content[size:]
            if [len(contents[stream]), zlib.crc32(contents[stream])] != logs[stream]:
                return None
    except (AssertionError, LookupError, TypeError, ValueError, zlib.error):
        return None  # the workload may have written the record
    return contents


def checksum(file: str) -> List[int]:
    """Return the size of a file and the CRC-32 of its content; zeros if the file cannot be read."""
    size = value = 0
    try:
        descriptor = safe_files.open_regular(file)
    except OSError:
        return [0, 0]
    with os.fdopen(descriptor, "rb") as stream:
        while piece := stream.read(_PIECE_BYTES):
            size, value = size + len(piece), zlib.crc32(piece, value)
    return [size, value]
