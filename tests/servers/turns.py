"""Turns at something that all processes of the tests share: many use it at once, or one has it alone, to break it.

Who wants it alone waits for those who use it, and whoever comes later waits behind the one who waits: nobody starves.
The system lets a lock go with the process that holds it, whatever ends that.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

_TIMEOUT: Final = 1800.0  # seconds: a module of tests may use it for long
_LOOK_SECONDS: Final = 0.05


class Turns:
    """The turns of this process.

    A process that uses it, by a fixture of a whole module, may have it alone in one test: its own use rests meanwhile.

    Args:
        name: the beginning of the names of two files, the same for all who share.
    """

    def __init__(self, name: Path) -> None:
        self._turnstile = Path(f"{name}.turnstile")
        self._room = Path(f"{name}.room")
        self._users = 0
        self._is_alone = False
        self._use: IO[bytes] | None = None

    @contextmanager
    def together(self) -> Iterator[None]:
        """Use it, at the same time as others may."""
        self._users += 1
        self._settle()
        try:
            yield
        finally:
            self._users -= 1
            self._settle()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Have it alone.

        Raises:
            RuntimeError: this process has it alone already.
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
        """Hold what is used, and let go what is not."""
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
        TimeoutError: somebody has held it for half an hour.
    """
    stream = file.open("ab")
    deadline = time.monotonic() + _TIMEOUT
    while True:
        try:
            fcntl.flock(stream, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                stream.close()
                raise TimeoutError(f"{file} is locked for {_TIMEOUT:g} s: `lslocks` says by whom") from None
            time.sleep(_LOOK_SECONDS)
        except BaseException:
            stream.close()
            raise
        else:
            return stream
