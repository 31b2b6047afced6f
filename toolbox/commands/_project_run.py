"""Runs a project for the command line, for `project run` and `ci run`: with a view, and a table at the end."""

from __future__ import annotations

import contextlib
import json
import sys

from toolbox.orchestration import project_run
from toolbox.orchestration.project_run import RunRequest
from toolbox.reports import terminal
from toolbox.system import redaction


def execute(request: RunRequest, *, as_json: bool) -> int:
    """Run a project, show it, and return its exit code.

    Args:
        as_json: print the summary as JSON on stdout, and show the run on stderr.
    """
    stream = sys.stderr if as_json else sys.stdout
    with terminal.view(stream) as view:
        summary, exit_code = project_run.execute(request, [view.show], redaction.current())
        view.line("")
        view.table(summary)
    if as_json:
        # A reader that has gone away does not change how the run ended.
        with contextlib.suppress(BrokenPipeError):
            print(redaction.current()(json.dumps(summary.as_json(), indent=2, ensure_ascii=False)))
    return exit_code
