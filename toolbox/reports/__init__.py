"""Shows runs: one package per form of output. All reports are made from the events or the journal of a run.

Each module of this folder whose name has no underscore writes one report into the directory of every run. A workspace
can add such modules.
"""

from __future__ import annotations

import logging
from typing import Final, Protocol

from toolbox.ground.extensions import discovery, loading
from toolbox.ground.extensions.discovery import Extension
from toolbox.ground.extensions.protocols import Kind
from toolbox.ground.model.errors import describe
from toolbox.records.runs.run_state import RunState

log = logging.getLogger(__name__)


class Report(Protocol):
    """Writes a report into the directory of a run: the function `write` of a module in `reports/`."""

    def __call__(self, summary: RunState, /) -> object:
        """Write the report of an ended run, and return the path to show to the user; None to show no path."""


REPORTS: Final[Kind[Report]] = Kind("reports", "write", Report)


def write_all(summary: RunState) -> list[str]:
    """Write all reports of a run, and return their paths. A report that fails does not change the verdict."""
    paths = [_write(summary, extension) for extension in discovery.available(REPORTS.folder).values()]
    return [path for path in paths if path is not None]


def _write(summary: RunState, extension: Extension) -> str | None:
    try:
        path = loading.function(REPORTS, extension)(summary)
    except (Exception, SystemExit) as error:  # noqa: BLE001  # the report may come from a workspace
        log.warning("the report `%s` of this run could not be written: %s", extension.name, describe(error))
        return None
    if path is not None and not extension.is_builtin:
        log.info("the report `%s` is %s", extension.name, path)
    return str(path) if path is not None else None
