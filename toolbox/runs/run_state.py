"""Computes the state of a run from its journal, in one pass over the events.

Reports and a resumed run both use `RunState`. `read` reads a run directory; `fold` takes the events themselves.
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

CLEANUP: Final = "post_cleanup"
_MOST_DAMAGE: Final = 2  # so that an error message with these lines has at most five lines
_DAMAGED: Final = "the journal of this run is damaged: the events of these lines are missing"
_OfAttempt = AttemptWaiting | AttemptEnded | AttemptAbandoned | AttemptReleased
_OfStep = StepStarted | StepFinished | AttemptSubmitted | _OfAttempt | CheckJudged | MetricMeasured
_Dated = tuple[_OfStep, datetime, str]  # an event, its time, and the revision of the checkout in its session
_Labelled = tuple[Mapping[str, Any], Mapping[str, str]]
_NO_CELLS: Final[Mapping[str, _Labelled]] = {}
_END: Final = ("verdict", "cause", "message", "seconds")
_OfResource = ResourceMade | ResourceRemoved
_OfCluster = LeaseAwaited | LeaseLost | ClusterChosen | ResourcePlanned | _OfResource
_OfRun = RunStarted | RunFinished | MatrixPlanned | FlakyCellsFailed | SecretLeft | ConfigurationChanged


class State(StrEnum):
    """Whether the process of a run is alive, has finished the run, or has died before the end."""

    RUNNING = "running"
    FINISHED = "finished"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class CellAttempt:
    """An attempt of a cell.

    Args:
        name: the name of the workload on the target.
        verdict: None until the end of the attempt is recorded.
        judged: the latest judgement of each check.
        metrics: the measured metrics, by name.
        revision: the revision of the checkout when the attempt was submitted; empty if unknown.
        host: the host name of the machine that ran the attempt.
        accelerators: the accelerators of that machine.
        waiting: why the attempt has not started yet; empty after its start.
        is_abandoned: whether a person has given the attempt up.
        is_released: whether everything that the attempt left on its target has been removed.
        image: the container image, as `NAME@sha256:...`; empty if unknown.
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
        """How far metrics are out of their ranges, by metric; empty if a check failed for another reason."""
        return deviations_of(self.faults)

    @property
    def is_out_of_range(self) -> bool:
        """Whether the attempt failed only because measured values were out of their ranges."""
        return only_out_of_range(self.faults)

    @property
    def is_open(self) -> bool:
        """Whether no end of the attempt is recorded and no person has given it up: it may still be running."""
        return self.verdict is None and not self.is_abandoned


