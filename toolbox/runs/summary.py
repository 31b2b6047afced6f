"""What is derived from the journal of a run, at any time, by anyone: how it stands, or how it ended."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from toolbox.model.errors import UsageError, describe
from toolbox.model.events import (
    AttemptAbandoned,
    AttemptEnded,
    AttemptReleased,
    AttemptSubmitted,
    AttemptWaiting,
    CheckJudged,
    FlakyCellsFailed,
    MatrixPlanned,
    MetricMeasured,
    RunFinished,
    RunStarted,
    SecretLeft,
    StepFinished,
    StepKind,
    StepStarted,
    deviations_of,
    only_out_of_range,
)
from toolbox.model.evidence import Deviation
from toolbox.model.verdicts import Verdict
from toolbox.runs import attribution, failures, journal, reserved
from toolbox.runs.attribution import Case, Finding
from toolbox.runs.journal import Damage
from toolbox.runs.layout import RunDirectory
from toolbox.runs.reserved import Reserved
from toolbox.system import filesystem

log = logging.getLogger(__name__)

_MOST_DAMAGE: Final = 2  # an error has five lines
_DAMAGED: Final = "the journal of this run is damaged: the events of these lines are missing"
_OfAttempt = AttemptWaiting | AttemptEnded | AttemptAbandoned | AttemptReleased
_SEPARATED: Final = {Verdict.PASSED: False, Verdict.FAILED: True, Verdict.ERROR: True, Verdict.XPASSED: True}


class State(StrEnum):
    """Where a run stands."""

    RUNNING = "running"
    FINISHED = "finished"
    DEAD = "dead"


@dataclass(slots=True)
class AttemptSummary:
    """An attempt of a cell, from the journal.

    Args:
        verdict: None where nobody has seen its end.
        faults: the checks that did not pass, by their names and metrics: an attempt may be judged twice.
        metrics: what it measured, by name.
        revision: of the checkout when it was submitted; empty where it is not known.
        host: the machine that it ran on, as that calls itself, and the `accelerators` that could be seen there.
        waiting: why it has not started yet; empty once it has.
        is_abandoned: whether a person has given it up.
        is_released: whether nothing of it is left on its target.
        image: the container image that it ran in, as `NAME@sha256:...`; empty where that is not known.
    """

    attempt: int
    target: str
    submitted: datetime
    verdict: Verdict | None = None
    cause: str | None = None
    message: str = ""
    seconds: float | None = None
    faults: dict[tuple[str, str], CheckJudged] = field(default_factory=dict)
    metrics: dict[str, MetricMeasured] = field(default_factory=dict)
    revision: str = ""
    host: str = ""
    accelerators: str = ""
    waiting: str = ""
    is_abandoned: bool = False
    is_released: bool = False
    image: str = ""

    @property
    def deviations(self) -> dict[str, Deviation]:
        """The metrics that were out of the range of earlier runs, where nothing else was wrong."""
        return deviations_of(self.faults.values())

    @property
    def is_out_of_range(self) -> bool:
        """Whether the attempt failed only because measured values were out of their ranges."""
        return only_out_of_range(self.faults.values())


@dataclass(slots=True)
class StepSummary:
    """A step, from the journal.

    Args:
        verdict: None while it is going on, or where its process died.
        started: when it began, for the last time.
        key: see `StepStarted`.
        settings: of a cell, by axis, and `labels`: how each is shown. From the plan.
    """

    step: str
    name: str
    kind: StepKind
    verdict: Verdict | None = None
    cause: str | None = None
    message: str = ""
    seconds: float | None = None
    counts: bool = True
    checks: list[CheckJudged] = field(default_factory=list)
    metrics: list[MetricMeasured] = field(default_factory=list)
    attempts: list[AttemptSummary] = field(default_factory=list)
    key: str = ""
    started: datetime | None = None
    fingerprint: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """What tells the step from others in every run of its project: a cell's id, or the place of another step."""
        return self.key.rpartition("/")[2] if self.kind is StepKind.CELL else self.key or self.step

    @property
    def is_out_of_range(self) -> bool:
        """Whether the step failed only because measured values were out of their ranges, in its last attempt."""
        return only_out_of_range(check for check in self.checks if check.passed is False)

    @property
    def depth(self) -> int:
        """How deep the step is nested; 0 for a phase."""
        return self.step.count("/")


