"""Runs programs and toolbox commands, also in parallel."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from toolbox.ansible import roles
from toolbox.ground.interface import registry, signature
from toolbox.ground.model.errors import StepError, UsageError
from toolbox.ground.model.events import StepKind
from toolbox.ground.model.secrets import Secret
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.ground.system import cancellation, processes
from toolbox.ground.system.processes import Completed
from toolbox.orchestration import from_config, session
from toolbox.orchestration.parallel import Parallel
from toolbox.records.runs import steps
from toolbox.records.runs.program_output import ERROR_LINES, ProgramOutput
from toolbox.records.runs.steps import Step

__all__ = ["Parallel", "ToolboxResult", "run", "run_all", "run_toolbox", "run_toolbox_from_config", "sleep"]


@dataclass(frozen=True, slots=True)
class ToolboxResult:
    """How a toolbox command ended.

    Args:
        value: the return value of a command without a role.
        error: the error of a command that failed with `check=False`.
    """

    directory: Path | None = None
    value: Any = None
    error: StepError | None = None

    @property
    def passed(self) -> bool:
        """Whether the command succeeded."""
        return self.error is None


def run(
    command: str | Sequence[str],
    *,
    capture_stdout: bool = False,
    capture_stderr: bool = False,
    check: bool = True,
    cwd: Path | str | None = None,
    stdin_file: IO[bytes] | None = None,
    env: Mapping[str, str | Secret] | None = None,
    log_command: bool = True,
) -> Completed:
    """Run a program, and wait until it ends. Its output is shown, and written to `run.log` of the current step.

    Args:
        command: a list of arguments, or a string that bash runs with errexit, nounset and pipefail.
        capture_stdout: return the standard output instead of showing it.
        capture_stderr: return the standard error instead of showing it.
        check: raise if the exit status is not 0.
        stdin_file: an open file that the program reads as its standard input; without one, the input is empty.
        env: environment variables in addition to those of this process. Secrets may be passed here.
        log_command: show the command.

    Raises:
        UsageError: the command is empty, or contains a secret, which every user of this machine could read.
        StepError: the exit status is not 0, or the program cannot be started.
    """
    step = session.step()
    if not command or any(isinstance(word, Secret) for word in command):
        raise UsageError(
            "run.run: the command is empty or contains a secret: pass secrets in `env`, which other users cannot read"
        )
    variables = {**(session.current().variables if session.is_open() else {}), **_revealed(env or {}, step)}
    output = ProgramOutput(step)
    args = [*processes.STRICT_BASH, command] if isinstance(command, str) else [str(word) for word in command]
    redacted_command = step.recorder.redactor(command if isinstance(command, str) else shlex.join(args))
    if log_command:
        output.write(f"$ {redacted_command}")
    try:
        completed = processes.run(
            args,
            env=processes.environment(step.directory, variables),
            cwd=Path(cwd) if cwd is not None else None,
            stdin=stdin_file,
            on_line=output.write,
            on_error_line=output.write_error,
            capture_stdout=capture_stdout,
            capture_stderr=capture_stderr,
        )
    except OSError as error:
        message = step.recorder.redactor(f"`{redacted_command}` cannot be started: {error}")
        raise StepError(message, verdict=Verdict.ERROR, cause=Cause.CONFIGURATION, directory=step.directory) from error
    if check and completed.returncode != 0:
        tail = (completed.stderr or "").strip().splitlines()[-ERROR_LINES:] or output.error_lines
        raise _failure("\n".join([f"`{redacted_command}` ended with status {completed.returncode}", *tail]))
    return completed


def run_toolbox(
    group: str,
    command: str,
    *,
    artifact_dir_suffix: str | None = None,
    check: bool = True,
    **args: Any,
) -> ToolboxResult:
    """Run a toolbox command in this process.

    Args:
        artifact_dir_suffix: a suffix for the name of the step's directory.
        check: raise if the command fails. With False, the result contains the error instead, and the failure of the
            step does not make the run fail.
        args: the arguments of the command, and `hosts` if a role carries out the command.

    Raises:
        UsageError: the command is unknown, or an argument is wrong. Nothing was started.
        StepError: the command failed.
    """
    toolbox_command = registry.command(group, command)
    from_config.refuse_placeholders(f"{group} {command}", args)
    values = signature.bind(toolbox_command.signature, args, text=False)
    with steps.entered(session.step()):
        try:
            return _call(toolbox_command, values, session.masked(artifact_dir_suffix or ""), counts=check)
        except StepError as error:
            if check:
                raise
            return ToolboxResult(error.directory, error=error)


def _call(command: registry.Command, values: dict[str, Any], suffix: str, *, counts: bool) -> ToolboxResult:
    if command.role is not None:
        return ToolboxResult(roles.run(command, values, suffix=suffix, counts=counts))
    name = f"{command.group}__{command.name}{suffix}"
    with steps.opened(name, kind=StepKind.COMMAND, counts=counts) as step:
        try:
            return ToolboxResult(step.directory, signature.call(command.signature, command.call, values))
        except StepError as error:
            error.directory = error.directory or step.directory
            raise


def run_toolbox_from_config(
    group: str,
    command: str,
    prefix: str | None = None,
    suffix: str | None = None,
    *,
    extra: Mapping[str, Any] | None = None,
    artifact_dir_suffix: str | None = None,
    show_args: bool | str = False,
    check: bool = True,
) -> Any:
    """Run a toolbox command with the arguments from the command_args template of the project.

    Args:
        prefix: read the key `prefix/group command` of the template.
        suffix: read the key `group command/suffix` of the template.
        extra: arguments that replace those of the template.
        artifact_dir_suffix: a suffix for the name of the step's directory.
        show_args: return all arguments (True), or the argument of this name, instead of running the command.
        check: raise if the command fails, as in `run_toolbox`.

    Returns:
        a `ToolboxResult`; with `show_args`, all arguments or the named argument.
    """
    project = session.current()
    call = from_config.Call(group, command, prefix, suffix, dict(extra or {}))
    arguments = from_config.arguments(call, project.configuration, project.template)
    if show_args:
        return arguments if show_args is True else from_config.argument(arguments, show_args, call.key)
    return run_toolbox(group, command, artifact_dir_suffix=artifact_dir_suffix, check=check, **arguments)


def run_all(*functions: Callable[[], object]) -> None:
    """Call all functions, even if some of them raise, and then raise the first error.

    The notes and the attribute `others` of the first error contain the later errors.
    """
    errors: list[Exception] = []
    for function in functions:
        try:
            function()
        except Exception as error:  # noqa: BLE001  # the first error is raised after the last function
            errors.append(error)
    if errors:
        first, *others = errors
        first.others = tuple(others)  # type: ignore[attr-defined]  # see the docstring
        for other in others:
            first.add_note(f"and after it {type(other).__name__}: {other}")
        raise first


def sleep(seconds: float) -> None:
    """Sleep, and wake early if this task is cancelled. Use this function in loops that wait for something.

    Raises:
        Cancelled: another task failed, or the run is ending.
    """
    cancellation.current().sleep(seconds)


def _revealed(env: Mapping[str, str | Secret], step: Step) -> dict[str, str]:
    secrets = [value.reveal() for value in env.values() if isinstance(value, Secret)]
    step.recorder.redactor.add(secrets)
    return {name: value.reveal() if isinstance(value, Secret) else value for name, value in env.items()}


def _failure(message: str) -> StepError:
    verdict, cause = session.step().failure
    message = session.step().recorder.redactor(message)
    return StepError(message, verdict=verdict, cause=cause, directory=session.step().directory)
