"""A lock on a resource that all test processes share: many use it together, or one uses it alone, to break it.

A process that wants the resource alone waits for its present users. Later processes wait behind that process, so that
none starves. The system releases the lock of a process that ends in any way.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

_TIMEOUT: Final = 1800.0  # seconds; a module of tests may use the resource for a long time
_LOOK_SECONDS: Final = 0.05


class Turns:
    """The use of the resource by this process.

    A process that shares the resource, by a fixture of a module, may use it alone in one test. Meanwhile it gives up
    its shared use.

    Args:
        name: path prefix of the two lock files, the same in all processes.
    """

    def __init__(self, name: Path) -> None:
        self._turnstile = Path(f"{name}.turnstile")
        self._room = Path(f"{name}.room")
        self._users = 0
        self._is_alone = False
        self._use: IO[bytes] | None = None

    @contextmanager
    def together(self) -> Iterator[None]:
        """Use the resource together with other processes."""
        self._users += 1
        self._settle()
        try:
            yield
        finally:
            self._users -= 1
            self._settle()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Use the resource alone.

        Raises:
            RuntimeError: this process already uses the resource alone.
        """
        if self._is_alone:
            raise RuntimeError(f"{self._room}: this process has it alone already")
        self._is_alone = True
        self._settle()
        try:
            with _lock(self._turnstile, fcntl.LOCK_EX), _lock(self._room, fcntl.LOCK_EX):
                yield
        finally:
            self._is_alone = False
            self._settle()

    def _settle(self) -> None:
        """Acquire or release the shared lock, by the current use."""
        is_wanted = self._users > 0 and not self._is_alone
        if is_wanted and self._use is None:
            with _lock(self._turnstile, fcntl.LOCK_EX):
                self._use = _lock(self._room, fcntl.LOCK_SH)
        elif not is_wanted and self._use is not None:
            self._use.close()
            self._use = None


def _lock(file: Path, kind: int) -> IO[bytes]:
    """Return a file that is locked until it is closed.

    Raises:
        TimeoutError: another process has held the lock for half an hour.
    """
    stream = file.open("ab")
    deadline = time.monotonic() + _TIMEOUT
    while True:
        try:
            fcntl.flock(stream, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                stream.close()
                raise TimeoutError(f"{file} is locked for {_TIMEOUT:g} s: `lslocks` shows the process") from None
            time.sleep(_LOOK_SECONDS)
        except BaseException:
            stream.close()
            raise
        else:
            return stream
