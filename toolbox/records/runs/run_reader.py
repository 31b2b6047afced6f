"""Computes the state of a run from its journal, in one pass over the events.

`read` reads a run directory; `fold` takes the events themselves. `run_state.py` describes the result.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from toolbox.ground.model.cases import CaseReport
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.events import (
    AttemptAbandoned,
    AttemptEnded,
    AttemptReleased,
    AttemptSubmitted,
    AttemptWaiting,
    CaseFailed,
    CasesCounted,
    CheckJudged,
    ClusterChosen,
    ConfigurationChanged,
    FlakyCellsFailed,
    JournalEvent,
    LeaseAwaited,
    LeaseLost,
    MatrixPlanned,
    MetricMeasured,
    NotificationEnded,
    ResultReused,
    RunFinished,
    RunPaused,
    RunStarted,
    SecretLeft,
    ShardMerged,
    StepFinished,
    StepKind,
    StepStarted,
)
from toolbox.ground.model.text import abbreviated
from toolbox.ground.model.verdicts import Verdict
from toolbox.records.runs import attribution, failures, journal, layout, ledger, run_verdict
from toolbox.records.runs.attribution import Case, Finding
from toolbox.records.runs.journal import Entry
from toolbox.records.runs.layout import CLEANUP, DELETION, RunDirectory
from toolbox.records.runs.run_state import (
    CellAttempt,
    ClusterState,
    RunState,
    State,
    StepState,
    cell_id,
)

_OfAttempt = AttemptWaiting | AttemptEnded | AttemptAbandoned | AttemptReleased
_OfStep = (
    StepStarted
    | StepFinished
    | AttemptSubmitted
    | _OfAttempt
    | CheckJudged
    | MetricMeasured
    | CasesCounted
    | CaseFailed
    | ResultReused
)
_Dated = tuple[_OfStep, datetime, str]  # an event, its time, and the revision of the checkout in its session
_Labelled = tuple[Mapping[str, Any], Mapping[str, str]]
_NO_CELLS: Final[Mapping[str, _Labelled]] = {}
_END: Final = ("verdict", "cause", "message", "seconds")
_OfCluster = LeaseAwaited | LeaseLost | ClusterChosen
_OfRun = (
    RunStarted
    | RunFinished
    | MatrixPlanned
    | FlakyCellsFailed
    | SecretLeft
    | ConfigurationChanged
    | NotificationEnded
    | RunPaused
    | ShardMerged
)


def read(directory: Path) -> RunState:
    """Return the state of a run.

    Raises:
        UsageError: the directory is not a run directory, or its records have the format of another version.
        InfrastructureError: the ledger of the run cannot be read.
    """
    request = RunDirectory(directory).read_request()
    if (found := request.get("format", layout.RUN_FORMAT)) != layout.RUN_FORMAT:
        raise UsageError(
            f"the run {directory} has format {abbreviated(found)}, and this version of Topgallant reads format "
            f"{layout.RUN_FORMAT}. Use the version that wrote the run, or a later one"
        )
    contents = journal.load(directory)
    if not contents.entries or not isinstance(contents.entries[0].event, RunStarted):
        missing = f"{RunDirectory.journal} is missing, or does not begin with a run_started event"
        raise UsageError(f"{directory} is not the directory of a run: {next(map(str, contents.damage), missing)}")
    run = fold(contents.entries, directory.absolute(), _planned_cells(directory))
    is_running = run.finished is None and run.paused is None and journal.is_locked(directory)
    resources = ledger.load(RunDirectory(directory).ledger)
    return replace(
        run,
        missing_phases=_missing_phases(run, request),
        damage=(*contents.damage, *resources.damage),
        state=State.RUNNING if is_running else run.state,
        resources=resources.resources,
    )


def fold(entries: Iterable[Entry], directory: Path = Path(), cells: Mapping[str, _Labelled] = _NO_CELLS) -> RunState:
    """Return the state of a run after these events. A run without an end is returned as dead.

    If the recorded end is a pass that the steps contradict, the end of the returned state is an error.

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
    end = _end(events, steps, cells)
    return RunState(
        run_started.run,
        run_started.project,
        directory,
        _state_after(events),
        run_started.presets,
        events.started,
        end,
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
        shards=tuple(events.shards),
        paused=events.paused,
        phase_changes={name: tuple(changes) for name, changes in events.phase_changes.items()},
        contradiction=end.message if end is not None and end is not events.finished else "",
    )


