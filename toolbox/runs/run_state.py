"""The state of a run, folded from its journal in one pass: how the run stands or ended, and what a resumed run knows.

`read` is for everybody who looks at a run; `fold` is the pass itself. Everything else is derived from `RunState`.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from toolbox.model.errors import UsageError
from toolbox.model.events import (
    AttemptAbandoned,
    AttemptEnded,
    AttemptReleased,
    AttemptSubmitted,
    AttemptWaiting,
    CheckJudged,
    ClusterChosen,
    ConfigurationChanged,
    FlakyCellsFailed,
    JournalEvent,
    LeaseAwaited,
    LeaseLost,
    MatrixPlanned,
    MetricMeasured,
    ResourceMade,
    ResourcePlanned,
    ResourceRemoved,
    RunFinished,
    RunStarted,
    SecretLeft,
    StepFinished,
    StepKind,
    StepStarted,
    deviations_of,
    only_out_of_range,
)
from toolbox.model.evidence import Deviation, Metric
from toolbox.model.verdicts import Cause, Verdict
from toolbox.runs import attribution, failures, journal
from toolbox.runs.attribution import Case, Finding
from toolbox.runs.journal import Damage, Entry
from toolbox.runs.layout import RunDirectory
from toolbox.system import filesystem

CLEANUP: Final = "post_cleanup"
_MOST_DAMAGE: Final = 2  # an error has five lines
_DAMAGED: Final = "the journal of this run is damaged: the events of these lines are missing"
_OfAttempt = AttemptWaiting | AttemptEnded | AttemptAbandoned | AttemptReleased
_OfStep = StepStarted | StepFinished | AttemptSubmitted | _OfAttempt | CheckJudged | MetricMeasured
_Dated = tuple[_OfStep, datetime, str]  # with its time, and the revision in its session
_Labelled = tuple[Mapping[str, Any], Mapping[str, str]]
_NO_CELLS: Final[Mapping[str, _Labelled]] = {}
_END: Final = ("verdict", "cause", "message", "seconds")
_OfResource = ResourceMade | ResourceRemoved
_OfCluster = LeaseAwaited | LeaseLost | ClusterChosen | ResourcePlanned | _OfResource
_OfRun = RunStarted | RunFinished | MatrixPlanned | FlakyCellsFailed | SecretLeft | ConfigurationChanged


class State(StrEnum):
    """Where a run stands."""

    RUNNING = "running"
    FINISHED = "finished"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class CellAttempt:
    """An attempt of a cell.

    Args:
        name: the name of the workload on the target.
        verdict: None before the end of the attempt is recorded.
        judged: the judgements of the checks; of an attempt that was judged again, the latest judgements.
        metrics: what was measured, by name.
        revision: of the checkout when the attempt was submitted; empty where it is not known.
        host: the machine that the attempt ran on, as the machine calls itself, and the `accelerators` seen there.
        waiting: why the attempt has not started yet; empty once it has.
        is_abandoned: whether a person has given the attempt up.
        is_released: whether nothing of the attempt is left on its target.
        image: the container image, as `NAME@sha256:...`; empty where it is not known.
    """

    attempt: int
    target: str
    submitted: datetime
    verdict: Verdict | None = None
    cause: Cause | None = None
    message: str = ""
    seconds: float | None = None
    judged: Sequence[CheckJudged] = ()
    metrics: Mapping[str, MetricMeasured] = field(default_factory=dict)
    revision: str = ""
    host: str = ""
    accelerators: str = ""
    waiting: str = ""
    is_abandoned: bool = False
    is_released: bool = False
    image: str = ""
    name: str = ""

    @property
    def faults(self) -> list[CheckJudged]:
        """The checks that did not pass."""
        return [check for check in self.judged if check.passed is False]

    @property
    def deviations(self) -> dict[str, Deviation]:
        """The metrics that were out of the range of earlier runs, where nothing else was wrong."""
        return deviations_of(self.faults)

    @property
    def is_out_of_range(self) -> bool:
        """Whether the attempt failed only because measured values were out of their ranges."""
        return only_out_of_range(self.faults)

    @property
    def is_open(self) -> bool:
        """Whether the end of the attempt is unknown: it may be running, and no person has given it up."""
        return self.verdict is None and not self.is_abandoned


@dataclass(frozen=True, slots=True)
class StepState:
    """A step.

    Args:
        verdict: None while the step is going on, or where its process died.
        started: when the step began, for the last time.
        key: see `StepStarted`.
        settings: of a cell, by axis, and `labels`: how each is shown. From the plan.
        is_spent: whether a cleanup has undone the step since.
        changed_configuration: whether something in the step replaced a field of the configuration.
    """

    step: str
    name: str
    kind: StepKind
    verdict: Verdict | None = None
    cause: Cause | None = None
    message: str = ""
    seconds: float | None = None
    counts: bool = True
    checks: Sequence[CheckJudged] = ()
    metrics: Sequence[MetricMeasured] = ()
    attempts: Sequence[CellAttempt] = ()
    key: str = ""
    started: datetime | None = None
    fingerprint: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    is_spent: bool = False
    changed_configuration: bool = False

    @property
    def identity(self) -> str:
        """What tells the step from others in every run of its project: a cell's id, or the place of another step."""
        return _cell_id(self.key) if self.kind is StepKind.CELL else self.key or self.step

    @property
    def is_out_of_range(self) -> bool:
        """Whether the step failed only because measured values were out of their ranges, in its last attempt."""
        return only_out_of_range(check for check in self.checks if check.passed is False)

    @property
    def measured(self) -> dict[str, Metric]:
        """The metrics by name, as they were measured last."""
        return {
            event.metric: Metric(event.metric, event.value, event.unit, event.fault, direction=event.direction)
            for event in self.metrics
        }

    @property
    def depth(self) -> int:
        """How deep the step is nested; 0 for a phase."""
        return self.step.count("/")

    @property
    def is_open(self) -> bool:
        """Whether the step has no end that counts: its latest attempt may be running."""
        if self.verdict is None or self.verdict is Verdict.CANCELLED:
            return True
        return bool(self.attempts) and self.attempts[-1].verdict is None

    def answers(self, fingerprint: str) -> bool:
        """Tell whether the step passed, did the same thing, and still holds."""
        return self.verdict is Verdict.PASSED and not self.is_spent and self.fingerprint == fingerprint


