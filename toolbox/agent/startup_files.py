"""Detects changes of the files that a shell or the SSH server reads at the beginning of each session.

If a workload changes one of them, the later sessions of the same user may execute other programs, or fail.
"""

from __future__ import annotations

import hashlib
import os
import time
from typing import Dict, Tuple

from toolbox.agent import safe_files

_NAMES = (
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".profile",
    ".zshenv",
    ".pam_environment",
    ".ssh/environment",
    ".ssh/rc",
)
_MOST_BYTES = 1 << 20
# A file that has changed in this time may change again without another time of change.
_RECENT_SECONDS = 2.0
# The digest of each file, with the device, the inode, the size and the time of change for which it is valid.
_known: Dict[str, Tuple[Tuple[int, ...], str]] = {}


def digests() -> Dict[str, str]:
    """Return the digests of the startup files in the home directory, by names such as `~/.bashrc`."""
    home = os.path.expanduser("~")
    return {f"~/{name}": _digest(os.path.join(home, name)) for name in _NAMES}


def changed_since(earlier: Dict[str, str]) -> str:
    """Return the names of the startup files that differ from earlier digests, separated by commas."""
    return ", ".join(path for path, digest in digests().items() if digest != earlier[path])


def _digest(path: str) -> str:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return ""
    except OSError:
        return "unreadable"
    version = (status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns)
    if path in _known and _known[path][0] == version:
        return _known[path][1]
    digest = _read(path)
    if time.time() - status.st_ctime > _RECENT_SECONDS:
        _known[path] = (version, digest)
    return digest


def _read(path: str) -> str:
    try:
        return hashlib.sha256(safe_files.read(os.path.realpath(path), _MOST_BYTES)).hexdigest()
    except FileNotFoundError:
        return ""
    except OSError:
        return "unreadable"
