"""A log of a workload: its output without secrets, up to a size limit."""

from __future__ import annotations

import os
from typing import Sequence

from toolbox.agent import safe_files
from toolbox.agent.masking import Masker

_TAIL_BYTES = 1 << 16
END_BYTES = _TAIL_BYTES + 256  # by how much a log may exceed its limit: the note, and the end of the output


def log_name(stream: str) -> str:
    """Return the name of the log of a stream."""
    return f"{stream}.log"


class Log:
    """Writes the output of a workload to a file, and never fails: a full disk costs lines, not the workload.

    Args:
        limit: how many bytes to keep from the start of the output. Of the rest, the last 64 KiB are kept, after a note.
        secrets: the texts that must not reach the file.
    """

    def __init__(self, file: str, limit: int, secrets: Sequence[bytes]) -> None:
        self._descriptor = safe_files.open_regular(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._limit = limit
        # The longest first: a secret may contain another one.
        self._masker = Masker(sorted(secrets, key=len, reverse=True))
        self._tail = b""
        self.bytes = 0
        self.dropped = 0
        self.fault = ""

    def take(self, content: bytes) -> None:
        """Write a piece of output."""
        self.bytes += len(content)
        self._keep(self._masker.take(content))

    def close(self) -> None:
        """Write the output that the masker held back, and the kept end of the output."""
        self._keep(self._masker.end())
        if self.dropped:
            left_out = self.dropped - len(self._tail)
            note = f"\n[topgallant: {left_out} bytes are left out here: the log has reached its limit]\n"
            self._write(note.encode() + self._tail)
        os.close(self._descriptor)

    def _keep(self, content: bytes) -> None:
        room = max(0, self._limit)
        if room:
            self._write(content[:room])
            self._limit -= len(content)
        if len(content) > room:
            self.dropped += len(content) - room
            self._tail = (self._tail + content[room:])[-_TAIL_BYTES:]

    def _write(self, content: bytes) -> None:
        try:
            while content and not self.fault:
                content = content[os.write(self._descriptor, content) :]
        except OSError as error:
            self.fault = os.strerror(error.errno) if error.errno else str(error)
