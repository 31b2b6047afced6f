"""Reads the newest runs in the directory of artifacts, which code under test may have written, for reports of a job."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from toolbox.features.ci import comment_texts, earlier_runs, slash
from toolbox.features.ci.earlier_runs import EarlierRun
from toolbox.ground.model.errors import describe
from toolbox.ground.model.forge_data import NamedLine
from toolbox.ground.system import places
from toolbox.records.runs import layout, run_reader
from toolbox.records.runs.run_state import RunState
from toolbox.reports.forge import github, source_locations
from toolbox.reports.forge.source_locations import RepositoryFiles

log = logging.getLogger(__name__)

_MAX_SHOWN: Final = 6

T = TypeVar("T")


def newest() -> list[Path]:
    """Return the newest runs in the directory of artifacts, the oldest of them first."""
    return layout.runs(places.artifacts())[-slash.MAX_TESTS :]


def read(directories: Sequence[Path]) -> list[RunState]:
    """Return runs. Runs that cannot be read are left out."""
    states = [_tried(directory.name, partial(run_reader.read, directory)) for directory in directories]
    return [state for state in states if state is not None]


def markdown(runs: Sequence[RunState]) -> str:
    """Return the reports of runs as Markdown; empty if there is no run."""
    shown = sorted(runs, key=_has_passed)[:_MAX_SHOWN]
    limit = comment_texts.MAX_DETAILS // max(1, len(shown))
    texts = [_tried(run.run, partial(github.render, run, limit=limit)) for run in shown]
    more = [f"and {len(runs) - len(shown)} more runs: see the run of the workflow"] if len(runs) > len(shown) else []
    return "\n\n".join([*(text for text in texts if text is not None), *more])


def _has_passed(run: RunState) -> bool:
    return run.finished is not None and run.finished.verdict.is_pass


def named_lines(runs: Sequence[RunState], files: RepositoryFiles) -> list[NamedLine]:
    """Return the lines of the repository that the failures of runs name."""
    found = [_tried(run.run, partial(source_locations.find, run, files)) for run in runs]
    return source_locations.merged(lines for lines in found if lines is not None)


def unpassed(runs: Sequence[RunState]) -> list[EarlierRun] | None:
    """Return what did not pass in the runs; None if there is no run, or if the record of one is damaged."""
    try:
        earlier = [earlier_runs.of(run) for run in runs]
    except Exception as error:  # noqa: BLE001  # code under test may have written the run
        log.warning("/retest will not know what did not pass: %s", describe(error))
        return None
    return [run for run in earlier if run is not None] if runs else None


def _tried(run: str, function: Callable[[], T]) -> T | None:
    try:
        return function()
    except Exception as error:  # noqa: BLE001  # code under test may have written the run
        log.warning("there is no report of the run %s: %s", run, describe(error))
        return None
