"""Says again on one stream what the logs of a workload hold: in a container that is how they get out while it runs.

It reads what was written, so that nothing is held in memory, and a reader that is away keeps nobody waiting.
"""

from __future__ import annotations

import os
from typing import Dict, Sequence

from toolbox.agent import frames

_PIECE_BYTES = 1 << 16
_MOST_PIECES = 16


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

    def _next(self) -> bytes:
        said = b""
        for stream, offset in self.offsets.items():
            try:
                with open(os.path.join(self._directory, f"{stream}.log"), "rb") as file:
                    file.seek(offset)
                    content = file.read(_PIECE_BYTES)
            except OSError:
                continue  # not begun, or the workload has deleted it
            if content:
                said += frames.encode(stream, offset, content)
                self.offsets[stream] = offset + len(content)
        return said
