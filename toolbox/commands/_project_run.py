"""Runs a project for `project run`, `project resume` and `ci run`, and shows its progress and its results."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Sequence

from toolbox import reports
from toolbox.model.foreign_text import printable_json
from toolbox.reports.terminal import live_view, run_table
from toolbox.runs import summary as run_summary
from toolbox.runs.recorder import Listener
from toolbox.runs.run_state import RunState
from toolbox.system import redaction
from toolbox.system.redaction import Redactor

Execute = Callable[[Sequence[Listener], Redactor], tuple[RunState, int]]


def run_and_show(execute: Execute, *, as_json: bool) -> int:
    """Run a project, show the progress and a table of the results, write the reports, and return the exit code.

    Args:
        as_json: print the summary as JSON on stdout, and show the progress on stderr.
    """
    stream = sys.stderr if as_json else sys.stdout
    with live_view.view(stream) as view:
        summary, exit_code = execute([view.show], redaction.current())
    reports.write_all(summary)
    view.line("")
    run_table.show(summary, view)
    if as_json:
        # If the program that reads stdout has ended, the exit code of the run must stay the same.
        with contextlib.suppress(BrokenPipeError):
            # Do not redact the summary: the journal that it comes from contains no secrets, and names could be masked.
            print(printable_json(json.dumps(run_summary.as_json(summary), indent=2, ensure_ascii=False)))
    return exit_code
