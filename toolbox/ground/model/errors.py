"""The family of expected errors. The command line shows each as one message and an exit code.

Any other exception that reaches the command line is a bug in Topgallant, and is shown with its traceback. An expected
error has the verdict and the cause of the step that it ends.
"""

from __future__ import annotations

import errno
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path

from toolbox.ground.model.verdicts import Cause, ExitCode, Verdict, exit_code

_FAULTS_OF_A_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})


class ToolboxError(Exception):
    """An expected error: its text says what went wrong and what to do next."""

    exit_code = ExitCode.ERROR
    verdict = Verdict.ERROR
    cause = Cause.INFRASTRUCTURE


class UsageError(ToolboxError):
    """The command line, or a call of a toolbox command, is wrong. Nothing was started."""

    exit_code = ExitCode.USAGE
    cause = Cause.CONFIGURATION


class ConfigurationError(UsageError):
    """The configuration has a fault. Nothing was started."""

    @property
    def faults(self) -> tuple[str, ...]:
        """The faults, each with its file and line."""
        return (str(self),)


class ConfigurationFaults(ConfigurationError):
    """The configuration has several faults.

    Args:
        faults: the faults, each with its file and line. Duplicates are removed.
    """

    def __init__(self, faults: Iterable[str]) -> None:
        self._faults = tuple(dict.fromkeys(faults))
        count = len(self._faults)
        heading = f"{count} faults in the configuration" if count > 1 else "a fault in the configuration"
        super().__init__("\n  ".join([f"{heading}:", *self._faults]))

    @property
    def faults(self) -> tuple[str, ...]:
        """The faults, each with its file and line."""
        return self._faults


class DamagedFile(UsageError):
    """A file of a run cannot be read, and the run cannot be resumed without it.

    Args:
        reason: why the file cannot be read.
    """

    def __init__(self, file: Path, reason: str) -> None:
        super().__init__(f"{file} is damaged, and the run cannot be resumed without it: {reason}")


class InfrastructureError(ToolboxError):
    """A machine, a network or another program failed."""


class MissingToken(UsageError):
    """The environment has no token for a forge."""


class RefusedRequest(InfrastructureError):
    """A forge answered a request with an error.

    Args:
        status: the status of HTTP.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class StepError(ToolboxError):
    """A step ended without passing; by default, because a machine, a network or another program failed.

    Args:
        directory: the directory with the evidence.
    """

    def __init__(
        self,
        message: str,
        *,
        verdict: Verdict = Verdict.ERROR,
        cause: Cause = Cause.INFRASTRUCTURE,
        directory: Path | None = None,
    ) -> None:
        super().__init__(message)
        self.verdict = verdict
        self.cause = cause
        self.directory = directory

    @property
    def exit_code(self) -> ExitCode:  # type: ignore[override]  # a class attribute in the parent
        """The exit code of a command line that executed only this step."""
        return exit_code(self.verdict)


class MissingProgram(StepError):
    """This machine does not have a program that a toolbox command needs."""

    def __init__(self, message: str, *, directory: Path | None = None) -> None:
        super().__init__(message, cause=Cause.CONFIGURATION, directory=directory)

    @property
    def exit_code(self) -> ExitCode:  # type: ignore[override]  # as in `StepError`
        """The exit code of a wrong command line, because a person has to install the program or name another one."""
        return ExitCode.USAGE


class SubmissionUnknown(StepError):
    """The target does not answer, so a workload may be running, and its end is unknown.

    The attempt stays open until its target answers, or until a person abandons the attempt. Until then, the cell is not
    tried again.
    """


class LimitExceeded(StepError):
    """The files of an attempt exceed the limit of its target. Another attempt would exceed the limit again."""

    def __init__(self, message: str) -> None:
        super().__init__(message, verdict=Verdict.ERROR, cause=Cause.CONFIGURATION)


class FilesLost(StepError):
    """The files of an ended attempt are lost, because the machine no longer exists. Another attempt may succeed.

    Args:
        machine: the name of the machine; empty if unknown.
    """

    def __init__(self, message: str, *, machine: str = "") -> None:
        super().__init__(message)
        self.machine = machine


class CheckFailed(StepError):
    """The workload ran, and a check of its results failed."""

    def __init__(self, message: str, *, cause: Cause = Cause.CHECK, directory: Path | None = None) -> None:
        super().__init__(message, verdict=Verdict.FAILED, cause=cause, directory=directory)


class Cancelled(BaseException):
    """The task was stopped because another task failed, or because the run is ending.

    Like `KeyboardInterrupt`, this class is not an `Exception`, so `except Exception` in a project does not catch it.
    """

    exit_code = ExitCode.ERROR
    verdict = Verdict.CANCELLED
    cause = Cause.INTERRUPTED


class Interrupted(Cancelled):
    """A signal or the deadline ended the run."""

    def __init__(self, signal_number: int) -> None:
        self.signal_number = signal_number
        self.is_deadline = signal_number == signal.SIGALRM
        name = signal.Signals(signal_number).name
        super().__init__("the deadline of the run has passed" if self.is_deadline else f"interrupted by {name}")
        self.cause = Cause.TIMEOUT if self.is_deadline else Cause.INTERRUPTED

    @property
    def exit_code(self) -> ExitCode:  # type: ignore[override]  # a class attribute in the parent
        """The exit code: 130 for SIGINT, 143 for SIGTERM and SIGHUP, 124 for the deadline."""
        if self.is_deadline:
            return ExitCode.DEADLINE
        return ExitCode.SIGINT if self.signal_number == signal.SIGINT else ExitCode.SIGTERM


class SeveralErrors(ToolboxError):
    """Several tasks failed. The verdict, cause and exit code are those of the first error."""

    def __init__(self, heading: str, errors: Sequence[BaseException]) -> None:
        self.errors = tuple(errors)
        first = errors[0]
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        super().__init__(f"{heading}: {describe(first)}{more}")
        self.verdict, self.cause = outcome_of(first)

    @property
    def exit_code(self) -> ExitCode:  # type: ignore[override]  # a class attribute in the parent
        """The exit code of the first error."""
        return exit_code_of(self.errors[0])


def outcome_of(error: BaseException) -> tuple[Verdict, Cause]:
    """Return the verdict and the cause of a step that this error ended."""
    if isinstance(error, ToolboxError | Cancelled):
        return error.verdict, error.cause
    if isinstance(error, OSError) and error.errno in _FAULTS_OF_A_DISK:
        return Verdict.ERROR, Cause.INFRASTRUCTURE
    return Verdict.ERROR, Cause.INTERNAL


def exit_code_of(error: BaseException) -> ExitCode:
    """Return the exit code of a command line that this error ended."""
    return error.exit_code if isinstance(error, ToolboxError | Cancelled) else ExitCode.ERROR


def describe(error: BaseException) -> str:
    """Return the text of an error. If the error is not an expected error, its type precedes the text."""
    return str(error) if isinstance(error, ToolboxError | Cancelled) else f"{type(error).__name__}: {error}"
