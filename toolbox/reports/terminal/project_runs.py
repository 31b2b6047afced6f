"""Runs a project for `project run`, `project resume` and `ci run`, and shows its progress and its results."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from toolbox import reports
from toolbox.ground.model.events import Event, RunStarted
from toolbox.ground.model.foreign_text import printable_json
from toolbox.ground.system import redaction
from toolbox.ground.system.redaction import Redactor
from toolbox.records.runs import summary as run_summary
from toolbox.records.runs.recorder import Listener
from toolbox.records.runs.run_state import RunState
from toolbox.reports.terminal import live_view, run_table

Execute = Callable[[Sequence[Listener], Redactor], tuple[RunState, int]]
Announce = Callable[[Path], str]


def run_and_show(execute: Execute, *, as_json: bool) -> int:
    """Run a project, show the progress and a table of the results, write the reports, and return the exit code.

    Args:
        as_json: print the summary as JSON on stdout, and show the progress on stderr.
    """
    summary, exit_code = show(execute, stream=sys.stderr if as_json else sys.stdout)
    if as_json:
        print_json(run_summary.as_json(summary))
    return exit_code


def show(
    execute: Execute, *, stream: TextIO, announce: Announce | None = None, listeners: Sequence[Listener] = ()
) -> tuple[RunState, int]:
    """Run a project, show the progress and a table of the results, and write the reports.

    Args:
        stream: where to show the progress and the table.
        announce: returns a line to show at the start of the run, given the run directory.
        listeners: further views of the run.
    """
    with live_view.view(stream) as view:

        def listen(event: Event) -> None:
            view.show(event)
            if announce is not None and isinstance(event, RunStarted):
                view.line(announce(Path(event.directory)), style="dim")

        summary, exit_code = execute([listen, *listeners], redaction.current())
    reports.write_all(summary)
    view.line("")
    run_table.show(summary, view)
    return summary, exit_code


def print_json(content: object) -> None:
    """Print a summary as JSON on stdout."""
    # If the program that reads stdout has ended, the exit code of the run must stay the same.
    with contextlib.suppress(BrokenPipeError):
        # Do not redact the summary: the journal that it comes from contains no secrets, and names could be masked.
        print(printable_json(json.dumps(content, indent=2, ensure_ascii=False)))