@dataclass(frozen=True, slots=True)
class StepState:
    """A step of a run.

    Args:
        verdict: None while the step is going on, or if the process of the run died during the step.
        started: when the latest execution of the step began.
        key: identifies the step in a resumed run, where the step may have another directory.
        settings: the settings of a cell, by axis; empty for other steps.
        labels: the text that reports show for each setting, by axis.
        is_undone: whether a later cleanup phase has undone the step; never for a cell.
        changed_configuration: whether the orchestration replaced a field of the configuration during the step.
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
    is_undone: bool = False
    changed_configuration: bool = False

    @property
    def identity(self) -> str:
        """A name that is the same in all runs of the project: the id of a cell, or the key of another step."""
        return _cell_id(self.key) if self.kind is StepKind.CELL else self.key or self.step

    @property
    def is_out_of_range(self) -> bool:
        """Whether the latest attempt failed only because measured values were out of their ranges."""
        return only_out_of_range(check for check in self.checks if check.passed is False)

    @property
    def measured(self) -> dict[str, Metric]:
        """The latest measurement of each metric, by metric."""
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
        """Whether the step was cancelled or has no verdict, or its latest attempt may be running."""
        if self.verdict is None or self.verdict is Verdict.CANCELLED:
            return True
        return bool(self.attempts) and self.attempts[-1].verdict is None

    def can_be_replayed(self, fingerprint: str) -> bool:
        """Return whether a resumed run can skip the step: it passed with this fingerprint and is not undone."""
        return self.verdict is Verdict.PASSED and not self.is_undone and self.fingerprint == fingerprint


@dataclass(frozen=True, slots=True)
class ClusterState:
    """A cluster that a run uses.

    Args:
        chosen: the cluster that the run took; None until the run has taken one.
        trouble: what the run waits for, or why the run has lost the cluster.
        planned: how the run planned to create the cluster; None if the run does not create it or has removed it.
        is_made: whether the creation of the cluster is complete.
    """

    name: str
    chosen: ClusterChosen | None = None
    trouble: str = ""
    planned: ResourcePlanned | None = None
    is_made: bool = False

    def __str__(self) -> str:
        """Return how to reach and remove the cluster, or what the run waits for."""
        if self.planned is not None:
            reach = f"export KUBECONFIG={self.planned.kubeconfig}" if self.is_made else "not completely created"
            return f"{self.planned.resource} ({reach}); to remove it: {self.planned.removal}"
        if self.trouble or self.chosen is None:
            return self.trouble
        parts = {"kubeconfig": self.chosen.kubeconfig, "context": self.chosen.context}
        parts["namespace"] = self.chosen.namespace
        reach = ", ".join(f"{name} {value}" for name, value in parts.items() if value)
        return f"{self.chosen.member} of its pool ({reach})" if self.chosen.member else reach


@dataclass(frozen=True, slots=True)
class RunState:
    """The state of a run. All fields are empty before the first event.

    Args:
        finished: the end of the run; None while the run is going on, or if its process died before the end.
        steps: the steps by directory, in their order. A repeated command appears only with its latest directory.
        planned_cells: the number of cells in the latest matrix; None if no matrix was planned.
        seconds: the wall time of all sessions together.
        updated: when the journal was last written.
        revision: the revision of the checkout in the latest session; empty if unknown.
        clusters: the clusters by their names in the configuration.
        secrets_left: the files that contain a secret and must not be published, relative to the run directory.
        damage: the lines of the journal that cannot be read; their events are missing in this state.
        latest: the latest step with each key.
        directories: the directories of all steps, including earlier directories of repeated commands.
        planned: the number of cells of each matrix, by the directory of its step.
        configuration_changes: the fields that the orchestration replaced in all sessions.
        session_changes: the fields that the orchestration replaced in the latest session.
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
        """The innermost steps that count and did not pass. Cancelled steps are omitted if another step failed."""
        not_passed = [step for step in self.steps.values() if step.verdict and not step.verdict.is_pass and step.counts]
        leaves = _leaves(not_passed)
        causes = [step for step in leaves if step.verdict is not Verdict.CANCELLED]
        return causes or leaves

    @property
    def cancelled(self) -> int:
        """The number of innermost cancelled steps."""
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
        """The attempts that may be running although no process waits for them, each with its cell."""
        latest = [(step, step.attempts[-1]) for step in self.cells if step.attempts]
        unended = [(step, attempt) for step, attempt in latest if attempt.is_open]
        return [(step, attempt) for step, attempt in unended if step.verdict or self.state is not State.RUNNING]

    @property
    def abandoned_attempts(self) -> list[tuple[StepState, CellAttempt]]:
        """The attempts that a person has given up and that may have left something on their targets."""
        attempts = [(step, attempt) for step in self.cells for attempt in step.attempts]
        return [(step, attempt) for step, attempt in attempts if attempt.is_abandoned and not attempt.is_released]

    @property
    def images(self) -> dict[str, str]:
        """The digests of the container images of all attempts, by the name of the image."""
        attempts = (attempt for step in self.cells for attempt in step.attempts)
        named = (attempt.image.partition("@") for attempt in attempts if attempt.image)
        return {name: digest for name, _, digest in named}

    @property
    def is_unfinished(self) -> bool:
        """Whether `project resume` has work to do: a step is open, or a planned cell never began."""
        cells = sum(1 for step in self.latest.values() if step.kind is StepKind.CELL)
        return sum(self.planned.values()) > cells or any(step.is_open for step in self.latest.values())


