"""A lock is valid only while its path names the locked file."""

from __future__ import annotations

import threading
from pathlib import Path

from toolbox.features.notebooks.worker.file_locks import FileLock


def test_shared_locks_exclude_an_exclusive_one(tmp_path: Path) -> None:
    first, second, third = (FileLock(tmp_path / "lock") for _ in range(3))
    assert first.acquire(exclusive=False)
    assert second.acquire(exclusive=False)
    assert not third.acquire(exclusive=True)
    first.release()
    second.release()
    assert third.acquire(exclusive=True)
    third.release()


def test_a_lock_of_a_removed_file_is_not_used(tmp_path: Path) -> None:
    holder, waiting = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    holder.acquire(exclusive=True)
    thread = threading.Thread(target=waiting.acquire, kwargs={"exclusive": True, "timeout": 60})
    thread.start()
    holder.remove()
    thread.join()
    assert (tmp_path / "lock").exists()
    assert not FileLock(tmp_path / "lock").acquire(exclusive=True)
    waiting.release()
