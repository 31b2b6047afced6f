"""Records, after each system call that changes or syncs files, all files below a directory.

This module is also injected into the agent, so it imports only the standard library and installs nothing by itself.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Functions of `os` that change names or contents, or sync them. Writes to pipes are not recorded.
_CALLS = ("fsync", "write", "pwrite", "ftruncate", "replace", "rename", "link", "unlink", "mkdir", "rmdir")
Node = tuple[int, "bytes | None"]  # inode number and content; the content of a directory is None


def install(root: str, log: str, outside: str) -> Callable[[], None]:
    """Record what this process does below `root`, and return the function that stops the recording.

    Args:
        log: file for the records, which several processes share.
        outside: file that no power cut affects, to which workloads write their effects.
    """
    real: dict[str, Any] = {name: getattr(os, name) for name in _CALLS}

    def recorded(name: str) -> Callable[..., Any]:
        def call(*args: Any, **keywords: Any) -> Any:
            is_write = name in ("write", "pwrite", "ftruncate")
            if is_write and not stat.S_ISREG(os.fstat(args[0]).st_mode):
                return real[name](*args, **keywords)
            with Path(f"{log}.lock").open("ab") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                result = real[name](*args, **keywords)
                synced = os.fstat(args[0]).st_ino if name == "fsync" else 0
                with Path(log).open("ab") as stream:
                    pickle.dump((name, synced, _tree(Path(root)), _content(Path(outside))), stream)
            return result

        return call

    for name in _CALLS:
        setattr(os, name, recorded(name))

    def remove() -> None:
        for name, function in real.items():
            setattr(os, name, function)

    return remove


def _tree(root: Path) -> dict[str, Node]:
    found: dict[str, Node] = {"": (root.stat().st_ino, None)}
    for folder, folders, names in os.walk(root):
        for name in folders + names:
            path = Path(folder, name)
            content = None if name in folders else _content(path)
            try:
                found[str(path.relative_to(root))] = (path.lstat().st_ino, content)
            except OSError:
                continue  # the file has been deleted meanwhile
    return found


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
