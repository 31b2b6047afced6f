"""Records a run in the store when it has ended. Whatever is wrong with the store, the run is not lost by it."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from toolbox.config.configuration import Configuration
from toolbox.config.contracts.results import Contract as Results
from toolbox.model.errors import describe
from toolbox.model.secrets import Secret
from toolbox.system import environ, extras, modules

BLOCK: Final = "results"

log = logging.getLogger(__name__)


def verify(configuration: Configuration) -> None:
    """See that a run can be recorded here, before it begins.

    Raises:
        ConfigurationError: the library of its database is not installed.
    """
    wanted = configuration.block(BLOCK, Results)
    named = wanted.database.reveal() if isinstance(wanted.database, Secret) else wanted.database
    scheme, is_url, _ = (str(named) if named is not None else environ.get(environ.RESULTS_DATABASE) or "").partition(
        "://"
    )
    if wanted.record and is_url and scheme.startswith("postgres"):
        extras.require("postgres", "the database of `results`")


def location(configuration: Configuration) -> str:
    """Return where the store of a project is."""
    from toolbox.results import store

    named = configuration.block(BLOCK, Results).database
    if named is None:
        return store.default_location()
    text = named.reveal() if isinstance(named, Secret) else str(named)
    if "://" in text:
        return text
    # As every local path of a configuration, from the directory that holds `config/`.
    return str(configuration.root / environ.expanded(text))


def flaky_cells(configuration: Configuration, project: str) -> set[str]:
    """Return the ids of the cells that earlier runs show to be flaky; an empty set where the store cannot tell."""
    if not configuration.block(BLOCK, Results).record:
        return set()
    try:
        from toolbox.results import queries
        from toolbox.results.store import Store

        with Store(location(configuration), is_new=False) as store, store.reading() as connection:
            return queries.flaky_cells(connection, project, datetime.now(UTC))
    except Exception as error:  # noqa: BLE001  # it only decides which failure is named first
        log.debug("the store cannot be asked which cells are flaky: %s", describe(error))
        return set()


def record(configuration: Configuration, directory: Path) -> None:
    """Record a run that has ended, if its project wants that."""
    if not configuration.block(BLOCK, Results).record:
        return
    try:
        # They are slow to import, and most commands have no use for them.
        with modules.gc_frozen_imports():
            from toolbox.results import recording
            from toolbox.results.store import Store

        with Store(location(configuration)) as store:
            recording.record(store, directory)
    except Exception as error:  # noqa: BLE001  # a run that has ended is not undone by its record
        again = f"`{environ.program()} results import {directory}` records it later"
        log.warning("the run is not in the store: %s; %s", describe(error), again)
