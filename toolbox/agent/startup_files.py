"""Detects changes of the files that a shell or the SSH server reads at the beginning of each session.

If a workload changes one of them, the later sessions of the same user may execute other programs, or fail.
"""

from __future__ import annotations

import hashlib
import os
from typing import Dict

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


def digests() -> Dict[str, str]:
    """Return the digests of the startup files in the home directory, by names such as `~/.bashrc`."""
    paths = [f"~/{name}" for name in _NAMES]
    return {path: _digest(os.path.realpath(os.path.expanduser(path))) for path in paths}


def changed_since(earlier: Dict[str, str]) -> str:
    """Return the names of the startup files that differ from earlier digests, separated by commas."""
    return ", ".join(path for path, digest in digests().items() if digest != earlier[path])


def _digest(path: str) -> str:
    try:
        return hashlib.sha256(safe_files.read(path, _MOST_BYTES)).hexdigest()
    except FileNotFoundError:
        return ""
    except OSError:
        return "unreadable"
