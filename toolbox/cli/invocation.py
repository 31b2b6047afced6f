"""Calls a toolbox command for the command line, prints its result, and returns the exit code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toolbox.ground.interface import signature
from toolbox.ground.interface.registry import Command
from toolbox.ground.model import yaml_text
from toolbox.ground.model.errors import StepError, UsageError
from toolbox.ground.model.secrets import secrets_in
from toolbox.ground.model.verdicts import ExitCode
from toolbox.ground.system import environ, redaction
from toolbox.ground.system.redaction import Redactor


def invoke(command: Command, values: dict[str, Any], redactor: Redactor) -> int:
    """Call a command and return the exit code. A result of type `int` is the exit code; other results are printed."""
    redactor.add(secret.reveal() for secret in secrets_in(values))
    if command.role is not None:
        return _invoke_role(command, values, redactor)
    result = signature.call(command.signature, command.call, values)
    if isinstance(result, int) and not isinstance(result, bool):
        return result
    if result is not None:
        text = result if isinstance(result, str) else yaml_text.printed(result)
        print(redaction.escaped(redactor(text), is_json=values.get("format") == "json"))
    return ExitCode.PASSED


def _invoke_role(command: Command, values: dict[str, Any], redactor: Redactor) -> int:
    from toolbox.ansible import roles, warm
    from toolbox.orchestration import session
    from toolbox.records.runs import steps
    from toolbox.reports.terminal import live_view

    _refuse_missing_kubeconfig(command, values)
    with warm.opened(), live_view.view() as view, steps.entered(session.step_outside_run([view.show], redactor)) as top:
        try:
            directory = roles.run(command, values)
            exit_code = ExitCode.PASSED
        except StepError as error:
            directory, exit_code = error.directory or top.directory, error.exit_code
        view.line(f"artifacts: {directory}")
    return exit_code


def _refuse_missing_kubeconfig(command: Command, values: Mapping[str, Any]) -> None:
    """Raise a `UsageError` if the file of `--kubeconfig` does not exist.

    In a run, the step of the command fails instead, because the command that should create the cluster may have failed.
    """
    kubeconfig = values.get("kubeconfig")
    if isinstance(kubeconfig, Path) and not environ.expanded(kubeconfig).exists():
        raise UsageError(f"{command.signature.name}: --kubeconfig={kubeconfig} does not exist")
