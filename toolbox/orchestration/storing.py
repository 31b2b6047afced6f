"""Copies the results of a finished run into the store, and compares the run with earlier runs there.

An error of the store never changes the verdict of the run.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from toolbox.config.configuration import Configuration
from toolbox.config.contracts.results import Contract as Results
from toolbox.ground.model.errors import describe
from toolbox.ground.model.secrets import Secret
from toolbox.ground.system import environ, extras, modules
from toolbox.matrix import plan
from toolbox.records.runs.layout import RunDirectory
from toolbox.records.runs.run_state import RunState

if TYPE_CHECKING:
    from toolbox.records.results.store import Store

BLOCK: Final = "results"

log = logging.getLogger(__name__)


def verify(configuration: Configuration) -> None:
    """Check before a run that the library for the database of the store is installed.

    Raises:
        ConfigurationError: the library is not installed.
    """
    block = configuration.block(BLOCK, Results)
    database = block.database.reveal() if isinstance(block.database, Secret) else block.database
    url = str(database) if database is not None else environ.get(environ.RESULTS_DATABASE) or ""
    scheme, is_url, _ = url.partition("://")
    if block.record and is_url and scheme.startswith("postgres"):
        extras.require(extras.POSTGRES, "the database of `results`")


def default_location() -> str:
    """Return the location of the store that the environment names; a file in the user's state directory if none."""
    return environ.get(environ.RESULTS_DATABASE) or str(environ.state_directory() / "results.sqlite")


def location(configuration: Configuration) -> str:
    """Return the file or the database URL of the store of a project."""
    database = configuration.block(BLOCK, Results).database
    if database is None:
        return default_location()
    text = database.reveal() if isinstance(database, Secret) else str(database)
    if "://" in text:
        return text
    # Relative paths in a configuration are relative to the directory that contains `config/`.
    return str(configuration.root / environ.expanded(text))


def is_baseline(configuration: Configuration, *, is_from_outside: bool) -> bool:
    """Return whether a run is part of the baseline: false if a comment requested it, or if it tests another branch."""
    is_main_branch = environ.get(environ.RESULTS_BASELINE) in {None, "true"}
    return configuration.block(BLOCK, Results).baseline and is_main_branch and not is_from_outside


def flaky_cells(configuration: Configuration, project: str) -> set[str]:
    """Return the ids of the cells that are flaky according to earlier runs; an empty set if the store is unusable."""
    if not configuration.block(BLOCK, Results).record:
        return set()
    try:
        with modules.gc_frozen_imports():
            from toolbox.records.results import queries
            from toolbox.records.results.store import Store

        with Store(location(configuration), may_create=False) as store, store.reading() as connection:
            return queries.flaky_cells(connection, project, datetime.now(UTC))
    except Exception as error:  # noqa: BLE001  # the answer only decides which failure the run names first
        log.debug("the store cannot tell which cells are flaky: %s", describe(error))
        return set()


def record(configuration: Configuration, run: RunState) -> None:
    """Copy the results of a finished run into the store, unless its configuration has `results.record: false`.

    This process must have the lock of the run.
    """
    directory = run.directory
    is_recorded = configuration.block(BLOCK, Results).record
    try:
        # An earlier session of the run may have written the file for its own results.
        _write(directory, "the store cannot be used" if is_recorded else "it is not recorded (`results.record: false`)")
        if not is_recorded:
            return
        # These modules are slow to import, and most commands do not need them.
        with modules.gc_frozen_imports():
            from toolbox.records.results import recording
            from toolbox.records.results.store import Store

        with Store(location(configuration)) as store:
            recorded = recording.record(store, directory, run=run, is_reusable=True)
            _compare(store, recorded.row, directory)
    except Exception as error:  # noqa: BLE001  # an error here must not change the verdict of the run
        hint = f"record it later with `{environ.program()} results import {directory}`"
        log.warning("the run is not in the store: %s; %s", describe(error), hint)


def _compare(store: Store, row: int, directory: Path) -> None:
    """Write how the results of a run differ from those of the run before it into the directory of the run.

    Args:
        row: the id of the row of the run in the store.
    """
    from toolbox.records.results import run_comparison, since_last_run

    try:
        bounds = plan.frozen_bounds(directory)
        with store.reading() as connection:
            comparison = run_comparison.of(connection, row, _planned_cells(directory), bounds)
        since_last_run.write(directory, comparison)
    except Exception as error:  # noqa: BLE001  # an error here must not change the verdict of the run
        log.warning("the run is not compared with earlier runs: %s", describe(error))


def _write(directory: Path, reason: str) -> None:
    """Write why a run is not compared into its directory; nothing if the run has no matrix."""
    from toolbox.records.results import since_last_run

    has_matrix = bool(RunDirectory(directory).read_plan())
    since_last_run.write(directory, since_last_run.NotCompared(reason) if has_matrix else None)


def _planned_cells(directory: Path) -> set[str] | None:
    """Return the ids of all cells of the matrix of a run; None if the run selected some of them."""
    request, planned = RunDirectory(directory).read_request(), RunDirectory(directory).read_plan()
    if not planned or request.get("cells") is not None or request.get("shard") is not None:
        return None
    return {str(cell["id"]) for cell in planned["cells"]}
