"""Detects changes of the files that shells, the SSH server and Python read at their start.

If a workload changes one of them, the later sessions of the same user may execute other programs, or fail, and a new
interpreter may import other packages.
"""

from __future__ import annotations

import glob
import hashlib
import os
import site
import sys
import time
from typing import Dict, Optional, Tuple

from toolbox.ground.kit import safe_files

_NAMES = (
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".profile",
    ".zshenv",
    ".kshrc",
    ".cshrc",
    ".tcshrc",
    ".config/fish/config.fish",
    ".pam_environment",
    ".ssh/environment",
    ".ssh/rc",
)
_MAX_BYTES = 1 << 20
# A file that has changed in this time may change again without another time of change.
_RECENT_SECONDS = 2.0
Version = Optional[Tuple[int, ...]]
"""The device, the inode, the size and the time of change of a file; None if it cannot be found."""
# The digest of each file, with the version for which it is valid.
_known: Dict[str, Tuple[Version, str]] = {}


def digests() -> Dict[str, str]:
    """Return the digests of the startup files in the home directory, by names such as `~/.bashrc`."""
    home = os.path.expanduser("~")
    return {f"~/{name}": _digest(os.path.join(home, name)) for name in _NAMES}


def changed_since(earlier: Dict[str, str]) -> str:
    """Return the names of the startup files that differ from earlier digests, separated by commas."""
    return ", ".join(path for path, digest in digests().items() if digest != earlier[path])


class Interpreter:
    """What Python reads at its start to find packages: the versions of files, and which folders exist."""

    def __init__(self) -> None:
        self._versions = self._read()

    def has_changed(self) -> bool:
        """Return whether a new interpreter may find other packages than this one."""
        return self._read() != self._versions

    @staticmethod
    def _read() -> Dict[str, object]:
        # An old virtualenv has no function `getsitepackages`.
        folders = [*getattr(site, "getsitepackages", list)(), site.getusersitepackages()]
        paths = [sys.executable, os.path.join(sys.prefix, "pyvenv.cfg")]
        for folder in folders:
            paths += glob.glob(os.path.join(glob.escape(folder), "*.pth"))
        for folder in filter(None, sys.path):
            paths += [os.path.join(folder, name) for name in ("sitecustomize.py", "usercustomize.py")]
        # Python does not look for a folder again that was missing once.
        exist = {folder: os.path.isdir(folder) for folder in (*folders, *filter(None, sys.path))}
        return {**exist, **{path: version(path) for path in paths}}


def version(path: str) -> Version:
    """Return the version of a file."""
    try:
        return _version(os.stat(path))
    except OSError:
        return None


def _version(status: os.stat_result) -> Version:
    return status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns


def _digest(path: str) -> str:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return ""
    except OSError:
        return "unreadable"
    found = _version(status)
    if path in _known and _known[path][0] == found:
        return _known[path][1]
    digest = _read(path)
    if time.time() - status.st_ctime > _RECENT_SECONDS:
        _known[path] = (found, digest)
    return digest


def _read(path: str) -> str:
    try:
        return hashlib.sha256(safe_files.read(os.path.realpath(path), _MAX_BYTES)).hexdigest()
    except FileNotFoundError:
        return ""
    except OSError:
        return "unreadable"
