"""Calls a toolbox command for the command line: shows what it does, and turns its end into an exit code."""

from __future__ import annotations

from typing import Any

from toolbox.interface.registry import Command
from toolbox.model.errors import StepError
from toolbox.model.verdicts import ExitCode
from toolbox.system.redaction import Redactor


def invoke(command: Command, values: dict[str, Any], redactor: Redactor) -> int:
    """Call a command, and return the exit code: what the command itself returns, where it returns a number."""
    if command.role is not None:
        return _invoke_role(command, values, redactor)
    result = command.call(**values)
    if isinstance(result, str):
        print(redactor(result))
    return result if isinstance(result, int) else ExitCode.PASSED


def _invoke_role(command: Command, values: dict[str, Any], redactor: Redactor) -> int:
    from toolbox.orchestration import session
    from toolbox.reports import terminal
    from toolbox.runs import steps

    with terminal.view() as view, steps.entered(session.outside_of_a_run([view.show], redactor)) as top:
        try:
            command.call(**values)
        except StepError as error:
            view.line(f"artifacts: {error.directory or top.directory}")
            return error.exit_code
    return ExitCode.PASSED