@dataclass(slots=True)
class RunSummary:
    """A run, from its journal.

    Args:
        seconds: wall time, all its sessions together.
        updated: when the journal was last written.
        revision: of the checkout in its latest session; empty where it is not known.
        clusters: by their names in the configuration.
        secrets_left: the files, from the run directory on, that hold a secret and must not be passed on.
        damage: the lines of the journal that cannot be read; their events are missing here.
    """

    run: str
    project: str
    directory: Path
    state: State
    presets: tuple[str, ...] = ()
    started: datetime | None = None
    finished: RunFinished | None = None
    steps: dict[str, StepSummary] = field(default_factory=dict)
    planned_cells: int | None = None
    attribution: list[Finding] = field(default_factory=list)
    seconds: float = 0.0
    updated: datetime | None = None
    revision: str = ""
    clusters: dict[str, Reserved] = field(default_factory=dict)
    secrets_left: set[str] = field(default_factory=set)
    flaky: set[str] = field(default_factory=set)
    damage: tuple[Damage, ...] = ()

    @property
    def cells(self) -> list[StepSummary]:
        """The cells that have begun."""
        return [step for step in self.steps.values() if step.kind is StepKind.CELL]

    @property
    def failures(self) -> list[StepSummary]:
        """The steps that did not pass and count, without those that failed only because of one inside them.

        What was cancelled counts only where nothing else went wrong: it was cancelled because of that.
        """
        bad = [step for step in self.steps.values() if step.verdict and not step.verdict.is_pass and step.counts]
        leaves = _leaves(bad)
        causes = [step for step in leaves if step.verdict is not Verdict.CANCELLED]
        return causes or leaves

    @property
    def damage_warning(self) -> str:
        """A warning that names the damaged lines of the journal; empty if the journal is whole."""
        if not self.damage:
            return ""
        first, more = self.damage[:_MOST_DAMAGE], len(self.damage) - _MOST_DAMAGE
        lines = [str(damage) for damage in first] + ([f"and {more} more lines"] if more > 0 else [])
        return "\n  ".join([_DAMAGED, *lines])

    @property
    def open_attempts(self) -> list[tuple[StepSummary, AttemptSummary]]:
        """The attempts that may be running and that this process does not wait for, each with its cell."""
        latest = [(step, step.attempts[-1]) for step in self.cells if step.attempts]
        unended = [entry for entry in latest if entry[1].verdict is None and not entry[1].is_abandoned]
        return [(step, attempt) for step, attempt in unended if step.verdict or self.state is not State.RUNNING]

    @property
    def abandoned_attempts(self) -> list[tuple[StepSummary, AttemptSummary]]:
        """The attempts that a person has given up and that may have left something on their targets."""
        tried = [(step, attempt) for step in self.cells for attempt in step.attempts]
        return [(step, attempt) for step, attempt in tried if attempt.is_abandoned and not attempt.is_released]

    @property
    def cancelled(self) -> int:
        """How many steps were cancelled, without those around them."""
        return len(_leaves([step for step in self.steps.values() if step.verdict is Verdict.CANCELLED]))

    def as_json(self) -> dict[str, Any]:
        """Return the summary as `summary.json` holds it."""
        end = self.finished
        return {
            "run": self.run,
            "project": self.project,
            "presets": list(self.presets),
            "state": self.state,
            "verdict": end.verdict if end else None,
            "cause": end.cause if end else None,
            "exit_code": end.exit_code if end else None,
            "message": end.message if end else "",
            "started": self.started.isoformat() if self.started else None,
            "seconds": end.seconds if end else None,
            "directory": str(self.directory),
            "planned_cells": self.planned_cells,
            "attribution": [str(finding) for finding in self.attribution],
            "damage": [str(damage) for damage in self.damage],
            "open_attempts": [
                {"cell": step.name, "attempt": attempt.attempt, "target": attempt.target}
                for step, attempt in self.open_attempts
            ],
            "clusters": {name: str(cluster) for name, cluster in self.clusters.items()},
            **({"secrets_left": sorted(self.secrets_left)} if self.secrets_left else {}),
            "steps": [_step_json(step) for step in self.steps.values()],
        }


