"""Locks in files, which the system releases when the process that holds them ends."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

_RETRY_SECONDS: Final = 0.1


class FileLock:
    """A lock in a file that may be removed by `remove`.

    A process that waits for a lock while the file is removed would get a lock that no other process sees. So a lock is
    only valid if the path still names the locked file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.file = -1

    def acquire(self, *, exclusive: bool, timeout: float = 0.0) -> bool:
        """Acquire the lock, shared or exclusive, and return whether it was acquired. It must not be held yet.

        Args:
            timeout: for how many seconds to wait for other holders of the lock.
        """
        deadline = time.monotonic() + timeout
        while not self._try(fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(left, _RETRY_SECONDS))  # flock has no timeout
        return True

    def _try(self, mode: int) -> bool:
        """Acquire the lock if no other process holds it, and return whether it was acquired."""
        while True:
            self.file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(self.file, mode | fcntl.LOCK_NB)
            except BlockingIOError:
                self.release()
                return False
            except BaseException:
                self.release()
                raise
            if self._is_current():
                return True
            self.release()

    def remove(self) -> None:
        """Remove the file of an exclusive lock, and release the lock."""
        self._path.unlink(missing_ok=True)
        self.release()

    def release(self) -> None:
        """Release the lock, if it is held."""
        if self.file >= 0:
            os.close(self.file)
            self.file = -1

    def _is_current(self) -> bool:
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(self.file), self._path.stat())
        return False
