"""Reads the newest runs in the directory of artifacts, which code under test may have written, for reports of a job."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from toolbox.model.errors import describe
from toolbox.reports.forge import github, source_locations
from toolbox.reports.forge.source_locations import NamedLine, RepositoryFiles
from toolbox.runs import layout, run_reader
from toolbox.runs.run_state import RunState
from toolbox.system import places

log = logging.getLogger(__name__)

_MOST_DETAILS: Final = 60_000  # bytes; an issue or a comment has at most 65,536 characters
_MOST_RUNS: Final = 6

T = TypeVar("T")


def read() -> list[RunState]:
    """Return the newest runs, the oldest of them first. Runs that cannot be read are left out."""
    directories = layout.runs(places.artifacts())[-_MOST_RUNS:]
    states = [_tried(directory.name, partial(run_reader.read, directory)) for directory in directories]
    return [state for state in states if state is not None]


def markdown(runs: Sequence[RunState]) -> str:
    """Return the reports of runs as Markdown; empty if there is no run."""
    limit = _MOST_DETAILS // max(1, len(runs))
    texts = [_tried(run.run, partial(github.render, run, limit=limit)) for run in runs]
    return "\n\n".join(text for text in texts if text is not None)


def named_lines(runs: Sequence[RunState], files: RepositoryFiles) -> list[NamedLine]:
    """Return the lines of the repository that the failures of runs name."""
    found = [_tried(run.run, partial(source_locations.find, run, files)) for run in runs]
    return source_locations.merged(lines for lines in found if lines is not None)


def _tried(run: str, function: Callable[[], T]) -> T | None:
    try:
        return function()
    except Exception as error:  # noqa: BLE001  # code under test may have written the run
        log.warning("there is no report of the run %s: %s", run, describe(error))
        return None
