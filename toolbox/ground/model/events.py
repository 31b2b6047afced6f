"""The events of a run, as frozen data. The journal records them, and the terminal and the reports show them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Final, Self, TypeVar

from toolbox.ground.model.bounds import Direction, Side
from toolbox.ground.model.cases import CaseOutcome, CaseReport, CaseResult
from toolbox.ground.model.clusters import Access
from toolbox.ground.model.evidence import Deviation, Judgement, Metric
from toolbox.ground.model.notifications import NotificationKind
from toolbox.ground.model.verdicts import Cause, Verdict


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
        pid: the id of the process on `host` that executes the run.
        revision: the git revision of the configuration; empty if the configuration is not in a checkout.
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
        step: the directory of the step, relative to the run directory. It identifies the step in this session.
        detail: the command line that reproduces the step; empty if there is no such command line.
        key: identifies the step in a resumed run, where the step may have another directory.
        fingerprint: a digest of the work of the step; a changed fingerprint means different work.
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
        message: why the step did not pass.
        counts: whether the verdict counts for the enclosing step.
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
    """The cells of a step are known, and may start.

    Args:
        jobs: the number of cells that may run at the same time.
        done: the number of cells that finished before the run was resumed.
    """

    step: str
    cells: int
    jobs: int
    done: int = 0


@dataclass(frozen=True, slots=True)
class ResultReused:
    """A cell is not executed, because an equal cell passed in an earlier run (`reuse_results`).

    Args:
        run: the name of the earlier run.
        directory: the directory of the earlier run.
    """

    step: str
    run: str
    directory: str


@dataclass(frozen=True, slots=True)
class AttemptSubmitted:
    """The workload of a cell is about to be started on a target, and may be running from now on.

    Args:
        attempt: the number of the attempt; the first attempt is 1.
        name: the name of the workload on the target.
    """

    step: str
    attempt: int
    name: str
    target: str


@dataclass(frozen=True, slots=True)
class AttemptWaiting:
    """A submitted attempt has not started: the target has no free node, or is still pulling the container image.

    Args:
        reason: why the attempt waits, as reported by its target; empty once the attempt has started.
    """

    step: str
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """An attempt has ended, and its files are in its directory.

    Args:
        message: why the attempt did not pass.
        accelerators: the accelerators of the machine that the workload could use.
        image: the container image of the workload, as `NAME@sha256:...`; empty if unknown.
        paid_seconds: the time for which the target cost money because of the attempt; None if it equals `seconds`.
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
    paid_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class AttemptAbandoned:
    """A person has given up an attempt whose end is unknown. The cell may be tried again.

    The result of the attempt never counts. Its processes and files are removed when its target answers
    (`AttemptReleased`).
    """

    step: str
    attempt: int


@dataclass(frozen=True, slots=True)
class AttemptReleased:
    """All processes and files of an attempt have been removed from its target."""

    step: str
    attempt: int


@dataclass(frozen=True, slots=True)
class MetricMeasured:
    """A metric of a step has been read.

    Args:
        value: the value; None if it could not be read. `fault` contains the reason.
        direction: whether lower or higher values are better; None if not configured.
    """

    step: str
    metric: str
    value: float | None
    unit: str = ""
    fault: str = ""
    direction: Direction | None = None

    @classmethod
    def from_metric(cls, step: str, metric: Metric) -> Self:
        """Return the event for a metric of a step."""
        return cls(step, metric.name, metric.value, metric.unit, metric.fault, metric.direction)


@dataclass(frozen=True, slots=True)
class CheckJudged:
    """A check has judged the evidence of a step.

    Args:
        passed: whether the check passed; None if the check had nothing to judge.
        file: the file that shows the reason.
        line: the line of the file that shows the reason; None if the reason is not in a single line.
        metric: the metric whose value is out of the range of earlier runs; empty if the judgement has another reason.
        side: the side of the range on which the value of `metric` is.
        improves: whether a value on `side` is better than the range.
        out_of_range: whether the check failed only because a measured value is out of its range.
        cause: the cause that the check itself names; None if it names none. A resumed run judges by it.
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
    cause: Cause | None = None

    @classmethod
    def from_judgement(cls, step: str, check: str, judgement: Judgement) -> Self:
        """Return the event for a check's judgement on a step."""
        passed, message, file, line = judgement.passed, judgement.message, judgement.file, judgement.line
        event = cls(
            step, check, passed, message, file, line, out_of_range=judgement.out_of_range, cause=judgement.cause
        )
        if (deviation := judgement.deviation) is None:
            return event
        return replace(event, metric=deviation.metric, side=deviation.side, improves=deviation.improves)

    @property
    def judgement(self) -> Judgement:
        """The judgement of the check."""
        deviation = Deviation(self.metric, self.side, self.improves) if self.side is not None else None
        return Judgement(
            self.passed, self.message, self.file, self.line, deviation, self.out_of_range, cause=self.cause
        )