def _end(events: _Fold, steps: Mapping[str, StepState], cells: Mapping[str, _Labelled]) -> RunFinished | None:
    """Return the end of a run; None if it has not ended."""
    if events.finished is None:
        return None
    planned = sum(events.expected.values())
    has_matrix = planned > 0 or any(step.kind is StepKind.CELL for step in steps.values())
    labels = {id_: labels for id_, (_, labels) in cells.items()} if has_matrix else {}
    unbegun = run_verdict.unbegun_cells(steps.values(), labels)
    # The steps of a merged run are those of several sessions, which were compared before they were merged.
    session = () if events.shards else events.session
    return run_verdict.derived_end(events.finished, steps, planned=planned, unbegun=unbegun, session=session)


def _state_after(events: _Fold) -> State:
    if events.finished is not None:
        return State.FINISHED
    return State.PAUSED if events.paused is not None else State.DEAD


def _missing_phases(run: RunState, request: Mapping[str, Any]) -> list[str]:
    """Return the phases of a run in steps that have not begun."""
    names = request.get("project_phases")
    if run.finished is not None or not request.get("in_steps") or not isinstance(names, list):
        return []
    began = [name for name in names if f"/{name}" in run.latest]
    # A phase that was left out, such as `pre_cleanup`, is not missing when a later one has begun.
    first_left = 1 + max((names.index(name) for name in began if name != CLEANUP), default=-1)
    return [str(name) for name in names[first_left:] if name not in began]


class _Fold:
    """Collects what the events of a journal say, grouped by run, step and cluster."""

    def __init__(self) -> None:
        self.run_started: RunStarted | None = None
        self.started: datetime | None = None
        self.updated: datetime | None = None
        self.finished: RunFinished | None = None
        self.paused: RunPaused | None = None
        self.phase_changes: dict[str, list[ConfigurationChanged]] = {}  # by the name of the phase
        self.seconds = 0.0
        self.revision = ""
        self.steps: dict[str, list[_Dated]] = {}  # the events of each step, by its directory
        self.latest: dict[str, str] = {}  # the latest directory of each step, by the key of the step
        self.replaced: set[str] = set()  # the earlier directories of repeated commands
        self.undone: set[str] = set()
        self.changed: set[str] = set()  # the directories of the steps during which the configuration changed
        self.unfinished: dict[str, None] = {}  # the directories of unfinished steps other than cells
        self.session: set[str] = set()  # the directories of the steps that began in the latest session
        self.planned: dict[str, int] = {}
        self.expected: dict[str, int] = {}  # `planned`, without the matrices of earlier executions of a repeated step
        self.planned_cells: int | None = None
        self.changes: list[ConfigurationChanged] = []
        self.earlier_changes = 0  # how many of `changes` were made in earlier sessions
        self.secrets_left: set[str] = set()
        self.flaky: set[str] = set()
        self.clusters: dict[str, ClusterState] = {}
        self.shards: list[ShardMerged] = []

    def add(self, event: JournalEvent, time: datetime) -> None:
        """Add the next event."""
        if isinstance(event, _OfStep):
            self._add_of_step(event, time)
        elif isinstance(event, _OfCluster):
            cluster = self.clusters.get(event.cluster) or ClusterState(event.cluster)
            self.clusters[event.cluster] = _cluster(cluster, event)
        else:
            self._add_of_run(event, time)
        if self.finished is None or self.finished is event:  # removing resources after the end is no run time
            self.seconds += max(0.0, (time - (self.updated or time)).total_seconds())
        self.updated = time

    def _add_of_run(self, event: _OfRun, time: datetime) -> None:
        match event:
            case RunStarted() | RunFinished() | RunPaused():
                self._add_of_session(event, time)
            case MatrixPlanned():
                self.planned[event.step] = self.expected[event.step] = event.cells
                self.planned_cells = sum(self.planned.values())  # each shard of a merged run has planned its cells
            case ShardMerged():
                self.shards.append(event)
                self.updated = time  # the shards ran at the same time, or with pauses between them
            case FlakyCellsFailed():
                self.flaky.update(event.cells)
            case SecretLeft():
                self.secrets_left.add(event.file)
            case NotificationEnded():
                pass  # a message to people does not change the state
            case ConfigurationChanged():
                self.changes.append(event)
                if self.phase_changes:
                    next(reversed(self.phase_changes.values())).append(event)
                self.changed.update(self.unfinished)

    def _add_of_session(self, event: RunStarted | RunFinished | RunPaused, time: datetime) -> None:
        if isinstance(event, RunFinished):
            self.finished = event
        elif isinstance(event, RunPaused):
            self.paused = event
        else:
            self.run_started, self.started = self.run_started or event, self.started or time
            self.finished, self.paused, self.revision, self.updated = None, None, event.revision, time
            self.earlier_changes = len(self.changes)
            self.session.clear()

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
            self.phase_changes.pop(event.name, None)
            self.phase_changes[event.name] = []
            self.unfinished.clear()
        # After both, what earlier steps have created may be gone, so a resumed run repeats these steps.
        if (event.kind is StepKind.PHASE and event.name == CLEANUP) or _is_deletion(event):
            self.undone.update(self.latest.values())
        self.session.add(event.step)
        # The matrix of a repeated step is planned again, maybe in another step inside it.
        for step in [name for name in self.expected if f"{name}/".startswith(f"{event.step}/")]:
            del self.expected[step]
        key = event.key or event.step
        if (earlier := self.latest.get(key, event.step)) != event.step:
            self.replaced.update(step for step in self.steps if step == earlier or step.startswith(f"{earlier}/"))
        for directories in (self.replaced, self.undone, self.changed):
            directories.discard(event.step)
        self.latest[key] = event.step
        if event.kind is not StepKind.CELL:
            self.unfinished[event.step] = None


