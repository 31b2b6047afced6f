"""Copies the logs of a workload to one stream, the output of its container, while the workload runs.

The copy is read from the log files: no output is kept in memory, and a slow reader does not block the workload.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import termios
import time
from typing import Dict, Sequence

from toolbox.agent import frames, safe_files
from toolbox.agent.log_files import log_name

_PIECE_BYTES = 1 << 16
_MOST_PIECES = 16
_LOOK_SECONDS = 0.005
_QUICK_SECONDS = 0.1  # the time in which a reader that keeps up empties the pipe
_BEYOND_BYTES = 96 << 10  # bytes between our pipe and the container's log: the shim's buffer and its pipe to containerd
_LEAST_BYTES = 4 << 10  # fewer bytes do not show how fast a reader is
_GRANTED_SECONDS = 1.0  # half of the time that a container runtime grants for reading the rest of the output
_LONGEST_SECONDS = 10.0  # how long to wait at most for the pipe, and again for the buffers beyond it


class Echo:
    """Copies the logs in a directory to a descriptor without ever blocking.

    Args:
        streams: the names of the logs, without `.log`.
    """

    def __init__(self, directory: str, streams: Sequence[str], descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self.offsets: Dict[str, int] = dict.fromkeys(streams, 0)
        self._directory = directory
        self._pending = b""
        self._is_broken = False

    @property
    def is_behind(self) -> bool:
        """Whether there is output that could not be written yet."""
        return bool(self._pending)

    def pump(self) -> None:
        """Write new output without blocking, and at most 1 MiB, because the supervisor has other work."""
        for _ in range(_MOST_PIECES):
            if self._is_broken:
                return
            if not self._pending:
                self._pending = self._next()
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

    def settle(self) -> None:
        """Wait until the output has probably reached the container's log. That log is not visible from here.

        When a container has ended, its runtime soon drops the output that it has not read. containerd does so after two
        seconds (`Init.delete` in the shim of runc). The time in which our pipe empties shows how long the buffers
        beyond the pipe will need.
        """
        began, said, taken = time.monotonic(), _unread(self.descriptor), 0.0
        while _unread(self.descriptor) and not _has_no_reader(self.descriptor) and taken < _LONGEST_SECONDS:
            time.sleep(_LOOK_SECONDS)
            taken = time.monotonic() - began
        if _QUICK_SECONDS < taken < _LONGEST_SECONDS:
            rest = taken * _BEYOND_BYTES / max(said, _LEAST_BYTES) - _GRANTED_SECONDS
            time.sleep(max(0.0, min(rest, _LONGEST_SECONDS)))

    def _next(self) -> bytes:
        said = b""
        for stream, offset in self.offsets.items():
            try:
                content = safe_files.read(os.path.join(self._directory, log_name(stream)), _PIECE_BYTES, offset)
            except OSError:
                continue  # the log does not exist yet, or the workload has deleted it
            if content:
                said += frames.encode(stream, offset, content)
                self.offsets[stream] = offset + len(content)
        return said


def _has_no_reader(descriptor: int) -> bool:
    """Return whether no process can read from a pipe any more."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return bool(poll.poll(0))


def _unread(descriptor: int) -> int:
    """Return how many unread bytes a pipe holds; 0 if the descriptor is not a pipe."""
    try:
        (count,) = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))
    except OSError:
        return 0
    return int(count)