def derive(directory: Path) -> RunSummary:
    """Derive the summary of a run from its journal.

    Raises:
        UsageError: the directory is not that of a run.
    """
    contents = journal.load(directory)
    summary: RunSummary | None = None
    keys: dict[str, str] = {}
    for entry in contents.entries:
        event = entry.event
        if isinstance(event, RunStarted):
            summary = summary or RunSummary(
                event.run, event.project, directory.absolute(), State.DEAD, event.presets, entry.time
            )
            summary.finished = None
            summary.revision, summary.updated = event.revision, entry.time
        elif summary is None:
            break
        elif isinstance(event, RunFinished):
            summary.finished = event
        else:
            _take(summary, event, entry.time, keys)
        if summary.finished in (None, event):  # what is removed after the end takes no time of the run
            summary.seconds += max(0.0, (entry.time - (summary.updated or entry.time)).total_seconds())
        summary.updated = entry.time
    if summary is None:
        reason = next(
            map(str, contents.damage), f"{RunDirectory.journal} is missing, or does not begin with a run_started event"
        )
        raise UsageError(f"{directory} is not the directory of a run: {reason}")
    summary.damage = contents.damage
    summary.clusters = reserved.derive(entry.event for entry in contents.entries)
    _take_plan(summary, RunDirectory(directory).plan)
    summary.steps = dict(sorted(summary.steps.items(), key=lambda item: _order(item[0])))
    if summary.finished is not None:
        summary.state = State.FINISHED
    elif journal.is_held(directory):
        summary.state = State.RUNNING
    return summary


def _take_plan(summary: RunSummary, file: Path) -> None:
    """Take from the plan what the cells are, and find out what those that failed have in common."""
    cells: dict[str, tuple[Mapping[str, Any], Mapping[str, str]]] = {}
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # a run without a matrix has none
        planned = filesystem.read_json(file)["cells"]
        cells = {cell["id"]: (cell["settings"], cell["labels"]) for cell in planned}
    cases = []
    for step in summary.cells:
        step.settings, step.labels = cells.get(step.identity, ({}, {}))
        if step.identity not in cells:
            continue
        if step.counts and step.verdict in _SEPARATED and step.identity not in summary.flaky:
            failure = failures.signature(step.cause, step.message, step.labels)
            cases.append(Case(step.labels, _SEPARATED[step.verdict], failure))
    summary.attribution = attribution.attribute(cases)


def write(directory: Path) -> RunSummary:
    """Derive the summary of a run, write it to `summary.json`, and return it."""
    summary = derive(directory)
    filesystem.write_derived(
        RunDirectory(directory).summary, lambda: json.dumps(summary.as_json(), indent=2, ensure_ascii=False) + "\n"
    )
    return summary


def refresh(directory: Path) -> RunSummary:
    """Derive the summary of a run, write it where that is possible, and return it. A failed write is a warning."""
    try:
        return write(directory)
    except OSError as error:
        log.warning("%s of this run could not be written: %s", RunDirectory.summary, describe(error))
        return derive(directory)


def _leaves(steps: Sequence[StepSummary]) -> list[StepSummary]:
    """Return the steps that have none of the others inside them."""
    around = {step.step[:index] for step in steps for index, char in enumerate(step.step) if char == "/"}
    return [step for step in steps if step.step not in around]


def _order(step: str) -> list[tuple[int, str]]:
    """Return what sorts steps as their directories are numbered, a step before those inside it."""
    parts = [part.partition("__") for part in step.split("/")]
    return [(int(number) if number.isdigit() else 0, name) for number, _, name in parts]