@dataclass(frozen=True, slots=True)
class ClusterState:
    """A cluster of a run.

    Args:
        chosen: which cluster it is; None before the run has one.
        trouble: what the run waits for, or why the run has lost the cluster.
        planned: what was to be created, and may exist; None where nothing does.
        is_made: whether the cluster was created completely.
    """

    name: str
    chosen: ClusterChosen | None = None
    trouble: str = ""
    planned: ResourcePlanned | None = None
    is_made: bool = False

    def __str__(self) -> str:
        """Return what a person should know of the cluster."""
        if self.planned is not None:
            reach = f"export KUBECONFIG={self.planned.kubeconfig}" if self.is_made else "not whole"
            return f"{self.planned.resource} ({reach}); it is removed by: {self.planned.removal}"
        if self.trouble or self.chosen is None:
            return self.trouble
        parts = {"kubeconfig": self.chosen.kubeconfig, "context": self.chosen.context}
        parts["namespace"] = self.chosen.namespace
        reach = ", ".join(f"{name} {value}" for name, value in parts.items() if value)
        return f"{self.chosen.member} of its pool ({reach})" if self.chosen.member else reach


@dataclass(frozen=True, slots=True)
class RunState:
    """A run. The state of a run that is being started is empty.

    Args:
        finished: the end of the run; None while the run is going on, or where its process died.
        steps: by their directories, in their order. A command that was run again has only its latest directory here.
        latest: the latest step of each key.
        directories: of all steps, also of those that were run again in other directories.
        planned: how many cells each matrix has, by its step.
        seconds: wall time, all sessions together.
        updated: when the journal was last written.
        revision: of the checkout in the latest session; empty where it is not known.
        clusters: by their names in the configuration.
        secrets_left: the files, from the run directory on, that hold a secret and must not be passed on.
        damage: the lines of the journal that cannot be read; their events are missing here.
        configuration_changes: what the orchestration changed, in all sessions; `session_changes`: in the latest one.
    """

    run: str = ""
    project: str = ""
    directory: Path = field(default_factory=Path)
    state: State = State.DEAD
    presets: tuple[str, ...] = ()
    started: datetime | None = None
    finished: RunFinished | None = None
    steps: Mapping[str, StepState] = field(default_factory=dict)
    planned_cells: int | None = None
    attribution: Sequence[Finding] = ()
    seconds: float = 0.0
    updated: datetime | None = None
    revision: str = ""
    clusters: Mapping[str, ClusterState] = field(default_factory=dict)
    secrets_left: frozenset[str] = frozenset()
    damage: Sequence[Damage] = ()
    latest: Mapping[str, StepState] = field(default_factory=dict)
    directories: Sequence[str] = ()
    planned: Mapping[str, int] = field(default_factory=dict)
    configuration_changes: Sequence[ConfigurationChanged] = ()
    session_changes: Sequence[ConfigurationChanged] = ()

    @property
    def cells(self) -> list[StepState]:
        """The cells that have begun."""
        return [step for step in self.steps.values() if step.kind is StepKind.CELL]

    @property
    def failures(self) -> list[StepState]:
        """The steps that did not pass and count, without those that failed only because of a step inside them.

        Cancelled steps are left out where something else went wrong: they were cancelled because of that.
        """
        bad = [step for step in self.steps.values() if step.verdict and not step.verdict.is_pass and step.counts]
        leaves = _leaves(bad)
        causes = [step for step in leaves if step.verdict is not Verdict.CANCELLED]
        return causes or leaves

    @property
    def cancelled(self) -> int:
        """How many steps were cancelled, without those around them."""
        return len(_leaves([step for step in self.steps.values() if step.verdict is Verdict.CANCELLED]))

    @property
    def damage_warning(self) -> str:
        """A warning that names the damaged lines of the journal; empty if the journal is whole."""
        if not self.damage:
            return ""
        first, more = self.damage[:_MOST_DAMAGE], len(self.damage) - _MOST_DAMAGE
        lines = [str(damage) for damage in first] + ([f"and {more} more lines"] if more > 0 else [])
        return "\n  ".join([_DAMAGED, *lines])

    @property
    def open_attempts(self) -> list[tuple[StepState, CellAttempt]]:
        """The attempts that may be running and that no process waits for, each with its cell."""
        latest = [(step, step.attempts[-1]) for step in self.cells if step.attempts]
        unended = [(step, attempt) for step, attempt in latest if attempt.is_open]
        return [(step, attempt) for step, attempt in unended if step.verdict or self.state is not State.RUNNING]

    @property
    def abandoned_attempts(self) -> list[tuple[StepState, CellAttempt]]:
        """The attempts that a person has given up and that may have left something on their targets."""
        tried = [(step, attempt) for step in self.cells for attempt in step.attempts]
        return [(step, attempt) for step, attempt in tried if attempt.is_abandoned and not attempt.is_released]

    @property
    def images(self) -> dict[str, str]:
        """The digests of the container images that attempts ran in, by the names of the images."""
        tried = (attempt for step in self.cells for attempt in step.attempts)
        named = (attempt.image.partition("@") for attempt in tried if attempt.image)
        return {name: digest for name, _, digest in named}

    @property
    def is_unfinished(self) -> bool:
        """Whether a step was cancelled, or never ended, or a cell never began, or its latest attempt is open."""
        cells = sum(1 for step in self.latest.values() if step.kind is StepKind.CELL)
        return sum(self.planned.values()) > cells or any(step.is_open for step in self.latest.values())


