"""Runs things: programs, toolbox commands, and several of them side by side."""

from __future__ import annotations

import logging
import shlex
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from toolbox.ansible import roles
from toolbox.interface import registry, signature
from toolbox.model.errors import StepError, UsageError
from toolbox.model.events import Note, StepKind
from toolbox.model.secrets import Secret
from toolbox.model.verdicts import Cause, Verdict
from toolbox.orchestration import from_config, session
from toolbox.orchestration.parallel import Parallel
from toolbox.runs import steps
from toolbox.runs.layout import StepDirectory
from toolbox.runs.steps import Step
from toolbox.system import cancellation, filesystem, processes
from toolbox.system.processes import Completed

log = logging.getLogger(__name__)

__all__ = ["Parallel", "ToolboxResult", "run", "run_all", "run_toolbox", "run_toolbox_from_config", "sleep"]

_LONGEST_STDERR = 4


@dataclass(frozen=True, slots=True)
class ToolboxResult:
    """How a toolbox command ended.

    Args:
        directory: its step's directory.
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
    env: Mapping[str, str | Secret] | None = None,
    log_command: bool = True,
) -> Completed:
    """Run a program to its end. What it prints is shown, and kept in `run.log` of the current directory.

    Args:
        command: a list of arguments; or a text for bash, with errexit, nounset and pipefail.
        capture_stdout: return what it prints instead of showing it.
        capture_stderr: likewise.
        check: raise when its exit status is not 0.
        stdin_file: an open file for it to read; nothing when left out.
        env: environment variables besides ours; the way for a secret to reach a program.
        log_command: show the command.

    Raises:
        UsageError: there is no command, or a secret is in it, where everybody on the machine could read it.
        StepError: it ended with another status than 0, or it cannot be started.
    """
    step = session.step()
    if not command or any(isinstance(word, Secret) for word in command):
        raise UsageError(
            "run.run: it needs a command without secrets: pass secrets in `env`, where nobody else can read them"
        )
    variables = {**(session.current().variables if session.is_open() else {}), **_revealed(env or {}, step)}
    output = _Output(step)
    args = [*processes.STRICT_BASH, command] if isinstance(command, str) else [str(word) for word in command]
    shown = step.recorder.redactor(command if isinstance(command, str) else shlex.join(args))
    if log_command:
        output.take(f"$ {shown}")
    try:
        completed = processes.run(
            args,
            env=processes.environment(step.directory, variables),
            cwd=Path(cwd) if cwd is not None else None,
            stdin=stdin_file,
            on_line=output.take,
            on_error_line=output.take_error,
            capture_stdout=capture_stdout,
            capture_stderr=capture_stderr,
        )
    except OSError as error:
        message = step.recorder.redactor(f"`{shown}` cannot be started: {error}")
        raise StepError(message, verdict=Verdict.ERROR, cause=Cause.CONFIGURATION, directory=step.directory) from error
    if check and completed.returncode != 0:
        tail = (completed.stderr or "").strip().splitlines()[-_LONGEST_STDERR:] or output.errors
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
    values = signature.bind(found.signature, args, text=False)
    with steps.entered(session.step()):
        try:
            return _call(found, values, session.masked(artifact_dir_suffix or ""), counts=check)
        except StepError as error:
            if check:
                raise
            return ToolboxResult(error.directory, error=error)


def _call(found: registry.Command, values: dict[str, Any], suffix: str, *, counts: bool) -> ToolboxResult:
    if found.role is not None:
        return ToolboxResult(roles.run_command(found, values, suffix=suffix, counts=counts))
    name = f"{found.group}__{found.name}{suffix}"
    with steps.opened(name, kind=StepKind.COMMAND, counts=counts) as step:
        try:
            return ToolboxResult(step.directory, signature.call(found.signature, found.call, values))
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
    """Run a toolbox command with the arguments that the project's command_args template gives it.

    Args:
        prefix: `prefix/group command` is its key in the template.
        suffix: `group command/suffix` is its key in the template.
        extra: arguments that win over those of the template.
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


def sleep(seconds: float) -> None:
    """Wait so long, but no longer than this task may go on: use it in loops that wait for something.

    Raises:
        Cancelled: another task failed, or the run is ending.
    """
    cancellation.current().sleep(seconds)


class _Output:
    """Shows what a program prints, keeps it in `run.log`, and remembers its last errors. Two threads bring it."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._file = StepDirectory(step.directory).program_log
        self._lock = threading.Lock()
        self._errors: deque[str] = deque(maxlen=_LONGEST_STDERR)
        self._has_warned = False

    @property
    def errors(self) -> list[str]:
        """The last lines of standard error."""
        return list(self._errors)

    def take(self, line: str) -> None:
        """Take a line of output."""
        line = self._step.recorder.redactor(line)
        with self._lock:
            self._keep(line)
        self._step.recorder.record(Note(self._step.identity, line))

    def _keep(self, line: str) -> None:
        try:
            filesystem.append_text(self._file, f"{line}\n")
        except OSError as error:  # a full disk: what is to be run, to clean up say, matters more than its log
            if not self._has_warned:
                log.warning("%s cannot be written: %s", self._file, error)
            self._has_warned = True

    def take_error(self, line: str) -> None:
        """Take a line of standard error."""
        self._errors.append(line)
        self.take(line)


def _revealed(env: Mapping[str, str | Secret], step: Step) -> dict[str, str]:
    secrets = [value.reveal() for value in env.values() if isinstance(value, Secret)]
    step.recorder.redactor.add(secrets)
    return {name: value.reveal() if isinstance(value, Secret) else value for name, value in env.items()}


def _failure(message: str) -> StepError:
    verdict, cause = session.step().failure
    message = session.step().recorder.redactor(message)
    return StepError(message, verdict=verdict, cause=cause, directory=session.step().directory)
