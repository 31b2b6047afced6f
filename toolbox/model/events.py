"""What happens in a run, as frozen data: the journal keeps it, a view shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Final, Self, TypeVar

from toolbox.model.bounds import Direction, Side
from toolbox.model.evidence import Deviation, Judgement, Metric
from toolbox.model.verdicts import Cause, Verdict


class StepKind(StrEnum):
    """What a step is."""

    PHASE = "phase"
    COMMAND = "command"
    CELL = "cell"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run begins, or goes on.

    Args:
        directory: the absolute path of the run directory.
        pid: the process that runs it, on `host`.
        revision: of the checkout with its configuration; empty where it is in none.
    """

    run: str
    project: str
    directory: str
    presets: tuple[str, ...]
    pid: int = 0
    host: str = ""
    revision: str = ""


@dataclass(frozen=True, slots=True)
class StepStarted:
    """A step begins.

    Args:
        step: its directory relative to the run directory: the identity of the step.
        detail: the command line that reproduces it, where it has one.
        key: by which it is known again when the run is resumed, whatever directory it has then.
        fingerprint: of what it does: another one is another step.
    """

    step: str
    name: str
    kind: StepKind
    detail: str = ""
    key: str = ""
    fingerprint: str = ""


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
class MatrixPlanned:
    """The cells of a step are known, and the first of them may start.

    Args:
        cells: how many there are.
        jobs: how many may run at once.
        done: how many of them the run finished before it was resumed.
    """

    step: str
    cells: int
    jobs: int
    done: int = 0


@dataclass(frozen=True, slots=True)
class AttemptSubmitted:
    """The workload of a cell is about to be started on a target. It may be running from here on.

    Args:
        step: the cell.
        attempt: its number, from 1 on.
        name: of the workload on the target.
    """

    step: str
    attempt: int
    name: str
    target: str


@dataclass(frozen=True, slots=True)
class AttemptWaiting:
    """An attempt was submitted and waits for its start: for a place, for a node, for its image.

    Args:
        reason: why, in the words of its target; empty once the attempt has started.
    """

    step: str
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """An attempt has ended, and all that it left is in its directory.

    Args:
        seconds: wall time of the workload.
        message: why it did not pass.
        host: the machine that it ran on, as that calls itself, and the `accelerators` that could be seen there.
        image: the container image that it ran in, as `NAME@sha256:...`; empty where that is not known.
    """

    step: str
    attempt: int
    target: str
    verdict: Verdict
    cause: Cause | None
    message: str
    seconds: float
    host: str = ""
    accelerators: str = ""
    image: str = ""


@dataclass(frozen=True, slots=True)
class AttemptAbandoned:
    """A person has given up an attempt whose end is unknown. The cell may be tried again.

    What is left of the attempt is removed when its target answers (`AttemptReleased`). Its result never counts.
    """

    step: str
    attempt: int


@dataclass(frozen=True, slots=True)
class AttemptReleased:
    """Nothing of an attempt is left on its target."""

    step: str
    attempt: int


@dataclass(frozen=True, slots=True)
class MetricMeasured:
    """A metric of a step has been read.

    Args:
        value: None where it could not be, and `fault` says why.
        direction: which values are better; None where nobody has said.
    """

    step: str
    metric: str
    value: float | None
    unit: str = ""
    fault: str = ""
    direction: Direction | None = None

    @classmethod
    def of(cls, step: str, metric: Metric) -> Self:
        """Return the event of a metric of a step."""
        return cls(step, metric.name, metric.value, metric.unit, metric.fault, metric.direction)


@dataclass(frozen=True, slots=True)
class CheckJudged:
    """A check has looked at what a workload left behind.

    Args:
        step: the step whose evidence it looked at.
        check: the name of the check.
        passed: its judgement; None where it had nothing to judge.
        message: what it saw.
        file: the file that shows it, and the line in it, where there is one.
        metric: what was out of the range that earlier runs give, and on which `side`; empty where that is not why.
        improves: whether that is the good side.
        out_of_range: whether the check failed only because a measured value is out of its range.
    """

    step: str
    check: str
    passed: bool | None
    message: str
    file: str = ""
    line: int | None = None
    metric: str = ""
    side: Side | None = None
    improves: bool = False
    out_of_range: bool = False

    @classmethod
    def of(cls, step: str, check: str, found: Judgement) -> Self:
        """Return the event of what a check says of a step."""
        kept = cls(step, check, found.passed, found.message, found.file, found.line, out_of_range=found.out_of_range)
        if (deviation := found.deviation) is None:
            return kept
        return replace(kept, metric=deviation.metric, side=deviation.side, improves=deviation.improves)

    @property
    def judgement(self) -> Judgement:
        """The judgement of the check."""
        deviation = Deviation(self.metric, self.side, self.improves) if self.side is not None else None
        return Judgement(self.passed, self.message, self.file, self.line, deviation)


