"""What happens in a run, as frozen data: the journal keeps it, a view shows it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from toolbox.model.verdicts import Cause, Verdict


class StepKind(StrEnum):
    """What a step is."""

    PHASE = "phase"
    COMMAND = "command"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run begins, or goes on.

    Args:
        directory: the absolute path of the run directory.
    """

    run: str
    project: str
    directory: str
    presets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StepStarted:
    """A step begins.

    Args:
        step: its directory relative to the run directory: the identity of the step.
        detail: the command line that reproduces it, where it has one.
    """

    step: str
    name: str
    kind: StepKind
    detail: str = ""


@dataclass(frozen=True, slots=True)
class StepFinished:
    """A step has ended.

    Args:
        seconds: wall time.
        message: why it did not pass.
        counts: whether its verdict counts for the step around it.
    """

    step: str
    name: str
    kind: StepKind
    verdict: Verdict
    cause: Cause | None
    message: str
    seconds: float
    counts: bool = True


@dataclass(frozen=True, slots=True)
class CheckJudged:
    """A check has looked at what a workload left behind.

    Args:
        step: the step whose evidence it looked at.
        check: the name of the check.
        passed: its judgement.
        message: what it saw.
    """

    step: str
    check: str
    passed: bool
    message: str


@dataclass(frozen=True, slots=True)
class ConfigurationChanged:
    """The orchestration replaced a field of the configuration."""

    path: str
    value: str
    by: str


@dataclass(frozen=True, slots=True)
class RunFinished:
    """A run has ended.

    Args:
        exit_code: what the command line returns.
        message: the first error, where there was one.
    """

    verdict: Verdict
    cause: Cause | None
    exit_code: int
    message: str
    seconds: float


@dataclass(frozen=True, slots=True)
class TaskStarted:
    """Ansible begins a task of a role."""

    step: str
    name: str


@dataclass(frozen=True, slots=True)
class TaskFinished:
    """Ansible has ended a task on one host.

    Args:
        status: `ok`, `changed`, `skipped`, `failed`, `ignored` or `unreachable`.
        command: the command that it ran, where it ran one.
        output: what that printed, or the message of the task.
        seconds: wall time.
    """

    step: str
    name: str
    host: str
    status: str
    command: str
    output: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Note:
    """A line that a person should see."""

    step: str
    text: str


KeptEvent = RunStarted | StepStarted | StepFinished | CheckJudged | ConfigurationChanged | RunFinished
ShownEvent = TaskStarted | TaskFinished | Note
Event = KeptEvent | ShownEvent
