"""A log of a workload: what it prints, without secrets, up to a limit."""

from __future__ import annotations

import os
from typing import Sequence

_TAIL_BYTES = 1 << 16
_MASK = b"***"


class Log:
    """Takes the output of a workload, and never fails: a full disk costs lines, not the workload.

    Args:
        limit: how many bytes to keep from the start on. Of what follows the last 64 KiB are kept, with a note between.
        secrets: texts that must not reach the file.
    """

    def __init__(self, file: str, limit: int, secrets: Sequence[bytes]) -> None:
        self._descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._limit = limit
        # The longest first: one may hold another.
        self._secrets = sorted(secrets, key=len, reverse=True)
        self._held = b""
        self._tail = b""
        self.bytes = 0
        self.dropped = 0
        self.fault = ""

    def take(self, content: bytes) -> None:
        """Take what was printed."""
        self.bytes += len(content)
        if self._secrets:
            content, self._held = self._masked(self._held + content)
        self._keep(content)

    def close(self) -> None:
        """Write what was held back, and what there is of the end."""
        for secret in self._secrets:
            self._held = self._held.replace(secret, _MASK)
        self._keep(self._held)
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

    def _masked(self, content: bytes) -> tuple[bytes, bytes]:
        """Return the content without secrets, and the end of it that may be the beginning of one."""
        held = b""
        for secret in self._secrets:
            content = content.replace(secret, _MASK)
            # Before a shorter secret, which may be the beginning of this one, is replaced.
            begins = len(content) - _overlap(content, secret)
            content, held = content[:begins], content[begins:] + held
        return content, held

    def _write(self, content: bytes) -> None:
        try:
            while content and not self.fault:
                content = content[os.write(self._descriptor, content) :]
        except OSError as error:
            self.fault = os.strerror(error.errno) if error.errno else str(error)


def _overlap(content: bytes, secret: bytes) -> int:
    """Return how long the end of the content is that is a beginning of the secret."""
    start = max(0, len(content) - len(secret) + 1)
    while (start := content.find(secret[:1], start)) >= 0:
        if secret.startswith(content[start:]):
            return len(content) - start
        start += 1
    return 0