def deviations_of(faults: Iterable[CheckJudged]) -> dict[str, Deviation]:
    """Return the metrics that are out of their range, where nothing else is wrong: else there is nothing."""
    found = {}
    for fault in faults:
        if fault.side is None:
            return {}
        found[fault.metric] = Deviation(fault.metric, fault.side, fault.improves)
    return found


def only_out_of_range(faults: Iterable[CheckJudged]) -> bool:
    """Tell whether there are faults, and all of them are values out of their ranges."""
    ranges = [fault.out_of_range or fault.side is not None for fault in faults]  # an old journal has only the side
    return bool(ranges) and all(ranges)


@dataclass(frozen=True, slots=True)
class ConfigurationChanged:
    """The orchestration replaced a field of the configuration.

    Args:
        value: the new one, as YAML on one line.
    """

    path: str
    value: str
    by: str


@dataclass(frozen=True, slots=True)
class LeaseAwaited:
    """A run waits for a cluster that somebody else has.

    Args:
        cluster: its name in the configuration.
        message: who has it, and since when.
    """

    cluster: str
    message: str


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """A cluster is no longer the run's, which ends.

    Args:
        message: who has it now, or why nobody knows.
    """

    cluster: str
    message: str


@dataclass(frozen=True, slots=True)
class ClusterChosen:
    """A run has a cluster from here on.

    Args:
        cluster: its name in the configuration.
        member: which of its pool; empty where it is of none.
        kubeconfig: see `toolbox.model.clusters.Access`, as the next two; all empty where it is a machine.
    """

    cluster: str
    member: str = ""
    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class ResourcePlanned:
    """Something is about to be made for the run. It may be there from here on, and is to be removed after the run.

    Args:
        step: that makes it.
        resource: its name out there, which comes of the run's and so can be found again.
        cluster: what the configuration calls it.
        kubeconfig: how to reach it, once it is there.
        removal: the command line that removes it.
    """

    step: str
    resource: str
    cluster: str
    kubeconfig: str
    removal: str


@dataclass(frozen=True, slots=True)
class ResourceMade:
    """It is there, whole."""

    resource: str


@dataclass(frozen=True, slots=True)
class ResourceRemoved:
    """Nothing of it is left."""

    resource: str


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
class SecretLeft:
    """A file holds a secret that cannot be masked without breaking the file: it must not leave the run directory.

    Args:
        file: from the run directory on.
    """

    step: str
    file: str


@dataclass(frozen=True, slots=True)
class DurationsExpected:
    """It is known how long cells took in earlier runs.

    Args:
        seconds: by the name of the cell.
    """

    step: str
    seconds: Mapping[str, float]


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
class FlakyCellsFailed:
    """Cells failed that earlier runs show to be flaky: their failures explain nothing about the others.

    Args:
        cells: their ids.
    """

    step: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Note:
    """A line that a person should see."""

    step: str
    text: str


KeptEvent = (
    RunStarted
    | StepStarted
    | StepFinished
    | MatrixPlanned
    | AttemptSubmitted
    | AttemptWaiting
    | AttemptEnded
    | AttemptAbandoned
    | AttemptReleased
    | MetricMeasured
    | CheckJudged
    | ConfigurationChanged
    | LeaseAwaited
    | LeaseLost
    | ClusterChosen
    | ResourcePlanned
    | ResourceMade
    | ResourceRemoved
    | SecretLeft
    | FlakyCellsFailed
    | RunFinished
)
ShownEvent = DurationsExpected | TaskStarted | TaskFinished | Note
Event = KeptEvent | ShownEvent

AnyEvent = TypeVar("AnyEvent", bound=Event)
# A resumed run finds its steps, files and resources by these fields, so secrets are not masked in them. Every other
# field is free text.
_IDENTITIES: Final = frozenset(
    {
        *("run", "project", "directory", "presets", "revision", "seconds"),
        *("step", "key", "fingerprint", "attempt", "target", "path", "file", "cells"),
        *("check", "metric", "unit", "cluster", "member", "kubeconfig", "context", "namespace", "resource"),
    }
)
# What Ansible calls a task may hold the value of a variable; every other name is an identity.
_FREE_NAMES: Final = (TaskStarted, TaskFinished)


def masked(event: AnyEvent, mask: Callable[[Any], Any]) -> AnyEvent:
    """Return an event with the secrets in its free text masked. Identities keep their text."""
    identities = _IDENTITIES if isinstance(event, _FREE_NAMES) else _IDENTITIES | {"name"}
    names = [field.name for field in fields(event) if field.name not in identities]
    return replace(event, **{name: mask(getattr(event, name)) for name in names})
