"""One cell on its way through the run: its step, its attempts, and what they came to."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from toolbox.matrix.judgement import deviations, verdict, without
from toolbox.matrix.plan import Cell
from toolbox.model.backoff import pause
from toolbox.model.events import (
    AttemptEnded,
    AttemptSubmitted,
    AttemptWaiting,
    CheckJudged,
    MetricMeasured,
    StepKind,
    StepStarted,
)
from toolbox.model.evidence import Deviation, Judgement, Metric
from toolbox.model.verdicts import Cause, Verdict
from toolbox.model.workloads import Handle
from toolbox.runs import steps
from toolbox.runs.layout import StepDirectory
from toolbox.runs.past import PastStep
from toolbox.runs.steps import Outcome, Step
from toolbox.system import filesystem

_RETRIED: Final = (Cause.INFRASTRUCTURE, Cause.CAPACITY, Cause.TIMEOUT, Cause.PRODUCT, Cause.CHECK)


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What an attempt came to, as far as it can be said without other cells.

    Args:
        outcome: where the workload did not end by itself; None where the judgements say it.
        judgements: of the checks that compare with no other cell, by name.
        seconds: wall time of the workload.
        host: the machine that it ran on, as that calls itself, and the `accelerators` that could be seen there.
        image: the container image that it ran in, as `NAME@sha256:...`; empty where that is not known.
        remark: what else is to be told.
        is_open: whether nobody knows how the attempt ends: it may be running, or what it left is still on its target.
            It is left to a resumed run, and no other one is begun beside it.
    """

    outcome: Outcome | None
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    judgements: tuple[tuple[str, Judgement], ...] = ()
    seconds: float = 0.0
    remark: str = ""
    is_open: bool = False
    host: str = ""
    accelerators: str = ""
    image: str = ""

    @property
    def remarks(self) -> list[str]:
        """What a person should know of it, whatever it came to."""
        reported = [found.message for _, found in self.judgements if found.passed is None and found.deviation]
        return [*reported, *([self.remark] if self.remark else [])]

    def so_far(self) -> Outcome:
        """Return what it came to."""
        return self.outcome or verdict(self.judgements)


@dataclass(frozen=True, slots=True)
class Ended:
    """How an attempt ended. `deviations`: see `judgement.deviations`."""

    number: int
    outcome: Outcome
    deviations: Mapping[str, Deviation] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CellResult:
    """How a cell ended.

    Args:
        directory: its step's.
        attempts: how many it took, in this run and before.
        counts: whether its verdict counts for the run: not in quarantine.
    """

    name: str
    settings: Mapping[str, Any]
    outcome: Outcome
    metrics: Mapping[str, Metric]
    directory: Path
    attempts: int = 1
    counts: bool = True


class CellState(StrEnum):
    """Where a cell stands in this session of the run.

    NEW: nothing is decided yet.
    WAITING: it waits for room on a target.
    PAUSED: it waits some time before its next attempt.
    BLOCKED: it waits until the attempt that a person has given up is removed from its target.
    STARTING: its attempt is being submitted, or is looked for where an earlier session submitted it.
    RUNNING: its workload is on the target.
    JUDGING: its workload has ended; what it left is brought back and judged.
    COMPARING: its attempt passed so far, and waits for the cell that it is compared with.
    ENDED: its verdict is written down.
    """

    NEW = "new"
    WAITING = "waiting"
    PAUSED = "paused"
    BLOCKED = "blocked"
    STARTING = "starting"
    RUNNING = "running"
    JUDGING = "judging"
    COMPARING = "comparing"
    ENDED = "ended"


_NEXT: Final[Mapping[CellState, frozenset[CellState]]] = {
    CellState.NEW: frozenset(
        {CellState.WAITING, CellState.BLOCKED, CellState.STARTING, CellState.JUDGING, CellState.ENDED}
    ),
    CellState.WAITING: frozenset({CellState.STARTING, CellState.ENDED}),
    CellState.PAUSED: frozenset({CellState.WAITING, CellState.ENDED}),
    CellState.BLOCKED: frozenset({CellState.WAITING, CellState.ENDED}),
    CellState.STARTING: frozenset({CellState.RUNNING, CellState.PAUSED, CellState.ENDED}),
    CellState.RUNNING: frozenset({CellState.JUDGING}),
    CellState.JUDGING: frozenset({CellState.COMPARING, CellState.PAUSED, CellState.ENDED}),
    CellState.COMPARING: frozenset({CellState.PAUSED, CellState.ENDED}),
    CellState.ENDED: frozenset(),
}


