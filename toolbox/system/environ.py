"""The only module that reads the environment variables of this process. Nothing writes them.

A child process gets its variables in its own mapping (`toolbox.system.processes`), never through ours.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

ARTIFACT_DIR: Final = "ARTIFACT_DIR"
CONFIG_FILE: Final = "TOPGALLANT_FROM_CONFIG_FILE"
COMMAND_ARGS_FILE: Final = "TOPGALLANT_FROM_COMMAND_ARGS_FILE"
RESULTS_DATABASE: Final = "TOPGALLANT_RESULTS_DATABASE"


def get(name: str) -> str | None:
    """Return a variable, or None when it is not set or empty."""
    return os.environ.get(name) or None


def get_path(name: str) -> Path | None:
    """Return a variable that names a file or a directory, or None."""
    value = get(name)
    return Path(value).expanduser() if value else None


def program() -> str:
    """Return how this command line was called: `./run_toolbox.py` in a checkout, `topgallant` where installed."""
    name = Path(sys.argv[0]).name
    return name if name == "topgallant" else "./run_toolbox.py"


def everything() -> dict[str, str]:
    """Return a copy of all variables, for a child process. It never goes into a file."""
    return dict(os.environ)


def state_directory() -> Path:
    """Return where this program keeps what outlives its runs, for this user (XDG Base Directory Specification)."""
    base = get_path("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return base / "topgallant"
