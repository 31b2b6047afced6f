"""Reports: how a run is shown, one package per product. What is shown comes from the events or the journal.

The modules of this folder without an underscore are the reports that every run has in its directory, found as those of
a workspace are: each has a function `write`, see `toolbox.extensions.protocols.Report`.
"""

from __future__ import annotations

import logging

from toolbox.extensions import discovery, loading
from toolbox.extensions.discovery import Extension
from toolbox.extensions.protocols import REPORTS
from toolbox.model.errors import describe
from toolbox.runs.run_state import RunState

log = logging.getLogger(__name__)


def write_all(summary: RunState) -> list[str]:
    """Write all reports of a run, and return their paths. The verdict of the run does not depend on any of them."""
    paths = [_write(summary, extension) for extension in discovery.available(REPORTS.folder).values()]
    return [path for path in paths if path is not None]


def _write(summary: RunState, extension: Extension) -> str | None:
    try:
        path = loading.function(REPORTS, extension)(summary)
    except (Exception, SystemExit) as error:  # noqa: BLE001  # whatever a run has left behind, or a report does
        log.warning("the report `%s` of this run could not be written: %s", extension.name, describe(error))
        return None
    if path is not None and not extension.is_builtin:
        log.info("the report `%s` is %s", extension.name, path)
    return str(path) if path is not None else None
