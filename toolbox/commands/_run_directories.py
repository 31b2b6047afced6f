"""Finds the directories of runs for commands of several groups."""

from __future__ import annotations

from pathlib import Path

from toolbox.model.errors import UsageError
from toolbox.runs import layout
from toolbox.system import places


def newest() -> Path:
    """Return the directory of the newest run in the directory of artifacts.

    Raises:
        UsageError: there is no run.
    """
    base = places.artifacts()
    runs = layout.runs(base)
    if not runs:
        raise UsageError(f"{base} has no runs: give the directory of a run")
    return runs[-1]