@dataclass(frozen=True, slots=True)
class CasesCounted:
    """A check has counted the test cases in the JUnit files of a step. A `CaseFailed` follows for each failure.

    The journal contains only a limited number of failures. The files contain all test cases.

    Args:
        glob: the pattern of the files, relative to the directory of the attempt.
        seconds: the sum of the durations of all test cases; None if unknown.
        fail_on: the outcomes that fail the check.
        is_partial: whether the suite did not end by itself.
        remarks: the number of test cases that passed with a remark; 0 if the check failed.
    """

    step: str
    glob: str
    passed: int
    flaky: int
    failed: int
    error: int
    skipped: int
    seconds: float | None
    fail_on: tuple[CaseOutcome, ...]
    is_partial: bool = False
    remarks: int = 0

    @classmethod
    def from_report(cls, step: str, report: CaseReport) -> Self:
        """Return the event for the test cases of a step."""
        counts = {str(outcome): report.counts.get(outcome, 0) for outcome in CaseOutcome}
        return cls(
            step,
            report.glob,
            **counts,
            seconds=report.seconds,
            fail_on=tuple(report.fail_on),
            is_partial=report.is_partial,
            remarks=report.remarks,
        )

    def report(self, failures: Iterable[CaseFailed]) -> CaseReport:
        """Return the report that the event and the events of the failures describe."""
        counts = {outcome: int(getattr(self, outcome)) for outcome in CaseOutcome}
        cases = tuple(event.result for event in failures)
        return CaseReport(self.glob, counts, self.fail_on, self.seconds, cases, self.is_partial, self.remarks)


@dataclass(frozen=True, slots=True)
class CaseFailed:
    """A test case that fails the check which has counted the test cases.

    Args:
        glob: the pattern of the files, as in `CasesCounted`.
        suite: the class or module of the test case.
        seconds: the duration; None if unknown.
        message: one line that says why the test case failed.
    """

    step: str
    glob: str
    suite: str
    name: str
    outcome: CaseOutcome
    seconds: float | None
    message: str

    @classmethod
    def from_result(cls, step: str, glob: str, case: CaseResult) -> Self:
        """Return the event for a test case."""
        return cls(step, glob, case.suite, case.name, case.outcome, case.seconds, case.message)

    @property
    def result(self) -> CaseResult:
        """The test case."""
        return CaseResult(self.suite, self.name, self.outcome, self.seconds, self.message)


def case_events(step: str, report: CaseReport) -> list[CasesCounted | CaseFailed]:
    """Return the events for the test cases of a step."""
    failures = [CaseFailed.from_result(step, report.glob, case) for case in report.failures]
    return [CasesCounted.from_report(step, report), *failures]


def only_out_of_range(checks: Iterable[CheckJudged]) -> bool:
    """Return whether a check failed, and each check that failed did so because a value is out of its range."""
    failed = [check for check in checks if check.passed is False]
    return bool(failed) and all(check.out_of_range for check in failed)


@dataclass(frozen=True, slots=True)
class ConfigurationChanged:
    """The project replaced a field of the configuration.

    Args:
        value: the new value, as YAML on one line.
    """

    path: str
    value: str
    by: str


@dataclass(frozen=True, slots=True)
class LeaseAwaited:
    """A run waits for a cluster that another run has leased.

    Args:
        cluster: the name of the cluster in the configuration.
        message: which run has leased the cluster, and since when.
    """

    cluster: str
    message: str


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """A run has lost its lease of a cluster, and ends.

    Args:
        message: which run has leased the cluster now, or why that run is unknown.
    """

    cluster: str
    message: str