def read(directory: Path) -> RunState:
    """Return the state of a run.

    Raises:
        UsageError: the directory is not that of a run.
    """
    contents = journal.load(directory)
    if not contents.entries or not isinstance(contents.entries[0].event, RunStarted):
        missing = f"{RunDirectory.journal} is missing, or does not begin with a run_started event"
        raise UsageError(f"{directory} is not the directory of a run: {next(map(str, contents.damage), missing)}")
    found = fold(contents.entries, directory.absolute(), _planned_cells(directory))
    is_running = found.finished is None and journal.is_held(directory)
    return replace(found, damage=contents.damage, state=State.RUNNING if is_running else found.state)


def fold(entries: Iterable[Entry], directory: Path = Path(), cells: Mapping[str, _Labelled] = _NO_CELLS) -> RunState:
    """Return the state of a run after these events, as if its process were dead.

    Args:
        cells: the settings and labels of each cell of the plan, by its id.
    """
    events = _Fold()
    for entry in entries:
        events.take(entry.event, entry.time)
    every = {
        name: _step(events.steps[name], cells, is_spent=name in events.spent, is_changed=name in events.changed)
        for name in sorted(events.steps, key=_order)
    }
    begun = events.begun or RunStarted("", "", "", ())
    steps = {name: step for name, step in every.items() if name not in events.replaced}
    return RunState(
        begun.run,
        begun.project,
        directory,
        State.FINISHED if events.finished is not None else State.DEAD,
        begun.presets,
        events.started,
        events.finished,
        steps,
        events.planned_cells,
        _attribution(
            [step for step in steps.values() if step.kind is StepKind.CELL and step.identity in cells], events.flaky
        ),
        events.seconds,
        events.updated,
        events.revision,
        events.clusters,
        frozenset(events.secrets_left),
        latest={key: every[name] for key, name in events.latest.items()},
        directories=tuple(every),
        planned=events.planned,
        configuration_changes=tuple(events.changes),
        session_changes=tuple(events.changes[events.earlier_changes :]),
    )


