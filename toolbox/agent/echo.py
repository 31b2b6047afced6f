"""Says again on one stream what the logs of a workload hold: in a container that is how they get out while it runs.

It reads what was written, so that nothing is held in memory, and a reader that is away keeps nobody waiting.
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

_PIECE_BYTES = 1 << 16
_MOST_PIECES = 16
_LOOK_SECONDS = 0.005
_QUICK_SECONDS = 0.1  # in which a reader that is not behind has read what there is
_BEYOND_BYTES = 96 << 10  # that may be between our pipe and the log: a buffer of the shim's, and its pipe to containerd
_LEAST_BYTES = 4 << 10  # less says nothing about how fast a reader is
_GRANTED_SECONDS = 1.0  # of what a runtime grants, the half
_LONGEST_SECONDS = 10.0  # for the pipe, and for what is beyond it


class Echo:
    """The logs in a directory, on a descriptor that never blocks.

    Args:
        streams: the names of the logs, without their ending.
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
        """Whether there is something that could not be written yet."""
        return bool(self._pending)

    def pump(self) -> None:
        """Say what is new, as much as is taken now, and no more than the supervisor has time for."""
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
                self._is_broken = True  # nobody will ever read it
                self._pending = b""
        self._pending = self._pending or self._next()  # so that it is known to be behind

    def settle(self) -> None:
        """Wait until what was said is likely to be in the log of the container, whose reader we cannot see.

        A container runtime that is behind drops what it has not read some time after the end of the container: two
        seconds with containerd (`Init.delete` in the shim of runc). How long the rest takes that has left our pipe is
        judged by how fast that became empty.
        """
        began, said, taken = time.monotonic(), _unread(self.descriptor), 0.0
        while _unread(self.descriptor) and not _is_deserted(self.descriptor) and taken < _LONGEST_SECONDS:
            time.sleep(_LOOK_SECONDS)
            taken = time.monotonic() - began
        if _QUICK_SECONDS < taken < _LONGEST_SECONDS:
            rest = taken * _BEYOND_BYTES / max(said, _LEAST_BYTES) - _GRANTED_SECONDS
            time.sleep(max(0.0, min(rest, _LONGEST_SECONDS)))

    def _next(self) -> bytes:
        said = b""
        for stream, offset in self.offsets.items():
            try:
                content = safe_files.read(os.path.join(self._directory, f"{stream}.log"), _PIECE_BYTES, offset)
            except OSError:
                continue  # not begun, or the workload has deleted it
            if content:
                said += frames.encode(stream, offset, content)
                self.offsets[stream] = offset + len(content)
        return said


def _is_deserted(descriptor: int) -> bool:
    """Tell whether nobody can read a pipe any more."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return bool(poll.poll(0))


def _unread(descriptor: int) -> int:
    """Return how many bytes of a pipe nobody has read; none of what is no pipe."""
    try:
        (count,) = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))
    except OSError:
        return 0
    return int(count)
