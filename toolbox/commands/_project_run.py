"""Runs a project for `project run`, `project resume` and `ci run`: with a view, and a table at the end."""

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


def shown(execute: Execute, *, as_json: bool) -> int:
    """Run a project, or go on with a run of it, show that, and return its exit code.

    Args:
        as_json: print the summary as JSON on stdout, and show the run on stderr.
    """
    stream = sys.stderr if as_json else sys.stdout
    with live_view.view(stream) as view:
        summary, exit_code = execute([view.show], redaction.current())
    reports.write_all(summary)
    view.line("")
    run_table.show(summary, view)
    if as_json:
        # A reader that has gone away does not change how the run ended.
        with contextlib.suppress(BrokenPipeError):
            # The journal, from which it comes, holds no secret; a name in it may be the same word as one.
            print(printable_json(json.dumps(run_summary.as_json(summary), indent=2, ensure_ascii=False)))
    return exit_code