class _Fold:
    """The events that have been taken in."""

    def __init__(self) -> None:
        self.begun: RunStarted | None = None
        self.started: datetime | None = None
        self.updated: datetime | None = None
        self.finished: RunFinished | None = None
        self.seconds = 0.0
        self.revision = ""
        self.steps: dict[str, list[_Dated]] = {}  # the events of each step, by its directory
        self.latest: dict[str, str] = {}  # directories by the keys of the steps
        self.replaced: set[str] = set()  # the directories of commands that were run again in others
        self.spent: set[str] = set()
        self.changed: set[str] = set()
        self.going_on: dict[str, None] = {}  # the steps around what happens, but for cells
        self.planned: dict[str, int] = {}
        self.planned_cells: int | None = None
        self.changes: list[ConfigurationChanged] = []
        self.earlier_changes = 0  # how many of them earlier sessions made
        self.secrets_left: set[str] = set()
        self.flaky: set[str] = set()
        self.clusters: dict[str, ClusterState] = {}
        self.resources: dict[str, str] = {}  # clusters by the names of their resources

    def take(self, event: JournalEvent, time: datetime) -> None:
        """Take in the next event."""
        if isinstance(event, _OfStep):
            self._take_step(event, time)
        elif isinstance(event, _OfCluster):
            self._take_cluster(event)
        else:
            self._take_run(event, time)
        if self.finished is None or self.finished is event:  # what is removed after the end takes no time of the run
            self.seconds += max(0.0, (time - (self.updated or time)).total_seconds())
        self.updated = time

    def _take_run(self, event: _OfRun, time: datetime) -> None:
        match event:
            case RunStarted():
                self.begun, self.started = self.begun or event, self.started or time
                self.finished, self.revision, self.updated = None, event.revision, time
                self.earlier_changes = len(self.changes)
            case RunFinished():
                self.finished = event
            case MatrixPlanned():
                self.planned_cells = self.planned[event.step] = event.cells
            case FlakyCellsFailed():
                self.flaky.update(event.cells)
            case SecretLeft():
                self.secrets_left.add(event.file)
            case ConfigurationChanged():
                self.changes.append(event)
                self.changed.update(self.going_on)

    def _take_step(self, event: _OfStep, time: datetime) -> None:
        if isinstance(event, StepStarted):
            self._start(event)
        elif isinstance(event, StepFinished):
            self.going_on.pop(event.step, None)
        elif event.step not in self.steps:  # the line with the beginning of the step is damaged
            return
        self.steps.setdefault(event.step, []).append((event, time, self.revision))

    def _start(self, event: StepStarted) -> None:
        """Begin a step, in place of what it was before the run was resumed."""
        if event.kind is StepKind.PHASE:
            self.going_on.clear()
            if event.name == CLEANUP:
                self.spent.update(self.latest.values())
        key = event.key or event.step
        if (earlier := self.latest.get(key, event.step)) != event.step:
            # What was inside it is shown only where it is run again in its own directory.
            self.replaced.update(step for step in self.steps if step == earlier or step.startswith(f"{earlier}/"))
        for directories in (self.replaced, self.spent, self.changed):
            directories.discard(event.step)
        self.latest[key] = event.step
        if event.kind is not StepKind.CELL:
            self.going_on[event.step] = None

    def _take_cluster(self, event: _OfCluster) -> None:
        if isinstance(event, ResourcePlanned):
            self.resources[event.resource] = event.cluster
        name = self.resources.get(event.resource) if isinstance(event, _OfResource) else event.cluster
        if name is not None:
            self.clusters[name] = _cluster(self.clusters.get(name) or ClusterState(name), event)