def _take(summary: RunSummary, event: object, time: datetime, keys: dict[str, str]) -> None:
    match event:
        case StepStarted():
            _start(summary, event, time, keys)
        case MatrixPlanned():
            summary.planned_cells = event.cells
        case FlakyCellsFailed():
            summary.flaky |= set(event.cells)
        case SecretLeft():
            summary.secrets_left.add(event.file)
        case StepFinished():
            step = summary.steps.setdefault(event.step, StepSummary(event.step, event.name, event.kind))
            step.verdict, step.cause, step.message = event.verdict, event.cause, event.message
            step.seconds, step.counts = event.seconds, event.counts
        case (
            CheckJudged()
            | MetricMeasured()
            | AttemptSubmitted()
            | AttemptWaiting()
            | AttemptEnded()
            | AttemptAbandoned()
            | AttemptReleased()
        ):
            if (found := summary.steps.get(event.step)) is not None:
                _add(found, event, time, summary.revision)


def _start(summary: RunSummary, event: StepStarted, time: datetime, keys: dict[str, str]) -> None:
    """Begin a step, in place of what it was before the run was resumed."""
    if event.key:
        earlier = keys.get(event.key, event.step)
        keys[event.key] = event.step
        if earlier != event.step:
            for step in [step for step in summary.steps if step == earlier or step.startswith(f"{earlier}/")]:
                del summary.steps[step]
    before = summary.steps.get(event.step)
    attempts = before.attempts if before is not None else []
    summary.steps[event.step] = StepSummary(
        event.step,
        event.name,
        event.kind,
        attempts=attempts,
        key=event.key,
        started=time,
        fingerprint=event.fingerprint,
    )


def _add(
    step: StepSummary,
    event: CheckJudged | MetricMeasured | AttemptSubmitted | _OfAttempt,
    time: datetime,
    revision: str,
) -> None:
    match event:
        case CheckJudged():
            step.checks += [] if event in step.checks else [event]
            if event.passed is False and step.attempts:
                step.attempts[-1].faults[event.check, event.metric] = event
        case MetricMeasured():
            step.metrics += [] if event in step.metrics else [event]
            if step.attempts:
                step.attempts[-1].metrics[event.metric] = event
        case AttemptSubmitted() if all(attempt.attempt != event.attempt for attempt in step.attempts):
            # What an earlier attempt was judged by says nothing of this one.
            step.checks.clear()
            step.metrics.clear()
            step.attempts.append(AttemptSummary(event.attempt, event.target, time, revision=revision))
        case AttemptWaiting() | AttemptEnded() | AttemptAbandoned() | AttemptReleased():
            for attempt in [attempt for attempt in step.attempts if attempt.attempt == event.attempt]:
                _update(attempt, event)


def _update(attempt: AttemptSummary, event: _OfAttempt) -> None:
    match event:
        case AttemptWaiting():
            attempt.waiting = event.reason
        case AttemptEnded():
            attempt.waiting = ""
            attempt.verdict, attempt.cause = event.verdict, event.cause
            attempt.message, attempt.seconds = event.message, event.seconds
            attempt.host, attempt.accelerators = event.host, event.accelerators
            attempt.image = event.image
        case AttemptAbandoned():
            attempt.is_abandoned, attempt.message = True, "a person has given it up"
        case AttemptReleased():
            attempt.is_released = True


def _step_json(step: StepSummary) -> dict[str, Any]:
    return {
        "step": step.step,
        "name": step.name,
        "kind": step.kind,
        "verdict": step.verdict,
        "cause": step.cause,
        "message": step.message,
        "seconds": step.seconds,
        "counts": step.counts,
        "checks": [_without_step(check) for check in step.checks],
        "metrics": [_without_step(metric) for metric in step.metrics],
        "attempts": [
            {
                "attempt": attempt.attempt,
                "target": attempt.target,
                "host": attempt.host,
                "accelerators": attempt.accelerators,
                "image": attempt.image,
                "verdict": attempt.verdict,
                "cause": attempt.cause,
                "message": attempt.message,
                "seconds": attempt.seconds,
                "waiting": attempt.waiting,
                "abandoned": attempt.is_abandoned,
            }
            for attempt in step.attempts
        ],
    }


def _without_step(event: CheckJudged | MetricMeasured) -> dict[str, Any]:
    return {name: value for name, value in asdict(event).items() if name != "step"}
