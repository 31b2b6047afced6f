"""What a run did before it was resumed, from its journal: which steps need not be done again, and where they are.

A step is known again by its key: its place in the orchestration, and for a cell the digest of its settings. What
`post_cleanup` has undone is spent: only the results of cells count after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from toolbox.model.events import (
    AttemptAbandoned,
    AttemptEnded,
    AttemptReleased,
    AttemptSubmitted,
    CheckJudged,
    ConfigurationChanged,
    KeptEvent,
    MatrixPlanned,
    MetricMeasured,
    RunStarted,
    StepFinished,
    StepKind,
    StepStarted,
    deviations_of,
)
from toolbox.model.evidence import Deviation, Metric
from toolbox.model.verdicts import Verdict

CLEANUP = "post_cleanup"
_OfStep = (
    StepFinished | AttemptSubmitted | AttemptEnded | AttemptAbandoned | AttemptReleased | MetricMeasured | CheckJudged
)


@dataclass(slots=True)
class PastAttempt:
    """An attempt of a cell.

    Args:
        ended: how, or None where nobody has seen its end.
        is_released: whether nothing of it is left on its target.
        is_abandoned: whether a person has given it up.
        judged: the judgements of the checks; of an attempt that was judged again, only the latest.
    """

    submitted: AttemptSubmitted
    ended: AttemptEnded | None = None
    is_released: bool = False
    is_abandoned: bool = False
    judged: list[CheckJudged] = field(default_factory=list)
    _is_judged: bool = False

    @property
    def deviations(self) -> dict[str, Deviation]:
        """The metrics that were out of their range, where nothing else was wrong."""
        return deviations_of(check for check in self.judged if check.passed is False)

    @property
    def is_open(self) -> bool:
        """Whether the end of the attempt is unknown: it may be running, and no person has given it up."""
        return self.ended is None and not self.is_abandoned

    def take(self, event: CheckJudged | AttemptEnded | AttemptAbandoned | AttemptReleased) -> None:
        """Take in what happened to the attempt."""
        match event:
            case CheckJudged():
                self.judged = [event] if self._is_judged else [*self.judged, event]
                self._is_judged = False
            case AttemptEnded():
                self.ended = event
                self._is_judged = True
            case AttemptAbandoned():
                self.is_abandoned = True
            case AttemptReleased():
                self.is_released = True


@dataclass(slots=True)
class PastStep:
    """A step as it stands in the journal.

    Args:
        finished: how it ended, or None where it did not.
        is_spent: whether a cleanup has undone it since.
        changed_configuration: whether something in it replaced a field.
    """

    started: StepStarted
    finished: StepFinished | None = None
    is_spent: bool = False
    changed_configuration: bool = False
    attempts: list[PastAttempt] = field(default_factory=list)
    metrics: dict[str, Metric] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Whether it has begun, and has no end that counts: its latest attempt may be running."""
        if self.finished is None or self.finished.verdict is Verdict.CANCELLED:
            return True
        return bool(self.attempts) and self.attempts[-1].ended is None

    def take(self, event: _OfStep) -> None:
        """Take in what happened in the step."""
        match event:
            case StepFinished():
                self.finished = event
            case AttemptSubmitted():
                if all(attempt.submitted.attempt != event.attempt for attempt in self.attempts):
                    self.attempts.append(PastAttempt(event))
            case AttemptEnded() | AttemptAbandoned() | AttemptReleased():
                for attempt in self.attempts:
                    if attempt.submitted.attempt == event.attempt:
                        attempt.take(event)
            case MetricMeasured():
                self.metrics[event.metric] = Metric(
                    event.metric, event.value, event.unit, event.fault, direction=event.direction
                )
            case CheckJudged() if self.attempts:
                self.attempts[-1].take(event)

    def answers(self, fingerprint: str) -> bool:
        """Tell whether the step passed, did the same thing, and still holds."""
        passed = self.finished is not None and self.finished.verdict is Verdict.PASSED
        return passed and not self.is_spent and self.started.fingerprint == fingerprint


class Past:
    """The steps of a run by their keys. There are none in a new run."""

    def __init__(self, events: Iterable[KeptEvent] = ()) -> None:
        self._by_key: dict[str, PastStep] = {}
        self._by_identity: dict[str, PastStep] = {}
        self._open: list[PastStep] = []
        self._planned: dict[str, int] = {}
        self.configuration_changes: list[ConfigurationChanged] = []
        for event in events:
            self._take(event)
        self._open.clear()

    def find(self, key: str) -> PastStep | None:
        """Return the latest step of this key."""
        return self._by_key.get(key)

    def steps(self) -> Iterator[PastStep]:
        """Yield the latest step of each directory."""
        return iter(self._by_identity.values())

    def cells(self) -> Iterator[PastStep]:
        """Yield the cells."""
        return (step for step in self._by_key.values() if step.started.kind is StepKind.CELL)

    def is_unfinished(self) -> bool:
        """Tell whether a step was cancelled, or never ended, or a cell never began, or its latest attempt is open."""
        steps = self._by_key.values()
        return sum(self._planned.values()) > sum(1 for _ in self.cells()) or any(step.is_open for step in steps)

    def images(self) -> dict[str, str]:
        """Return the digests of the container images that attempts ran in, by the names of the images."""
        ended = [attempt.ended for step in self.cells() for attempt in step.attempts if attempt.ended is not None]
        named = (end.image.partition("@") for end in ended if end.image)
        return {name: digest for name, _, digest in named}

    def open_attempts(self) -> list[tuple[PastStep, PastAttempt]]:
        """Return the attempts that may be running, each with its cell."""
        latest = [(step, step.attempts[-1]) for step in self.cells() if step.is_open and step.attempts]
        return [(step, attempt) for step, attempt in latest if attempt.is_open]

    def abandoned_attempts(self) -> list[tuple[PastStep, PastAttempt]]:
        """Return the attempts that a person has given up and that may have left something, each with its cell."""
        tried = [(step, attempt) for step in self.cells() for attempt in step.attempts]
        return [(step, attempt) for step, attempt in tried if attempt.is_abandoned and not attempt.is_released]

    def _take(self, event: KeptEvent) -> None:
        match event:
            case RunStarted():
                self.configuration_changes.clear()
            case MatrixPlanned():
                self._planned[event.step] = event.cells
            case ConfigurationChanged():
                self.configuration_changes.append(event)
                for step in self._open:
                    step.changed_configuration = True
            case StepStarted():
                self._start(event)
            case (
                StepFinished()
                | AttemptSubmitted()
                | AttemptEnded()
                | AttemptAbandoned()
                | AttemptReleased()
                | MetricMeasured()
                | CheckJudged()
            ):
                if (found := self._by_identity.get(event.step)) is not None:
                    found.take(event)
                if isinstance(event, StepFinished):
                    self._open = [other for other in self._open if other is not found]

    def _start(self, event: StepStarted) -> None:
        if event.kind is StepKind.PHASE:
            self._open.clear()
            if event.name == CLEANUP:
                for step in self._by_key.values():
                    step.is_spent = step.started.kind is not StepKind.CELL
        before = self._by_identity.get(event.step)
        step = PastStep(event, attempts=before.attempts if before else [])
        self._by_key[event.key or event.step] = step
        self._by_identity[event.step] = step
        if event.kind is not StepKind.CELL:
            self._open.append(step)