def _cluster(cluster: ClusterState, event: _OfCluster) -> ClusterState:
    """Return the state of a cluster after an event."""
    match event:
        case LeaseAwaited() | LeaseLost():
            return replace(cluster, trouble=event.message)
        case ClusterChosen():
            return replace(cluster, chosen=event, trouble="")
        case ResourcePlanned():
            return replace(cluster, planned=event, is_made=False)
        case ResourceMade():
            return replace(cluster, is_made=True)
        case ResourceRemoved():
            return replace(cluster, planned=None, is_made=False)


def _step(events: Iterable[_Dated], cells: Mapping[str, _Labelled], *, is_spent: bool, is_changed: bool) -> StepState:
    """Return the state of a step after its events. Its fields are gathered first: copies would take long."""
    fields: dict[str, Any] = {}
    checks: dict[CheckJudged, None] = {}
    judged: dict[CheckJudged, None] = {}  # in the latest attempt
    metrics: dict[MetricMeasured, None] = {}
    attempts: dict[int, dict[str, Any]] = {}
    last: dict[str, Any] = {}
    for event, time, revision in events:
        match event:
            case StepStarted():
                fields = {"started": time, "key": event.key, "fingerprint": event.fingerprint}
                fields |= {"step": event.step, "name": event.name, "kind": event.kind}
                checks, metrics = {}, {}
            case StepFinished():
                fields |= {name: getattr(event, name) for name in ("step", "name", "kind", *_END, "counts")}
            case CheckJudged():
                checks[event] = judged[event] = None
                last["judged"] = judged
            case MetricMeasured():
                metrics[event] = None
                last.setdefault("metrics", {})[event.metric] = event
            case AttemptSubmitted():
                if event.attempt not in attempts:
                    last = attempts[event.attempt] = {"attempt": event.attempt, "target": event.target}
                    last |= {"name": event.name, "submitted": time, "revision": revision}
                    checks, metrics, judged = {}, {}, {}  # those of an earlier attempt say nothing about this one
            case _:
                judged = {} if isinstance(event, AttemptEnded) else judged  # it may be judged again
                attempts.get(event.attempt, {}).update(_changes(event))
    is_cell = fields["kind"] is StepKind.CELL
    settings, labels = cells.get(_cell_id(fields.get("key", "")), ({}, {})) if is_cell else ({}, {})
    return StepState(
        **fields,
        checks=tuple(checks),
        metrics=tuple(metrics),
        attempts=tuple(CellAttempt(**{**each, "judged": tuple(each.get("judged", ()))}) for each in attempts.values()),
        settings=settings,
        labels=labels,
        is_spent=is_spent and not is_cell,
        changed_configuration=is_changed,
    )


def _changes(event: _OfAttempt) -> dict[str, Any]:
    """Return the fields of an attempt that an event changes."""
    match event:
        case AttemptWaiting():
            return {"waiting": event.reason}
        case AttemptEnded():
            return {"waiting": "", **{name: getattr(event, name) for name in (*_END, "host", "accelerators", "image")}}
        case AttemptAbandoned():
            return {"is_abandoned": True, "message": "a person has given it up"}
        case AttemptReleased():
            return {"is_released": True}


def _cell_id(key: str) -> str:
    return key.rpartition("/")[2]


def _attribution(cells: Iterable[StepState], flaky: Container[str]) -> list[Finding]:
    """Return what the cells that failed have in common, as far as the plan says what they are."""
    return attribution.attribute(
        [
            Case(cell.labels, cell.verdict != Verdict.PASSED, failures.signature(cell.cause, cell.message, cell.labels))
            for cell in cells
            if cell.counts and cell.verdict in attribution.COMPARED and cell.identity not in flaky
        ]
    )


def _planned_cells(directory: Path) -> dict[str, _Labelled]:
    """Return the settings and labels of each cell of the plan, by its id; none where the run has no matrix."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        cells = filesystem.read_json(RunDirectory(directory).plan)["cells"]
        return {cell["id"]: (cell["settings"], cell["labels"]) for cell in cells}
    return {}


def _around(step: str) -> Iterator[str]:
    """Yield the directory of a step, and those around it."""
    return itertools.accumulate(step.split("/"), "{}/{}".format)


def _leaves(steps: Sequence[StepState]) -> list[StepState]:
    """Return the steps that have none of the others inside them."""
    around = {name for step in steps for name in _around(step.step) if name != step.step}
    return [step for step in steps if step.step not in around]


def _order(step: str) -> list[tuple[int, str]]:
    """Return what sorts steps as their directories are numbered, a step before those inside it."""
    parts = [part.partition("__") for part in step.split("/")]
    return [(int(number) if number.isdigit() else 0, name) for number, _, name in parts]
