"""Runs a project for `project run`, `project resume` and `ci run`: with a view, and a table at the end."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from toolbox.model.errors import describe
from toolbox.reports import html, junit, terminal
from toolbox.runs.recorder import Listener
from toolbox.runs.summary import RunSummary
from toolbox.system import redaction
from toolbox.system.redaction import Redactor

log = logging.getLogger(__name__)

Execute = Callable[[Sequence[Listener], Redactor], tuple[RunSummary, int]]


def shown(execute: Execute, *, as_json: bool) -> int:
    """Run a project, or go on with a run of it, show that, and return its exit code.

    Args:
        as_json: print the summary as JSON on stdout, and show the run on stderr.
    """
    stream = sys.stderr if as_json else sys.stdout
    with terminal.view(stream) as view:
        summary, exit_code = execute([view.show], redaction.current())
    _write(summary, junit.FILE, junit.write)
    _write(summary, html.FILE, html.write)
    view.line("")
    view.table(summary)
    if as_json:
        # A reader that has gone away does not change how the run ended.
        with contextlib.suppress(BrokenPipeError):
            # The journal, from which it comes, holds no secret; a name in it may be the same word as one.
            print(json.dumps(summary.as_json(), indent=2, ensure_ascii=False))
    return exit_code


def _write(summary: RunSummary, name: str, write: Callable[[RunSummary], Path]) -> None:
    """Write a report of a run. The verdict of the run does not depend on the report."""
    try:
        write(summary)
    except Exception as error:  # noqa: BLE001  # whatever a run has left behind
        log.warning("%s of this run could not be written: %s", name, describe(error))