@dataclass(frozen=True, slots=True)
class ClusterChosen:
    """A run uses a cluster from now on.

    Args:
        cluster: the name of the cluster in the configuration.
        member: the cluster of the pool that was chosen; empty if the cluster is not configured as a pool.
        kubeconfig: as `context` and `namespace`, a field of `Access`; all are None for a leased machine.
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
class RunFinished:
    """A run has ended.

    Args:
        message: the first error, if there was one.
    """

    verdict: Verdict
    cause: Cause | None
    exit_code: int
    message: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ShardMerged:
    """The events after this one, up to the next event of this kind, are from the run of a shard.

    Args:
        run: the name of the run of the shard.
        started: when the run of the shard began, in ISO 8601.
        shard: the number of the shard, from 1.
        shards: the number of all shards.
    """

    run: str
    started: str
    shard: int
    shards: int


@dataclass(frozen=True, slots=True)
class RunPaused:
    """A session of a run has ended, and the run waits for a session with its next phases.

    The fields are those of `RunFinished`, and describe the session.
    """

    verdict: Verdict
    cause: Cause | None
    exit_code: int
    message: str
    seconds: float


@dataclass(frozen=True, slots=True)
class NotificationEnded:
    """People were notified of the end of the run, or the delivery of the message failed.

    Args:
        receiver: the name in the block `notifications`.
        fault: why the message was not delivered; empty if it was.
    """

    receiver: str
    kind: NotificationKind
    fault: str = ""


@dataclass(frozen=True, slots=True)
class SecretLeft:
    """A file contains a secret that cannot be masked without breaking the file. Don't copy or publish this file.

    Args:
        file: the path, relative to the run directory.
    """

    step: str
    file: str


@dataclass(frozen=True, slots=True)
class DurationsExpected:
    """The durations of cells in earlier runs are known.

    Args:
        seconds: the durations, by the names of the cells.
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
        command: the command that the task ran; empty if the task ran no command.
        output: the output of the command, or the message of the task.
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
    """Some failed cells were flaky in earlier runs. The search for common causes ignores the failures of these cells.

    Args:
        cells: the ids of the flaky cells.
    """

    step: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Note:
    """A message for the user."""

    step: str
    text: str


JournalEvent = (
    RunStarted
    | StepStarted
    | StepFinished
    | MatrixPlanned
    | ResultReused
    | AttemptSubmitted
    | AttemptWaiting
    | AttemptEnded
    | AttemptAbandoned
    | AttemptReleased
    | MetricMeasured
    | CheckJudged
    | CasesCounted
    | CaseFailed
    | ConfigurationChanged
    | LeaseAwaited
    | LeaseLost
    | ClusterChosen
    | SecretLeft
    | FlakyCellsFailed
    | ShardMerged
    | RunFinished
    | NotificationEnded
    | RunPaused
)
DisplayEvent = DurationsExpected | TaskStarted | TaskFinished | Note
Event = JournalEvent | DisplayEvent

AnyEvent = TypeVar("AnyEvent", bound=Event)
# A resumed run finds its steps, files and resources by these fields, so secrets are not masked in these fields.
_IDENTITIES: Final = frozenset(
    {
        *("run", "project", "directory", "presets", "revision", "seconds"),
        *("step", "key", "fingerprint", "attempt", "target", "path", "file", "cells"),
        *("check", "glob", "metric", "unit", "cluster", "member", "kubeconfig", "context", "namespace"),
    }
)
# The name of an Ansible task or of a test case may contain a secret. In all other events, `name` is an identity.
_EVENTS_WITH_MASKED_NAMES: Final = (TaskStarted, TaskFinished, CaseFailed)


def masked(event: AnyEvent, mask: Callable[[Any], Any]) -> AnyEvent:
    """Return an event with the secrets masked in all fields that a resumed run does not need."""
    identities = _IDENTITIES if isinstance(event, _EVENTS_WITH_MASKED_NAMES) else _IDENTITIES | {"name"}
    names = [field.name for field in fields(event) if field.name not in identities]
    return replace(event, **{name: mask(getattr(event, name)) for name in names})
