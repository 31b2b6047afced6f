"""Copies a log of a workload to a stream of its container while the workload runs, so that `kubectl logs` shows it.

The copy is read from the log file: no output is kept in memory, and a slow reader does not block the workload.
"""

from __future__ import annotations

import os

from toolbox.ground.kit import safe_files

_PIECE_BYTES = 1 << 16
_MAX_PIECES = 16


class Echo:
    """Copies a log to a descriptor without ever blocking.

    Args:
        file: the log. It may not exist yet.
        descriptor: where the copy goes.
    """

    def __init__(self, file: str, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self._file = file
        self._offset = 0
        self._pending = b""
        self._is_broken = False

    @property
    def is_behind(self) -> bool:
        """Whether there is output that could not be written yet."""
        return bool(self._pending)

    def pump(self) -> None:
        """Write new output without blocking, and at most 1 MiB, because the supervisor has other work."""
        for _ in range(_MAX_PIECES):
            self._pending = self._pending or self._next()
            if not self._pending:
                return
            try:
                self._pending = self._pending[os.write(self.descriptor, self._pending) :]
            except BlockingIOError:
                return
            except OSError:
                self._is_broken = True  # the pipe has no reader any more
                self._pending = b""
        self._pending = self._pending or self._next()  # so that `is_behind` is True if output is left

    def _next(self) -> bytes:
        try:
            content = b"" if self._is_broken else safe_files.read(self._file, _PIECE_BYTES, self._offset)
        except OSError:
            return b""  # the log does not exist yet, or the workload has deleted it
        self._offset += len(content)
        return content