def read(directory: Path) -> RunState:
    """Return the state of a run.

    Raises:
        UsageError: the directory is not a run directory.
    """
    contents = journal.load(directory)
    if not contents.entries or not isinstance(contents.entries[0].event, RunStarted):
        missing = f"{RunDirectory.journal} is missing, or does not begin with a run_started event"
        raise UsageError(f"{directory} is not the directory of a run: {next(map(str, contents.damage), missing)}")
    run = fold(contents.entries, directory.absolute(), _planned_cells(directory))
    is_running = run.finished is None and journal.is_locked(directory)
    return replace(run, damage=contents.damage, state=State.RUNNING if is_running else run.state)


def fold(entries: Iterable[Entry], directory: Path = Path(), cells: Mapping[str, _Labelled] = _NO_CELLS) -> RunState:
    """Return the state of a run after these events. A run without an end is returned as dead.

    Args:
        cells: the settings and labels of each planned cell, by cell id.
    """
    events = _Fold()
    for entry in entries:
        events.add(entry.event, entry.time)
    all_steps = {
        name: _step(events.steps[name], cells, is_undone=name in events.undone, is_changed=name in events.changed)
        for name in sorted(events.steps, key=_order)
    }
    run_started = events.run_started or RunStarted("", "", "", ())
    steps = {name: step for name, step in all_steps.items() if name not in events.replaced}
    return RunState(
        run_started.run,
        run_started.project,
        directory,
        State.FINISHED if events.finished is not None else State.DEAD,
        run_started.presets,
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
        latest={key: all_steps[name] for key, name in events.latest.items()},
        directories=tuple(all_steps),
        planned=events.planned,
        configuration_changes=tuple(events.changes),
        session_changes=tuple(events.changes[events.earlier_changes :]),
    )


class _Fold:
    """Collects what the events of a journal say, grouped by run, step and cluster."""

    def __init__(self) -> None:
        self.run_started: RunStarted | None = None
        self.started: datetime | None = None
        self.updated: datetime | None = None
        self.finished: RunFinished | None = None
        self.seconds = 0.0
        self.revision = ""
        self.steps: dict[str, list[_Dated]] = {}  # the events of each step, by its directory
        self.latest: dict[str, str] = {}  # the latest directory of each step, by the key of the step
        self.replaced: set[str] = set()  # the earlier directories of repeated commands
        self.undone: set[str] = set()
        self.changed: set[str] = set()  # the directories of the steps during which the configuration changed
        self.unfinished: dict[str, None] = {}  # the directories of unfinished steps other than cells
        self.planned: dict[str, int] = {}
        self.planned_cells: int | None = None
        self.changes: list[ConfigurationChanged] = []
        self.earlier_changes = 0  # how many of `changes` were made in earlier sessions
        self.secrets_left: set[str] = set()
        self.flaky: set[str] = set()
        self.clusters: dict[str, ClusterState] = {}
        self.resources: dict[str, str] = {}  # the names of clusters, by the names of their resources

    def add(self, event: JournalEvent, time: datetime) -> None:
        """Add the next event."""
        if isinstance(event, _OfStep):
            self._add_of_step(event, time)
        elif isinstance(event, _OfCluster):
            self._add_of_cluster(event)
        else:
            self._add_of_run(event, time)
        if self.finished is None or self.finished is event:  # a removal of resources after the end takes no run time
            self.seconds += max(0.0, (time - (self.updated or time)).total_seconds())
        self.updated = time

    def _add_of_run(self, event: _OfRun, time: datetime) -> None:
        match event:
            case RunStarted():
                self.run_started, self.started = self.run_started or event, self.started or time
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
                self.changed.update(self.unfinished)

    def _add_of_step(self, event: _OfStep, time: datetime) -> None:
        if isinstance(event, StepStarted):
            self._start(event)
        elif isinstance(event, StepFinished):
            self.unfinished.pop(event.step, None)
        elif event.step not in self.steps:  # the line of the journal with the start of the step is damaged
            return
        self.steps.setdefault(event.step, []).append((event, time, self.revision))

    def _start(self, event: StepStarted) -> None:
        """Begin a step. If an earlier session ran the step in another directory, the new one replaces it."""
        if event.kind is StepKind.PHASE:
            self.unfinished.clear()
            if event.name == CLEANUP:
                self.undone.update(self.latest.values())
        key = event.key or event.step
        if (earlier := self.latest.get(key, event.step)) != event.step:
            self.replaced.update(step for step in self.steps if step == earlier or step.startswith(f"{earlier}/"))
        for directories in (self.replaced, self.undone, self.changed):
            directories.discard(event.step)
        self.latest[key] = event.step
        if event.kind is not StepKind.CELL:
            self.unfinished[event.step] = None

    def _add_of_cluster(self, event: _OfCluster) -> None:
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


