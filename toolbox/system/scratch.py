"""Private directories for what must not outlive a step: secrets on their way to a command.

They are in memory where the system has `/dev/shm`. What a killed process left is removed by the next one.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil

_PREFIX: Final = "topgallant-"
_IN_MEMORY: Final = Path("/dev/shm")  # noqa: S108  # the directory made in it is private


@contextmanager
def directory() -> Iterator[Path]:
    """Yield a new private directory, and remove it with all that is in it."""
    parent = _IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
    _remove_abandoned(parent)
    path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _remove_abandoned(parent: Path) -> None:
    for path in parent.glob(f"{_PREFIX}*-*"):
        owner = path.name.removeprefix(_PREFIX).split("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)) and path.stat().st_uid == os.getuid():
            shutil.rmtree(path, ignore_errors=True)
