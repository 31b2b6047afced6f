"""The only module that reads the environment variables of this process. No module changes them.

The variables of a child process are passed as a mapping (`toolbox.ground.system.processes`).
"""

from __future__ import annotations

import getpass
import os
import sys
from pathlib import Path
from typing import Final

from toolbox.ground.model.errors import UsageError

ARTIFACT_DIR: Final = "ARTIFACT_DIR"
CONFIG_FILE: Final = "TOPGALLANT_FROM_CONFIG_FILE"
COMMAND_ARGS_FILE: Final = "TOPGALLANT_FROM_COMMAND_ARGS_FILE"
RESULTS_DATABASE: Final = "TOPGALLANT_RESULTS_DATABASE"
RESULTS_BASELINE: Final = "TOPGALLANT_RESULTS_BASELINE"
"""If the variable has a value other than `true`, runs are not part of the baseline, whatever their configuration."""
NOTIFY: Final = "TOPGALLANT_NOTIFY"
"""`true` or `false`: whether runs notify people. Without the variable, only the runs of a CI system do."""
WORKSPACE: Final = "TOPGALLANT_WORKSPACE"


def get(name: str) -> str | None:
    """Return a variable; None if it is not set, or empty."""
    return os.environ.get(name) or None


def get_path(name: str) -> Path | None:
    """Return a variable as a path; None if the variable is not set, or empty."""
    value = get(name)
    return expanded(value) if value else None


def expanded(path: str | Path) -> Path:
    """Return a path with `~` and `~USER` replaced by the home directory.

    Raises:
        UsageError: the home directory is unknown.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise UsageError(f"{path}: the home directory is unknown: set $HOME, or write an absolute path") from None


def user_name() -> str | None:
    """Return the name of the user; None if the user id has no name, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None


def user() -> str:
    """Return the name of the user, or else the user id."""
    return user_name() or str(os.getuid())


def is_workflow() -> bool:
    """Return whether the CI system executes commands that it finds in logs: GitHub Actions or Azure Pipelines."""
    return get("GITHUB_ACTIONS") is not None or get("TF_BUILD") is not None


def program() -> str:
    """Return how users start this program: `./run_toolbox.py` in a checkout, `topgallant` if it is installed."""
    name = Path(sys.argv[0]).name
    return name if name == "topgallant" else "./run_toolbox.py"


def everything() -> dict[str, str]:
    """Return a copy of all variables, for a child process. They may contain secrets: don't write them to a file."""
    return dict(os.environ)


def remove(*names: str) -> None:
    """Remove variables, so that processes that are started later do not get them."""
    for name in names:
        os.environ.pop(name, None)


def state_directory() -> Path:
    """Return the directory for files of this user that outlive a run.

    As the XDG Base Directory Specification requires, a relative path in `$XDG_STATE_HOME` is ignored.

    Raises:
        UsageError: the user has no home directory.
    """
    configured = get_path("XDG_STATE_HOME")
    base = configured if configured is not None and configured.is_absolute() else home() / ".local" / "state"
    return base / "topgallant"


def home() -> Path:
    """Return the home directory of this user.

    Raises:
        UsageError: the user has no home directory.
    """
    try:
        directory = Path() if os.environ.get("HOME") == "" else Path.home()
    except RuntimeError:  # in many containers, $HOME is not set, and /etc/passwd does not contain the user
        directory = Path()
    if not directory.is_absolute():
        raise UsageError("this user has no home directory: set $HOME to a directory")
    return directory
