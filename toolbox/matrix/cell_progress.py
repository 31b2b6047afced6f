"""The progress of one cell through the run: its step, its attempts, and its result."""

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
from toolbox.runs.run_state import StepState
from toolbox.runs.steps import Outcome, Step
from toolbox.system import filesystem

_RETRIED: Final = (Cause.INFRASTRUCTURE, Cause.CAPACITY, Cause.TIMEOUT, Cause.PRODUCT, Cause.CHECK)


@dataclass(frozen=True, slots=True)
class Conclusion:
    """The result of an attempt, before it is compared with other cells.

    Args:
        outcome: the outcome if the workload did not end by itself; None if the judgements decide it.
        judgements: the judgements of the checks that compare with no other cell, by name.
        seconds: wall time of the workload.
        host: the name of the machine that it ran on. `accelerators`: the accelerators visible there.
        image: the container image that it ran in, as `NAME@sha256:...`; empty if unknown.
        remark: a further remark for the user.
        is_open: whether the end of the attempt is unknown: it may be running, or its files are still on its target. A
            resumed run takes care of it. The cell gets no other attempt meanwhile.
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
        """The remarks for the user, whatever the outcome."""
        reported = [found.message for _, found in self.judgements if found.passed is None and found.deviation]
        return [*reported, *([self.remark] if self.remark else [])]

    def so_far(self) -> Outcome:
        """Return the outcome, before comparisons with other cells."""
        return self.outcome or verdict(self.judgements)


@dataclass(frozen=True, slots=True)
class Ended:
    """An attempt that has ended, and its outcome. `deviations`: see `judgement.deviations`."""

    number: int
    outcome: Outcome
    deviations: Mapping[str, Deviation] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CellResult:
    """The final result of a cell.

    Args:
        directory: the directory of its step.
        attempts: the number of its attempts, in this run and before.
        counts: whether its verdict counts for the run. It does not if the cell is in quarantine.
    """

    name: str
    settings: Mapping[str, Any]
    outcome: Outcome
    metrics: Mapping[str, Metric]
    directory: Path
    attempts: int = 1
    counts: bool = True


class CellState(StrEnum):
    """The state of a cell in this session of the run.

    NEW: nothing is decided yet.
    WAITING: it waits for room on a target.
    PAUSED: it waits for a while before its next attempt.
    BLOCKED: it waits until an attempt that a person has given up is removed from its target.
    STARTING: its attempt is being submitted, or is looked for on the target to which an earlier session submitted it.
    RUNNING: its workload is on the target.
    JUDGING: its workload has ended. Its files are being fetched and judged.
    COMPARING: its attempt passed so far, and waits for the cell to compare with.
    ENDED: its verdict is recorded.
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
    """The execution of a cell.

    Args:
        attempt: the number of its latest attempt.
        target: the target of the latest attempt.
        handle: the handle of the workload, once it is submitted.
        is_adopted: whether the latest attempt was submitted before the run was resumed.
        state: the state of the cell; `become` changes it.
        history: its attempts that have ended, in this run and before.
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
        """The name of the attempt's workload, which is the same after a restart."""
        return f"{self.run}-{self.cell.id}-{self.attempt}"

    @property
    def directory(self) -> Path:
        """The directory of the attempt."""
        return StepDirectory(self.step.directory).attempt(self.attempt).path

    def remember(self, before: StepState) -> None:
        """Take over the attempts that the cell had before the run was resumed, so that their numbers stay unique."""
        for attempt in before.attempts:
            self.attempt, self.target = attempt.attempt, attempt.target
            if attempt.verdict is not None and before.is_open:
                outcome = Outcome(attempt.verdict, attempt.cause, attempt.message)
                self.history.append(Ended(self.attempt, outcome, attempt.deviations))

    def begin(self) -> None:
        """Record that the cell starts, and its settings."""
        cell, step = self.cell, self.step
        directory = StepDirectory(step.directory)
        step.recorder.record(
            StepStarted(step.identity, cell.name, StepKind.CELL, "", step.key, cell.fingerprint), sync=False
        )
        directory.failure.unlink(missing_ok=True)
        if not filesystem.size(directory.settings):
            filesystem.write_yaml(directory.settings, dict(cell.settings))

    def submit(self, target: str) -> None:
        """Record that the next attempt is about to be started."""
        self.become(CellState.STARTING)
        self.attempt, self.target, self.handle = self.attempt + 1, target, None
        self.is_adopted, self.waiting = False, ""
        filesystem.make_directory(self.directory)
        # A resumed run finds the attempt by these directory names, also after a power cut.
        for folder in (self.step.directory, self.parent.directory):
            filesystem.sync_directory(folder)
        self.step.recorder.record(AttemptSubmitted(self.step.identity, self.attempt, self.name, target))

    def note_waiting(self, reason: str) -> None:
        """Record why the attempt has not started yet, if the reason has changed."""
        if reason != self.waiting:
            self.waiting = reason
            self.step.recorder.record(AttemptWaiting(self.step.identity, self.attempt, reason), sync=False)

    def end(self, outcome: Outcome, conclusion: Conclusion, *, sync: bool) -> None:
        """Record how the attempt ended.

        Args:
            sync: wait until the record is on the disk, because the remains on the target will be removed next.
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
        """Return the outcome of the cell from the latest attempt and those before it.

        A value out of the range of earlier runs is confirmed if another attempt has a value on the same side.
        Otherwise the value is noise.
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
        """Whether only the latest attempt has a value out of its range: another attempt has to confirm it."""
        latest = self.history[-1].deviations if self.history else {}
        return bool(latest) and sum(bool(ended.deviations) for ended in self.history) == 1

    def pause(self) -> float | None:
        """Return how many seconds to wait before another attempt; None if there is no other attempt."""
        latest = self.history[-1]
        if self.is_adopted and latest.outcome.verdict is Verdict.CANCELLED:
            return 0.0  # cancelled when the run was resumed, or before
        if latest.deviations:
            return 0.0 if self.is_unconfirmed else None
        causes = Counter(ended.outcome.cause for ended in self.history if not ended.deviations)
        cause = latest.outcome.cause
        backoff = self.cell.retries.backoff
        if cause not in _RETRIED or causes[cause] > getattr(self.cell.retries, cause):
            return None
        return pause(len(self.history) - 1, first=backoff.first, most=backoff.most, factor=backoff.factor)

    def finish(self, outcome: Outcome, conclusion: Conclusion) -> Outcome:
        """Record how the cell ended, and return its outcome with xfail and quarantine taken into account."""
        self.become(CellState.ENDED)
        # The workload of an adopted attempt began before this step of the resumed run.
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
            return Outcome(Verdict.XPASSED, Cause.CHECK, f"it passed, but was {expected}\n{outcome.message}".strip())
        return outcome
