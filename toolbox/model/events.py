"""The events of a run, as frozen data: the journal records them, and views show them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Final, Self, TypeVar

from toolbox.model.bounds import Direction, Side
from toolbox.model.clusters import Access
from toolbox.model.evidence import Deviation, Judgement, Metric
from toolbox.model.verdicts import Cause, Verdict


class StepKind(StrEnum):
    """The kind of a step."""

    PHASE = "phase"
    COMMAND = "command"
    CELL = "cell"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run starts, or is resumed.

    Args:
        directory: the absolute path of the run directory.
        pid: the process that executes the run, on `host`.
        revision: the revision of the checkout that has its configuration; empty outside of a checkout.
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
        step: the directory of the step, relative to the run directory: the identity of the step.
        detail: the command line that reproduces the step, if there is one.
        key: identifies the step in a resumed run, where its directory may be another one.
        fingerprint: a digest of the work of the step: with another fingerprint it is another step.
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
        message: why the step did not pass.
        counts: whether its verdict counts for the enclosing step.
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
    """The cells of a step are known. The first of them may start now.

    Args:
        cells: the number of cells.
        jobs: the number of cells that may run at once.
        done: the number of cells that finished before the run was resumed.
    """

    step: str
    cells: int
    jobs: int
    done: int = 0


@dataclass(frozen=True, slots=True)
class AttemptSubmitted:
    """The workload of a cell is about to be started on a target. It may be running from here on.

    Args:
        step: the step of the cell.
        attempt: the number of the attempt, from 1 on.
        name: the name of the workload on the target.
    """

    step: str
    attempt: int
    name: str
    target: str


@dataclass(frozen=True, slots=True)
class AttemptWaiting:
    """A submitted attempt waits for its start: for a free place, a node or an image.

    Args:
        reason: why it waits, in the words of its target; empty once the attempt has started.
    """

    step: str
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """An attempt has ended, and its files are in its directory.

    Args:
        seconds: wall time of the workload.
        message: why the attempt did not pass.
        host: the name of the machine that it ran on. `accelerators`: the accelerators visible there.
        image: the container image that it ran in, as `NAME@sha256:...`; empty if unknown.
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

    Its remains are removed when its target answers (`AttemptReleased`). Its result never counts.
    """

    step: str
    attempt: int


@dataclass(frozen=True, slots=True)
class AttemptReleased:
    """Nothing of an attempt is left on its target any more."""

    step: str
    attempt: int


@dataclass(frozen=True, slots=True)
class MetricMeasured:
    """A metric of a step has been read.

    Args:
        value: the value; None if it could not be read, for the reason in `fault`.
        direction: which values are better; None if that is not configured.
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
    """A check has judged the evidence of a step.

    Args:
        step: the step with the evidence.
        check: the name of the check.
        passed: the judgement; None if there was nothing to judge.
        message: the reason for the judgement.
        file: the file that shows the reason. `line`: the line in it, if there is one.
        metric: the metric that is out of the range of earlier runs, if that is the reason; otherwise empty.
        side: the side of the range on which the metric is. `improves`: whether that side is the better one.
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
        """Return the event for a check's judgement on a step."""
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
    """Return the deviating metrics if every fault is a deviation from earlier runs; otherwise an empty mapping."""
    found = {}
    for fault in faults:
        if fault.side is None:
            return {}
        found[fault.metric] = Deviation(fault.metric, fault.side, fault.improves)
    return found


def only_out_of_range(faults: Iterable[CheckJudged]) -> bool:
    """Return whether there are faults, and all of them are values out of their ranges."""
    ranges = [fault.out_of_range or fault.side is not None for fault in faults]  # an old journal has only the side
    return bool(ranges) and all(ranges)


@dataclass(frozen=True, slots=True)
class ConfigurationChanged:
    """The orchestration replaced a field of the configuration.

    Args:
        value: the new value, as YAML on one line.
    """

    path: str
    value: str
    by: str


@dataclass(frozen=True, slots=True)
class LeaseAwaited:
    """A run waits for a cluster that another run holds.

    Args:
        cluster: the name of the cluster in the configuration.
        message: which run holds it, and since when.
    """

    cluster: str
    message: str


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """A run has lost its lease of a cluster. The run ends.

    Args:
        message: which run holds the cluster now, or why that is unknown.
    """

    cluster: str
    message: str


@dataclass(frozen=True, slots=True)
class ClusterChosen:
    """A run uses a cluster from now on.

    Args:
        cluster: the name of the cluster in the configuration.
        member: the member of the pool that was chosen; empty without a pool.
        kubeconfig: see `toolbox.model.clusters.Access`, also for `context` and `namespace`; all empty for a machine.
    """

    cluster: str
    member: str = ""
    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None

    @property
    def access(self) -> Access:
        """How to reach the cluster."""
        return Access(self.kubeconfig, self.context, self.namespace)


@dataclass(frozen=True, slots=True)
class ResourcePlanned:
    """A resource is about to be created for the run. It may exist from now on, and must be removed after the run.

    Args:
        step: the step that creates the resource.
        resource: the remote name, which is derived from the name of the run, so that it can be found again.
        cluster: the name of the cluster in the configuration.
        kubeconfig: how to reach the cluster once it exists.
        removal: the command line that removes the resource.
    """

    step: str
    resource: str
    cluster: str
    kubeconfig: str
    removal: str


@dataclass(frozen=True, slots=True)
class ResourceMade:
    """The resource exists, and is complete."""

    resource: str


@dataclass(frozen=True, slots=True)
class ResourceRemoved:
    """Nothing is left of the resource."""

    resource: str


@dataclass(frozen=True, slots=True)
class RunFinished:
    """A run has ended.

    Args:
        exit_code: the exit code of the command line.
        message: the first error, if there was one.
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
        file: the path, relative to the run directory.
    """

    step: str
    file: str


@dataclass(frozen=True, slots=True)
class DurationsExpected:
    """The durations of cells in earlier runs are known.

    Args:
        seconds: the duration of each cell, by the name of the cell.
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
    """Ansible has finished a task on one host.

    Args:
        status: `ok`, `changed`, `skipped`, `failed`, `ignored` or `unreachable`.
        command: the command that the task ran, if any.
        output: the output of the command, or the message of the task.
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
    """Cells failed that are flaky in earlier runs: their failures explain nothing about the other cells.

    Args:
        cells: the ids of the flaky cells.
    """

    step: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Note:
    """A line for the user."""

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
# The name of an Ansible task may contain the value of a variable. Every other name is an identity.
_FREE_NAMES: Final = (TaskStarted, TaskFinished)


def masked(event: AnyEvent, mask: Callable[[Any], Any]) -> AnyEvent:
    """Return an event with the secrets in its free text masked. Identities stay as they are."""
    identities = _IDENTITIES if isinstance(event, _FREE_NAMES) else _IDENTITIES | {"name"}
    names = [field.name for field in fields(event) if field.name not in identities]
    return replace(event, **{name: mask(getattr(event, name)) for name in names})