@dataclass(slots=True)
class CellRun:
    """A cell that is being run.

    Args:
        attempt: the number of its latest attempt.
        target: where that is.
        handle: of its workload, once it was submitted.
        is_adopted: whether that attempt was submitted before the run was resumed.
        state: changed by `become`.
        history: how its attempts ended, in this run and before.
        waiting: why the latest attempt has not started yet; empty once it has.
    """

    cell: Cell
    step: Step
    parent: Step
    run: str
    attempt: int = 0
    target: str = ""
    handle: Handle | None = None
    is_adopted: bool = False
    state: CellState = CellState.NEW
    history: list[Ended] = field(default_factory=list)
    waiting: str = ""

    def become(self, state: CellState) -> None:
        """Change the state of the cell."""
        assert state in _NEXT[self.state], f"{self.cell.name} cannot become {state}: it is {self.state}"
        self.state = state

    @property
    def name(self) -> str:
        """The name of the attempt's workload: the same, whoever asks for it."""
        return f"{self.run}-{self.cell.id}-{self.attempt}"

    @property
    def directory(self) -> Path:
        """The directory of the attempt."""
        return StepDirectory(self.step.directory).attempt(self.attempt).path

    def remember(self, before: PastStep) -> None:
        """Take over the attempts that the cell had before the run was resumed: their numbers are not given again."""
        for attempt in before.attempts:
            self.attempt, self.target = attempt.submitted.attempt, attempt.submitted.target
            if attempt.ended is not None and before.is_open:
                outcome = Outcome(attempt.ended.verdict, attempt.ended.cause, attempt.ended.message)
                self.history.append(Ended(self.attempt, outcome, attempt.deviations))

    def begin(self) -> None:
        """Write down that the cell is being run, and with which settings."""
        cell, step = self.cell, self.step
        directory = StepDirectory(step.directory)
        step.recorder.record(
            StepStarted(step.identity, cell.name, StepKind.CELL, "", step.key, cell.fingerprint), sync=False
        )
        directory.failure.unlink(missing_ok=True)
        if not filesystem.size(directory.settings):
            filesystem.write_yaml(directory.settings, dict(cell.settings))

    def submit(self, target: str) -> None:
        """Write down that the next attempt is about to be started."""
        self.become(CellState.STARTING)
        self.attempt, self.target, self.handle = self.attempt + 1, target, None
        self.is_adopted, self.waiting = False, ""
        filesystem.make_directory(self.directory)
        # What ends while no orchestrator lives is found by these names, also after a power cut.
        for folder in (self.step.directory, self.parent.directory):
            filesystem.sync_directory(folder)
        self.step.recorder.record(AttemptSubmitted(self.step.identity, self.attempt, self.name, target))

    def note_waiting(self, reason: str) -> None:
        """Write down why the attempt has not started yet, where that has changed."""
        if reason != self.waiting:
            self.waiting = reason
            self.step.recorder.record(AttemptWaiting(self.step.identity, self.attempt, reason), sync=False)

    def end(self, outcome: Outcome, conclusion: Conclusion, *, sync: bool) -> None:
        """Write down how the attempt ended.

        Args:
            sync: wait until the disk has it: what it left on its target is about to be removed.
        """
        record = self.step.recorder.record
        identity = self.step.identity
        for metric in conclusion.metrics.values():
            record(MetricMeasured.of(identity, metric), sync=False)
        for name, found in conclusion.judgements:
            record(CheckJudged.of(identity, name, found), sync=False)
        message = self.step.recorder.redactor(outcome.message)
        ended = AttemptEnded(
            identity,
            self.attempt,
            self.target,
            outcome.verdict,
            outcome.cause,
            message,
            conclusion.seconds,
            conclusion.host,
            conclusion.accelerators,
            conclusion.image,
        )
        record(ended, sync=sync)
        self.history.append(Ended(self.attempt, outcome, deviations(conclusion.judgements)))

    def weighed(self, conclusion: Conclusion) -> Outcome:
        """Return what the cell comes to by the latest attempt and those before it.

        A value out of the range of earlier runs is confirmed by another one on the same side of it. Else it is noise.
        """
        outcome, now = conclusion.so_far(), deviations(conclusion.judgements)
        before = next((one.deviations for one in self.history if one.deviations and one.number != self.attempt), {})
        if not before or not (now or outcome.verdict is Verdict.PASSED):
            return outcome
        confirmed = {metric for metric, found in now.items() if found == before.get(metric)}
        noisy = sorted({*before, *now} - confirmed)
        noise = [f"{', '.join(noisy)}: noisy, out of range in one attempt and not in the other"] if noisy else []
        left = verdict(without(conclusion.judgements, noisy))
        again = ["another attempt has confirmed it"] if confirmed else []
        return replace(left, message="\n".join(filter(None, [left.message, *again, *noise])))

    @property
    def is_unconfirmed(self) -> bool:
        """Whether the latest attempt is the first one with a value out of its range: another one says what it means."""
        latest = self.history[-1].deviations if self.history else {}
        return bool(latest) and sum(bool(ended.deviations) for ended in self.history) == 1

    def pause(self) -> float | None:
        """Return how long to wait before another attempt, in seconds; None where there is none any more."""
        latest = self.history[-1]
        if self.is_adopted and latest.outcome.verdict is Verdict.CANCELLED:
            return 0.0  # by who resumed the run, or before that
        if latest.deviations:
            return 0.0 if self.is_unconfirmed else None
        causes = Counter(ended.outcome.cause for ended in self.history if not ended.deviations)
        cause = latest.outcome.cause
        backoff = self.cell.retries.backoff
        if cause not in _RETRIED or causes[cause] > getattr(self.cell.retries, cause):
            return None
        return pause(len(self.history) - 1, first=backoff.first, most=backoff.most, factor=backoff.factor)

    def finish(self, outcome: Outcome, conclusion: Conclusion) -> Outcome:
        """Write down how the cell ended, and return it: what was expected of it is taken into account."""
        self.become(CellState.ENDED)
        # A workload that was adopted has begun before this step of the resumed run.
        self.step.started = min(self.step.started, time.monotonic() - conclusion.seconds)
        outcome = self._as_expected(self._with_history(outcome, conclusion.remarks))
        self.step.add(outcome)
        self.step.counts = self.cell.quarantine is None
        steps.finish(self.step, self.parent, sync=False)
        return outcome

    def _with_history(self, outcome: Outcome, remarks: Sequence[str]) -> Outcome:
        earlier = [
            f"attempt {ended.number} was {ended.outcome.verdict} ({ended.outcome.cause}): {ended.outcome.first_line}"
            for ended in self.history
            if ended.number != self.attempt and ended.outcome.verdict is not Verdict.CANCELLED
        ]
        text = [outcome.message] if outcome.message else []
        if earlier and outcome.verdict is Verdict.PASSED and not outcome.message:
            text.append(f"it passed at attempt {self.attempt}")
        return replace(outcome, message="\n".join([*text, *earlier, *remarks]))

    def _as_expected(self, outcome: Outcome) -> Outcome:
        xfail, note = self.cell.xfail, self.cell.note
        if (kept := self.cell.quarantine) is not None:
            note = f"in quarantine until {kept.expires} ({kept.owner}), so it does not count: {kept.reason}"
        if xfail is None:
            is_bad = not outcome.verdict.is_pass
            return replace(outcome, message=f"{outcome.message}\n{note}".strip()) if note and is_bad else outcome
        expected = f"expected to fail until {xfail.expires} ({xfail.owner}): {xfail.reason}"
        if outcome.verdict is Verdict.FAILED:
            return Outcome(Verdict.XFAILED, outcome.cause, f"{expected}\n{outcome.message}")
        if outcome.verdict is Verdict.PASSED:
            return Outcome(Verdict.XPASSED, Cause.CHECK, f"it passed, and was {expected}\n{outcome.message}".strip())
        return outcome
