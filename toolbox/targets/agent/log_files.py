"""Writes the log of a workload: its output with masked secrets, up to a size limit."""

from __future__ import annotations

import os
import zlib
from typing import List, Sequence

from toolbox.ground.kit import safe_files
from toolbox.ground.kit.masking import Masker

_TAIL_BYTES = 1 << 16
END_BYTES = _TAIL_BYTES + 256  # a full log also contains the end of the output, and a note about the dropped bytes


class Log:
    """Writes one output stream of a workload to a file. If the disk is full, output is lost, but no error is raised.

    Args:
        limit: the number of bytes to keep from the start of the output. A note and the last 64 KiB follow.
        secrets: the byte strings to mask.
        has_checksum: whether to compute `checksum`; otherwise `checksum` stays [0, 0].

    Attributes:
        checksum: the size and the CRC-32 of what was written to the file, whatever the file contains by now.
    """

    def __init__(self, file: str, limit: int, secrets: Sequence[bytes], *, has_checksum: bool = False) -> None:
        self._descriptor = safe_files.open_regular(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._limit = limit
        # Longest first, because a secret may contain another secret.
        self._masker = Masker(sorted(secrets, key=len, reverse=True))
        self._tail = b""
        self._has_checksum = has_checksum
        self.checksum: List[int] = [0, 0]
        self.bytes = 0
        self.dropped = 0
        self.fault = ""

    def write(self, content: bytes) -> None:
        """Write a piece of output."""
        self.bytes += len(content)
        self._keep(self._masker.feed(content))

    def close(self) -> None:
        """Write the output that is still in memory: the bytes in the masker, and the last 64 KiB of a long output."""
        self._keep(self._masker.flush())
        if self.dropped:
            left_out = self.dropped - len(self._tail)
            note = f"\n[topgallant: {left_out} bytes are left out here: the log has reached its limit]\n"
            self._append(note.encode() + self._tail)
        os.close(self._descriptor)

    def _keep(self, content: bytes) -> None:
        room = max(0, self._limit)
        if room:
            self._append(content[:room])
            self._limit -= len(content)
        if len(content) > room:
            self.dropped += len(content) - room
            self._tail = (self._tail + content[room:])[-_TAIL_BYTES:]

    def _append(self, content: bytes) -> None:
        try:
            while content and not self.fault:
                count = os.write(self._descriptor, content)
                if self._has_checksum:
                    size, crc = self.checksum
                    self.checksum = [size + count, zlib.crc32(content[:count], crc)]
                content = content[count:]
        except OSError as error:
            self.fault = os.strerror(error.errno) if error.errno else str(error)