def _step(events: Iterable[_Dated], cells: Mapping[str, _Labelled], *, is_undone: bool, is_changed: bool) -> StepState:
    """Return the state of a step after its events.

    The fields are collected before the `StepState` is made: a copy for each event would be slow.
    """
    fields: dict[str, Any] = {}
    checks: dict[CheckJudged, None] = {}
    judged: dict[CheckJudged, None] = {}  # the judgements of the latest attempt
    metrics: dict[MetricMeasured, None] = {}
    attempts: dict[int, dict[str, Any]] = {}
    latest: dict[str, Any] = {}  # the fields of the latest attempt
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
                latest["judged"] = judged
            case MetricMeasured():
                metrics[event] = None
                latest.setdefault("metrics", {})[event.metric] = event
            case AttemptSubmitted():
                if event.attempt not in attempts:
                    latest = attempts[event.attempt] = {"attempt": event.attempt, "target": event.target}
                    latest |= {"name": event.name, "submitted": time, "revision": revision}
                    checks, metrics, judged = {}, {}, {}  # drop the results of the earlier attempt
            case _:
                if isinstance(event, AttemptEnded):
                    judged = {}  # a resumed run may judge the attempt again
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
        is_undone=is_undone and not is_cell,
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
            return {"is_abandoned": True, "message": "a person has given the attempt up"}
        case AttemptReleased():
            return {"is_released": True}


def _cell_id(key: str) -> str:
    return key.rpartition("/")[2]


def _attribution(cells: Iterable[StepState], flaky: Container[str]) -> list[Finding]:
    """Return what failed cells have in common. Cells that are flaky or do not count are ignored."""
    return attribution.attribute(
        [
            Case(cell.labels, cell.verdict != Verdict.PASSED, failures.signature(cell.cause, cell.message, cell.labels))
            for cell in cells
            if cell.counts and cell.verdict in attribution.COMPARED and cell.identity not in flaky
        ]
    )


def _planned_cells(directory: Path) -> dict[str, _Labelled]:
    """Return the settings and labels of each planned cell, by cell id; empty if the run has no plan."""
    with contextlib.suppress(KeyError, TypeError):
        cells = RunDirectory(directory).read_plan()["cells"]
        return {cell["id"]: (cell["settings"], cell["labels"]) for cell in cells}
    return {}


def _leaves(steps: Sequence[StepState]) -> list[StepState]:
    """Return the steps that enclose no other step of the sequence."""
    enclosing = {name for step in steps for name in _with_enclosing(step.step) if name != step.step}
    return [step for step in steps if step.step not in enclosing]


def _with_enclosing(step: str) -> Iterator[str]:
    """Yield the directory of a step and the directories of the steps that enclose it."""
    return itertools.accumulate(step.split("/"), "{}/{}".format)


def _order(step: str) -> list[tuple[int, str]]:
    """Return a sort key that puts steps in the order of their numbers, and a step before the steps inside it."""
    parts = [part.partition("__") for part in step.split("/")]
    return [(int(number) if number.isdigit() else 0, name) for number, _, name in parts]
