"""Runs things: programs, toolbox commands, and several of them side by side."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from toolbox.interface import registry, signature
from toolbox.model.errors import StepError
from toolbox.model.events import Note
from toolbox.orchestration import from_config, session
from toolbox.orchestration.parallel import Parallel
from toolbox.roles import RoleOutcome
from toolbox.runs import steps
from toolbox.system import processes
from toolbox.system.processes import Completed

__all__ = ["Parallel", "ToolboxResult", "run", "run_all", "run_toolbox", "run_toolbox_from_config"]

_STRICT_BASH = ("bash", "-o", "errexit", "-o", "nounset", "-o", "pipefail", "-c")
_LONGEST_STDERR = 5


@dataclass(frozen=True, slots=True)
class ToolboxResult:
    """How a toolbox command ended.

    Args:
        directory: its step's directory; None where the command has no role.
        value: what a command without a role returned.
        error: why it failed, where `check=False` kept that from being raised.
    """

    directory: Path | None = None
    value: Any = None
    error: StepError | None = None

    @property
    def passed(self) -> bool:
        """Whether it did its work."""
        return self.error is None


def run(
    command: str | Sequence[str],
    *,
    capture_stdout: bool = False,
    capture_stderr: bool = False,
    check: bool = True,
    cwd: Path | str | None = None,
    stdin_file: IO[bytes] | None = None,
    env: Mapping[str, str] | None = None,
    log_command: bool = True,
) -> Completed:
    """Run a program to its end.

    Args:
        command: a list of arguments; or a text for bash, with errexit, nounset and pipefail.
        capture_stdout: return what it prints instead of showing it.
        capture_stderr: likewise.
        check: raise when its exit status is not 0.
        stdin_file: an open file for it to read; nothing when left out.
        env: environment variables besides ours.
        log_command: show the command.

    Raises:
        StepError: it ended with another status than 0, or it cannot be started.
    """
    step = session.step()
    args = [*_STRICT_BASH, command] if isinstance(command, str) else [str(word) for word in command]
    shown = step.recorder.redactor(command if isinstance(command, str) else shlex.join(args))
    if log_command:
        step.recorder.record(Note(step.identity, f"$ {shown}"))
    variables = session.current().variables if session.is_open() else {}
    try:
        completed = processes.run(
            args,
            env=processes.environment(step.directory, {**variables, **(env or {})}),
            cwd=Path(cwd) if cwd is not None else None,
            stdin=stdin_file,
            on_line=lambda line: step.recorder.record(Note(step.identity, step.recorder.redactor(line))),
            capture_stdout=capture_stdout,
            capture_stderr=capture_stderr,
        )
    except OSError as error:
        raise _failure(f"`{shown}` cannot be started: {error}") from error
    if check and completed.returncode != 0:
        tail = (completed.stderr or "").strip().splitlines()[-_LONGEST_STDERR:]
        raise _failure("\n".join([f"`{shown}` ended with status {completed.returncode}", *tail]))
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
        artifact_dir_suffix: what the name of its directory ends with.
        check: raise when it fails; otherwise the result has the error, and the step does not count.
        args: the arguments of the command, and `hosts` where a role carries it out.

    Raises:
        UsageError: an argument, or the command, is wrong. Nothing was started.
        StepError: it failed.
    """
    found = registry.command(group, command)
    from_config.refuse_placeholders(f"{group} {command}", args)
    with steps.entered(session.step()):
        if found.role is None:
            return ToolboxResult(value=found.call(**signature.bind(found.signature, args, text=False)))
        try:
            outcome: RoleOutcome = found.call(**args, artifact_dir_suffix=artifact_dir_suffix, counts=check)
        except StepError as error:
            if check:
                raise
            return ToolboxResult(error.directory, error=error)
        return ToolboxResult(outcome.directory)


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
    """Run a toolbox command with the arguments that the project's command_args template gives it.

    Args:
        prefix: `prefix/group command` is its key in the template.
        suffix: `group command/suffix` is its key in the template.
        extra: arguments that go before those of the template.
        artifact_dir_suffix: see `run_toolbox`.
        show_args: return the arguments, or the one of this name, and run nothing.
        check: see `run_toolbox`.

    Returns:
        a `ToolboxResult`; with `show_args`, the arguments.
    """
    project = session.current()
    call = from_config.Call(group, command, prefix, suffix, dict(extra or {}))
    arguments = from_config.arguments(call, project.configuration, project.template)
    if show_args:
        return arguments if show_args is True else from_config.one(arguments, show_args, call.key)
    return run_toolbox(group, command, artifact_dir_suffix=artifact_dir_suffix, check=check, **arguments)


def run_all(*functions: Callable[[], object]) -> None:
    """Call several functions, all of them, and raise the first error with the others attached.

    The others are in its notes, and in its attribute `others`.
    """
    errors: list[Exception] = []
    for function in functions:
        try:
            function()
        except Exception as error:  # noqa: BLE001  # each function has its turn; the first error is raised
            errors.append(error)
    if errors:
        first, *others = errors
        first.others = tuple(others)  # type: ignore[attr-defined]  # what the docstring promises
        for other in others:
            first.add_note(f"and after it {type(other).__name__}: {other}")
        raise first


def _failure(message: str) -> StepError:
    verdict, cause = session.step().failure
    return StepError(message, verdict=verdict, cause=cause, directory=session.step().directory)
