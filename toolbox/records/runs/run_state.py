"""The state of a run, as frozen data: its steps, the attempts of its cells, and its clusters.

`run_reader.py` computes the state from the journal. Reports and a resumed run use the state.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from toolbox.ground.model.cases import CaseReport, counts_text
from toolbox.ground.model.events import (
    CheckJudged,
    ClusterChosen,
    ConfigurationChanged,
    MetricMeasured,
    RunFinished,
    RunPaused,
    ShardMerged,
    StepKind,
    only_out_of_range,
)
from toolbox.ground.model.evidence import Deviation, Metric, deviations_of
from toolbox.ground.model.resources import OpenResource
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.records.runs.attribution import Finding
from toolbox.records.runs.journal import Damage

_MAX_DAMAGE: Final = 2  # so that an error message with these lines has at most five lines
_DAMAGED: Final = "of this run is damaged: the events of these lines are missing"


class State(StrEnum):
    """Whether the process of a run is alive, has finished the run, has left it open, or has died before the end."""

    RUNNING = "running"
    FINISHED = "finished"
    PAUSED = "paused"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class CellAttempt:
    """An attempt of a cell. `AttemptEnded` describes the fields that are not listed here.

    Args:
        name: the name of the workload on the target.
        verdict: None until the end of the attempt is recorded.
        judged: the latest judgement of each check.
        metrics: the measured metrics, by name.
        revision: the revision of the checkout when the attempt was submitted; empty if unknown.
        waiting: why the attempt has not started yet; empty after its start.
        is_abandoned: whether a person has given the attempt up.
        is_released: whether everything that the attempt left on its target has been removed.
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
    paid_seconds: float | None = None
    name: str = ""

    @property
    def deviations(self) -> dict[str, Deviation]:
        """The values out of the range of earlier runs, by metric; empty if a check failed for another reason."""
        return deviations_of(check.judgement for check in self.judged)

    @property
    def is_out_of_range(self) -> bool:
        """Whether the attempt failed only because measured values were out of their ranges."""
        return only_out_of_range(self.judged)

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
        cases: the test cases of the latest attempt: one report for each pattern of JUnit files.
        reused_from: the name of the earlier run in which the cell passed; empty if this run executed the cell.
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
    cases: Sequence[CaseReport] = ()
    reused_from: str = ""

    @property
    def identity(self) -> str:
        """A name that is the same in all runs of the project: the id of a cell, or the key of another step."""
        return cell_id(self.key) if self.kind is StepKind.CELL else self.key or self.step

    @property
    def has_failed(self) -> bool:
        """Whether the step ended with a verdict that is not a pass."""
        return self.verdict is not None and not self.verdict.is_pass

    @property
    def is_out_of_range(self) -> bool:
        """Whether the latest attempt failed only because measured values were out of their ranges."""
        return only_out_of_range(self.checks)

    @property
    def measured(self) -> dict[str, Metric]:
        """The latest measurement of each metric, by the name of the metric."""
        return {
            event.metric: Metric(event.metric, event.value, event.unit, event.fault, direction=event.direction)
            for event in self.metrics
        }

    @property
    def tests(self) -> str:
        """How many test cases have each outcome: `118 passed, 2 failed`; empty if the step has none."""
        return counts_text(self.cases) if self.cases else ""

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
    """

    name: str
    chosen: ClusterChosen | None = None
    trouble: str = ""

    def __str__(self) -> str:
        """Return how to reach the cluster, or what the run waits for."""
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
        planned_cells: the number of cells in the matrix; None if no matrix was planned.
        seconds: the wall time of all sessions together.
        updated: when the journal was last written.
        revision: the revision of the checkout in the latest session; empty if unknown.
        clusters: the clusters by their names in the configuration.
        secrets_left: the files that contain a secret and must not be published, relative to the run directory.
        damage: the lines of the journal and the ledger that cannot be read; their events are missing in this state.
        latest: the latest step with each key.
        directories: the directories of all steps, including earlier directories of repeated commands.
        planned: the number of cells of each matrix, by the directory of its step.
        configuration_changes: the fields that the orchestration replaced in all sessions.
        session_changes: the fields that the orchestration replaced in the latest session.
        resources: the remote resources on the ledger of the run that may exist.
        shards: the runs of shards that were merged into this run; empty for a run that was executed.
        paused: the end of the latest session of a run whose next phases another session executes; None if that session
            goes on, or ended the run.
        phase_changes: the fields that the orchestration replaced in the latest execution of each phase, by its name.
        missing_phases: the phases of a run in steps that have not run, while the run has not ended.
        contradiction: why `finished` is an error although the journal records a pass; empty if `finished` is the
            recorded end.
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
    resources: Sequence[OpenResource] = ()
    shards: Sequence[ShardMerged] = ()
    paused: RunPaused | None = None
    phase_changes: Mapping[str, Sequence[ConfigurationChanged]] = field(default_factory=dict)
    missing_phases: Sequence[str] = ()
    contradiction: str = ""

    @property
    def cells(self) -> list[StepState]:
        """The cells that have begun."""
        return [step for step in self.steps.values() if step.kind is StepKind.CELL]

    @property
    def failures(self) -> list[StepState]:
        """The innermost steps that count and did not pass. Cancelled steps are omitted if another step failed."""
        leaves = _leaves([step for step in self.steps.values() if step.has_failed and step.counts])
        causes = [step for step in leaves if step.verdict is not Verdict.CANCELLED]
        return causes or leaves

    @property
    def cancelled(self) -> int:
        """The number of cancelled steps that contain no other cancelled step."""
        return len(_leaves([step for step in self.steps.values() if step.verdict is Verdict.CANCELLED]))

    @property
    def remaining_resources(self) -> list[OpenResource]:
        """The remote resources that the end of the run left, or could not delete."""
        is_over = self.state not in {State.RUNNING, State.PAUSED}
        return [entry for entry in self.resources if entry.failure or is_over]

    @property
    def damage_warning(self) -> str:
        """A warning that names the damaged lines of the journal and the ledger; empty if both are whole."""
        if not self.damage:
            return ""
        first, more = self.damage[:_MAX_DAMAGE], len(self.damage) - _MAX_DAMAGE
        lines = [str(damage) for damage in first] + ([f"and {more} more lines"] if more > 0 else [])
        return "\n  ".join([f"the {first[0].file.partition('.')[0]} {_DAMAGED}", *lines])

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


def cell_id(key: str) -> str:
    """Return the id of a cell, given the key of its step."""
    return key.rpartition("/")[2]


def _leaves(steps: Sequence[StepState]) -> list[StepState]:
    """Return the steps that enclose no other step of the sequence."""
    enclosing = {name for step in steps for name in _with_enclosing(step.step) if name != step.step}
    return [step for step in steps if step.step not in enclosing]


def _with_enclosing(step: str) -> Iterator[str]:
    """Yield the directory of a step and the directories of the steps that enclose it."""
    return itertools.accumulate(step.split("/"), "{}/{}".format)
