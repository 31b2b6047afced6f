"""The only module that reads the environment variables of this process. No module changes them.

A child process gets its variables as a mapping of its own (`toolbox.system.processes`).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from toolbox.model.errors import UsageError

ARTIFACT_DIR: Final = "ARTIFACT_DIR"
CONFIG_FILE: Final = "TOPGALLANT_FROM_CONFIG_FILE"
COMMAND_ARGS_FILE: Final = "TOPGALLANT_FROM_COMMAND_ARGS_FILE"
RESULTS_DATABASE: Final = "TOPGALLANT_RESULTS_DATABASE"
WORKSPACE: Final = "TOPGALLANT_WORKSPACE"


def get(name: str) -> str | None:
    """Return a variable; None if it is not set, or empty."""
    return os.environ.get(name) or None


def get_path(name: str) -> Path | None:
    """Return a variable that names a file or a directory; None if it is not set."""
    value = get(name)
    return expanded(value) if value else None


def expanded(path: str | Path) -> Path:
    """Return a path with `~` and `~USER` replaced by a home directory.

    Raises:
        UsageError: the home directory is unknown.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise UsageError(f"{path}: there is no such home directory: set $HOME, or write the whole path") from None


def is_workflow() -> bool:
    """Return whether a CI system executes commands in our output: GitHub Actions or Azure Pipelines."""
    return get("GITHUB_ACTIONS") is not None or get("TF_BUILD") is not None


def program() -> str:
    """Return the name of this command line: `./run_toolbox.py` in a checkout, `topgallant` where it is installed."""
    name = Path(sys.argv[0]).name
    return name if name == "topgallant" else "./run_toolbox.py"


def everything() -> dict[str, str]:
    """Return a copy of all variables, for a child process. Don't write it to a file."""
    return dict(os.environ)


def state_directory() -> Path:
    """Return the directory for files of this user that outlive a run.

    As the XDG Base Directory Specification requires, a relative path in `$XDG_STATE_HOME` is ignored.

    Raises:
        UsageError: the user has no home directory.
    """
    named = get_path("XDG_STATE_HOME")
    base = named if named is not None and named.is_absolute() else home() / ".local" / "state"
    return base / "topgallant"


def home() -> Path:
    """Return the home directory of this user.

    Raises:
        UsageError: the user has no home directory.
    """
    try:
        found = Path() if os.environ.get("HOME") == "" else Path.home()
    except RuntimeError:  # $HOME is not set, and the system does not know this user, as in many containers
        found = Path()
    if not found.is_absolute():
        raise UsageError("this user has no home directory: set $HOME to a directory")
    return found