def _is_deletion(event: StepStarted) -> bool:
    return event.kind is StepKind.GROUP and event.name == DELETION and "/" not in event.step


def _cluster(cluster: ClusterState, event: _OfCluster) -> ClusterState:
    """Return the state of a cluster after an event."""
    match event:
        case LeaseAwaited() | LeaseLost():
            return replace(cluster, trouble=event.message)
        case ClusterChosen():
            return replace(cluster, chosen=event, trouble="")


def _step(events: Sequence[_Dated], cells: Mapping[str, _Labelled], *, is_undone: bool, is_changed: bool) -> StepState:
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
            case CasesCounted() | CaseFailed() | ResultReused():
                pass  # see `_case_reports` and `_reused_from`
            case _:
                if isinstance(event, AttemptEnded):
                    judged = {}  # a resumed run may judge the attempt again
                attempts.get(event.attempt, {}).update(_changes(event))
    is_cell = fields["kind"] is StepKind.CELL
    settings, labels = cells.get(cell_id(fields.get("key", "")), ({}, {})) if is_cell else ({}, {})
    return StepState(
        **fields,
        checks=tuple(checks),
        metrics=tuple(metrics),
        attempts=tuple(CellAttempt(**{**each, "judged": tuple(each.get("judged", ()))}) for each in attempts.values()),
        settings=settings,
        labels=labels,
        is_undone=is_undone and not is_cell,
        changed_configuration=is_changed,
        cases=_case_reports(event for event, _, _ in events),
        reused_from=_reused_from(event for event, _, _ in events),
    )


def _reused_from(events: Iterable[_OfStep]) -> str:
    """Return the name of the run whose result the cell has taken; empty if the cell was executed."""
    reused = ""
    for event in events:
        if isinstance(event, ResultReused):
            reused = event.run
        elif isinstance(event, AttemptSubmitted):
            reused = ""
    return reused


def _case_reports(events: Iterable[_OfStep]) -> tuple[CaseReport, ...]:
    """Return the test cases of the latest attempt, one report for each pattern of JUnit files."""
    counted: dict[str, CasesCounted] = {}
    failed: dict[str, list[CaseFailed]] = {}
    for event in events:
        match event:
            case StepStarted() | AttemptSubmitted():
                counted, failed = {}, {}
            case CasesCounted():
                counted[event.glob], failed[event.glob] = event, []
            case CaseFailed():
                failed.setdefault(event.glob, []).append(event)
    return tuple(event.report(failed[glob]) for glob, event in counted.items())


def _changes(event: _OfAttempt) -> dict[str, Any]:
    """Return the fields of an attempt that an event changes."""
    match event:
        case AttemptWaiting():
            return {"waiting": event.reason}
        case AttemptEnded():
            fields = (*_END, "host", "accelerators", "image", "paid_seconds")
            return {"waiting": "", **{name: getattr(event, name) for name in fields}}
        case AttemptAbandoned():
            return {"is_abandoned": True, "message": "a person has given the attempt up"}
        case AttemptReleased():
            return {"is_released": True}


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
    """Return the settings and labels of each planned cell, by cell id; empty if the run has no plan.

    Cells that are not as a plan describes them are left out: the code under test may have changed the file.
    """
    cells = RunDirectory(directory).read_plan().get("cells")
    labelled = [_labelled(cell) for cell in (cells if isinstance(cells, list) else ()) if isinstance(cell, dict)]
    return dict(each for each in labelled if each is not None)


def _labelled(cell: Mapping[str, Any]) -> tuple[str, _Labelled] | None:
    id_, settings, labels = cell.get("id"), cell.get("settings"), cell.get("labels")
    if not isinstance(id_, str) or not isinstance(settings, dict) or not isinstance(labels, dict):
        return None
    return (id_, (settings, labels)) if all(isinstance(label, str) for label in labels.values()) else None


def _order(step: str) -> list[tuple[int, str]]:
    """Return a sort key that puts steps in the order of their numbers, and a step before the steps inside it."""
    parts = [part.partition("__") for part in step.split("/")]
    return [(int(number) if number.isdigit() else 0, name) for number, _, name in parts]
