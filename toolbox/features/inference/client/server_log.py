"""Keeps the output of a server in a file of limited size.

The server writes to a pipe, which the worker empties between its other work. So the file gets no more than the first
and the last bytes of the output, and never the API key. The first bytes are written as they come, and survive a worker
that is killed. The last bytes are in memory until the server ends.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from .key_mask import KeyMask

KEPT_BYTES: Final = 8 << 20
_TAIL_BYTES: Final = 64 << 10
# While the worker decodes a large answer, a server can write this much without waiting.
_PIPE_BYTES: Final = 1 << 20
# More at a time would delay the other work of the worker.
_READ_BYTES: Final = 64 << 10


class ServerLog:
    """The output of one start of a server.

    Args:
        path: the file, to which the output is appended.
        kept_bytes: how many of the first bytes are kept, and how many of the last ones.
    """

    def __init__(self, path: Path, mask: KeyMask, *, kept_bytes: int = KEPT_BYTES) -> None:
        self._mask = mask.stream()
        self._kept_bytes = kept_bytes
        self._file = path.open("ab", buffering=0)
        self._is_writable = True
        self._total = 0
        self._written = 0
        # Together, these contain at least the last `kept_bytes` of the output.
        self._older = bytearray()
        self._newer = bytearray()

    def add(self, content: bytes) -> None:
        """Add output of the server."""
        self._keep(self._mask.feed(content))

    def close(self) -> None:
        """Write the last bytes to the file."""
        self._keep(self._mask.flush())
        self._is_writable = True
        missing = self._total - self._written
        last = self._last(min(missing, self._kept_bytes))
        if missing > len(last):
            self._write(b"\n[%d bytes of the output were left out here]\n" % (missing - len(last)))
        self._write(last)
        self._file.close()

    def tail(self, most_lines: int) -> Sequence[str]:
        """Return the last lines of the output that are not empty."""
        lines = self._last(_TAIL_BYTES).decode(errors="replace").splitlines()
        return [line for line in lines if line.strip()][-most_lines:]

    def _keep(self, content: bytes) -> None:
        self._total += len(content)
        self._newer += content
        if len(self._newer) >= self._kept_bytes:
            self._older, self._newer = self._newer, bytearray()
        if self._is_writable and self._written < self._kept_bytes:
            self._written += self._write(content[: self._kept_bytes - self._written])

    def _write(self, content: bytes) -> int:
        """Write to the file, and return the number of written bytes. The server also runs if the disk is full."""
        written = 0
        try:
            while self._is_writable and written < len(content):
                written += self._file.write(content[written:])
        except OSError:
            self._is_writable = False
        return written

    def _last(self, count: int) -> bytes:
        older = max(0, count - len(self._newer))
        return bytes(self._older[max(0, len(self._older) - older) :] + self._newer)[-count:] if count else b""


class LogPipe:
    """A pipe from a server to its log.

    Args:
        log: gets everything that is written to `inlet`.
    """

    def __init__(self, log: ServerLog) -> None:
        self._log = log
        self._outlet, self.inlet = os.pipe()
        os.set_blocking(self._outlet, False)
        with suppress(OSError, AttributeError):  # only Linux has pipes of other sizes, and may refuse them
            fcntl.fcntl(self.inlet, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        asyncio.get_running_loop().add_reader(self._outlet, self._read)

    def close_inlet(self) -> None:
        """Close the end for writing in this process, after the server has inherited it."""
        os.close(self.inlet)

    def close(self) -> None:
        """Read what is in the pipe, and close the pipe and the log.

        A process that the server has left may have the pipe open, and write to it without end. So this does not wait
        for the end of the output.
        """
        asyncio.get_running_loop().remove_reader(self._outlet)
        for _ in range(_PIPE_BYTES // _READ_BYTES):
            if not self._read():
                break
        os.close(self._outlet)
        self._log.close()

    def _read(self) -> bool:
        """Read a part of the output, and return whether there was any."""
        try:
            content = os.read(self._outlet, _READ_BYTES)
        except BlockingIOError:
            return False
        if not content:  # all processes have closed the pipe, although the server may continue
            asyncio.get_running_loop().remove_reader(self._outlet)
        self._log.add(content)
        return bool(content)
