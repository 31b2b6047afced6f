"""Writes all reports of a run into its directory: built-in ones, and those of the workspace and installed packages.

A report is a module with a function `write(summary)`, which writes what it wants into `summary.directory`:
`reports/totals.py` in the workspace is the report `totals`. See `toolbox.system.extensions`.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final, Protocol

from toolbox.model.errors import describe
from toolbox.reports import junit, run_page
from toolbox.runs.summary import RunSummary
from toolbox.system import extensions
from toolbox.system.extensions import Extension

log = logging.getLogger(__name__)

_KIND: Final = "reports"


class Write(Protocol):
    """The function `write` of a report."""

    def __call__(self, summary: RunSummary, /) -> object:
        """Write the report of a run that has ended; return the path of the file, to have it shown."""


def write_all(summary: RunSummary) -> list[str]:
    """Write all reports of a run, and return their paths. The verdict of the run does not depend on any of them."""
    ours: dict[str, Write] = {junit.FILE: junit.write, run_page.FILE: run_page.write}
    found = [_write(summary, name, write) for name, write in ours.items()]
    for name, extension in sorted(extensions.of_others(_KIND).items()):
        path = _write(summary, f"the report `{name}`", partial(_imported, extension))
        if path is not None:
            log.info("the report `%s` is %s", name, path)
        found.append(path)
    return [path for path in found if path is not None]


def _imported(extension: Extension, summary: RunSummary) -> object:
    write = extension.attribute("write")
    if not callable(write):
        raise ValueError(f"{extension.origin}: `write` is not a function")  # noqa: TRY004  # as its other faults
    return write(summary)


def _write(summary: RunSummary, name: str, write: Write) -> str | None:
    try:
        path = write(summary)
    except (Exception, SystemExit) as error:  # noqa: BLE001  # whatever a run has left behind, or a report does
        log.warning("%s of this run could not be written: %s", name, describe(error))
        return None
    return str(path) if path is not None else None
