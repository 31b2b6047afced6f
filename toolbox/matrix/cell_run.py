"""The progress of one cell through the run: its step, its attempts, and its result."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from toolbox.ground.model import patterns, yaml_text
from toolbox.ground.model.backoff import pause
from toolbox.ground.model.cases import CaseReport
from toolbox.ground.model.events import (
    AttemptEnded,
    AttemptSubmitted,
    AttemptWaiting,
    CheckJudged,
    MetricMeasured,
    StepKind,
    StepStarted,
    case_events,
)
from toolbox.ground.model.evidence import Deviation, Judgement, Metric, deviations_of
from toolbox.ground.model.text import counted, first_of
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.ground.model.workloads import Handle
from toolbox.ground.system import filesystem
from toolbox.matrix.attempt_judgement import verdict, without
from toolbox.matrix.matrix_block import Xfail
from toolbox.matrix.plan import Cell
from toolbox.records.runs import steps
from toolbox.records.runs.layout import StepDirectory
from toolbox.records.runs.run_state import StepState
from toolbox.records.runs.steps import Outcome, Step

_RETRIED: Final = (Cause.INFRASTRUCTURE, Cause.CAPACITY, Cause.TIMEOUT, Cause.PRODUCT, Cause.CHECK)
_MAX_NAMED: Final = 3  # unexpected failures that the message names


@dataclass(frozen=True, slots=True)
class Conclusion:
    """The result of an attempt, before the cell is compared with other cells.

    Args:
        outcome: the outcome if the workload did not end by itself; None if the judgements decide the outcome.
        judgements: the names of the checks that need no other cell, with their judgements.
        cases: the test cases that finished, if the workload did not end by itself.
        host: the name of the machine that ran the workload.
        image: the container image of the workload, as `NAME@sha256:...`; empty if unknown.
        paid_seconds: the time for which the target cost money because of the attempt; None if it equals `seconds`.
        is_open: whether the workload may still be running, or its files are still on the target. Then only a resumed
            run continues the attempt, and the cell gets no other attempt in this session.
        lost_machine: the name of the machine that was lost during the attempt; empty if none was.
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
    paid_seconds: float | None = None
    cases: tuple[CaseReport, ...] = ()
    lost_machine: str = ""

    @property
    def remarks(self) -> list[str]:
        """The remarks for the user."""
        reported = [each.message for _, each in self.judgements if each.passed is None and each.deviation]
        return [*reported, *([self.remark] if self.remark else [])]

    @property
    def deviations(self) -> dict[str, Deviation]:
        """The values out of the range of earlier runs, by metric; empty if a check failed for another reason."""
        return deviations_of(judgement for _, judgement in self.judgements)

    def outcome_before_comparisons(self) -> Outcome:
        """Return the outcome before comparisons with other cells."""
        return self.outcome or verdict(self.judgements)


def reused_outcome(cell: Cell) -> Outcome:
    """Return the outcome of a cell that takes the result of an earlier run."""
    reuse = cell.reuse
    text = f"from run {reuse.run}: the cell passed there, and nothing that determines the result has changed"
    return Outcome(Verdict.PASSED, None, f"{text}\nthe evidence is in {reuse.directory}")


@dataclass(frozen=True, slots=True)
class Ended:
    """An attempt that has ended.

    Args:
        deviations: the values out of the range of earlier runs, by metric; empty if a check of another kind failed.
    """

    number: int
    outcome: Outcome
    deviations: Mapping[str, Deviation] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CellResult:
    """The final result of a cell.

    Args:
        directory: the directory of the step.
        attempts: the number of attempts in all sessions.
        counts: whether the verdict counts for the run, which is not so for a cell in quarantine.
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
    WAITING: the cell waits for free capacity of a target.
    PAUSED: the cell waits for the end of the pause before its next attempt.
    BLOCKED: the cell waits for the removal of an attempt that a person has given up.
    STARTING: the attempt is being submitted or, if an earlier session submitted it, is being searched for.
    RUNNING: the workload is on the target.
    JUDGING: the workload has ended, and its files are being fetched and judged.
    COMPARING: the cell waits for the end of the cell with which a check compares it.
    ENDED: the verdict is recorded.
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
        attempt: the number of the latest attempt.
        target: the target of the latest attempt.
        handle: the handle of the workload; None until the workload is submitted.
        is_adopted: whether an earlier session of the run submitted the latest attempt.
        state: the state of the cell; `become` changes it.
        history: the attempts that have ended, in all sessions.
        waiting: why the latest attempt has not started yet; empty after its start.
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
        """The name of the latest attempt's workload. A resumed run computes the same name."""
        return f"{self.run}-{self.cell.id}-{self.attempt}"

    @property
    def directory(self) -> Path:
        """The directory of the latest attempt."""
        return StepDirectory(self.step.directory).attempt(self.attempt).path

    def remember(self, earlier: StepState) -> None:
        """Load the attempts of earlier sessions, so that the numbers of attempts stay unique."""
        for attempt in earlier.attempts:
            self.attempt, self.target = attempt.attempt, attempt.target
            if attempt.verdict is not None and earlier.is_open:
                outcome = Outcome(attempt.verdict, attempt.cause, attempt.message)
                self.history.append(Ended(self.attempt, outcome, attempt.deviations))

    def begin(self) -> None:
        """Record the start and the settings of the cell."""
        cell, step = self.cell, self.step
        directory = StepDirectory(step.directory)
        step.recorder.record(
            StepStarted(step.identity, cell.name, StepKind.CELL, "", step.key, cell.fingerprint), sync=False
        )
        directory.failure.unlink(missing_ok=True)
        if not filesystem.size(directory.settings):
            filesystem.write_text(directory.settings, yaml_text.dump(dict(cell.settings)))

    def submit(self, target: str) -> None:
        """Record that the next attempt is about to be submitted."""
        self.become(CellState.STARTING)
        self.attempt, self.target, self.handle = self.attempt + 1, target, None
        self.is_adopted, self.waiting = False, ""
        filesystem.make_directory(self.directory)
        # A resumed run finds the attempt by these directory names, so they must survive a power cut.
        for folder in (self.step.directory, self.parent.directory):
            filesystem.sync_directory(folder)
        self.step.recorder.record(AttemptSubmitted(self.step.identity, self.attempt, self.name, target))

    def note_waiting(self, reason: str) -> None:
        """Record why the attempt has not started yet, if the reason has changed."""
        if reason != self.waiting:
            self.waiting = reason
            self.step.recorder.record(AttemptWaiting(self.step.identity, self.attempt, reason), sync=False)

    def end(self, outcome: Outcome, conclusion: Conclusion, *, sync: bool) -> None:
        """Record the end of the latest attempt.

        Args:
            sync: whether to sync the journal, which is necessary before the remains on the target are removed.
        """
        record = self.step.recorder.record
        identity = self.step.identity
        for metric in conclusion.metrics.values():
            record(MetricMeasured.from_metric(identity, metric), sync=False)
        for name, judgement in conclusion.judgements:
            record(CheckJudged.from_judgement(identity, name, judgement), sync=False)
        judged = [judgement.cases for _, judgement in conclusion.judgements if judgement.cases is not None]
        for report in (*judged, *conclusion.cases):
            for event in case_events(identity, report):
                record(event, sync=False)
        ended = AttemptEnded(
            identity,
            self.attempt,
            self.target,
            outcome.verdict,
            outcome.cause,
            outcome.message,
            conclusion.seconds,
            conclusion.host,
            conclusion.accelerators,
            conclusion.image,
            conclusion.paid_seconds,
        )
        record(ended, sync=sync)
        self.history.append(Ended(self.attempt, outcome, conclusion.deviations))

    def combined_outcome(self, conclusion: Conclusion) -> Outcome:
        """Return the outcome of the cell, given the conclusion of its latest attempt.

        A value out of the range of earlier runs counts only if two attempts have such a value on the same side of the
        range. A value that is out of the range in only one attempt is noise.
        """
        outcome, latest = conclusion.outcome_before_comparisons(), conclusion.deviations
        earlier = next(
            (each.deviations for each in self.history if each.deviations and each.number != self.attempt), {}
        )
        if not earlier or not (latest or outcome.verdict is Verdict.PASSED):
            return outcome
        confirmed = {metric for metric, deviation in latest.items() if deviation == earlier.get(metric)}
        noisy = sorted({*earlier, *latest} - confirmed)
        noise = [f"{', '.join(noisy)}: noisy, out of range in one attempt and not in the other"] if noisy else []
        without_noise = verdict(without(conclusion.judgements, noisy))
        confirmation = ["another attempt has confirmed the deviation"] if confirmed else []
        return replace(without_noise, message="\n".join(filter(None, [without_noise.message, *confirmation, *noise])))

    @property
    def is_unconfirmed(self) -> bool:
        """Whether only the latest attempt has a value out of its range, so that another attempt must confirm it."""
        latest = self.history[-1].deviations if self.history else {}
        return bool(latest) and sum(bool(ended.deviations) for ended in self.history) == 1

    def seconds_until_retry(self) -> float | None:
        """Return the number of seconds before the next attempt; None if no other attempt follows."""
        latest = self.history[-1]
        if self.is_adopted and latest.outcome.verdict is Verdict.CANCELLED:
            return 0.0  # the end of an earlier session cancelled the attempt
        if latest.deviations:
            return 0.0 if self.is_unconfirmed else None
        causes = Counter(ended.outcome.cause for ended in self.history if not ended.deviations)
        cause = latest.outcome.cause
        backoff = self.cell.retries.backoff
        if cause not in _RETRIED or causes[cause] > getattr(self.cell.retries, cause):
            return None
        return pause(len(self.history) - 1, first=backoff.first, most=backoff.most, factor=backoff.factor)

    def finish(self, outcome: Outcome, conclusion: Conclusion) -> Outcome:
        """Record the end of the cell, and return its outcome after `xfail` and `quarantine` are applied."""
        self.become(CellState.ENDED)
        # The workload of an adopted attempt began before this step of the resumed run.
        self.step.started = min(self.step.started, time.monotonic() - conclusion.seconds)
        unexpected = _unexpected(self.cell.xfail, conclusion) if outcome.verdict is Verdict.FAILED else ""
        outcome = self._as_expected(self._with_history(outcome, conclusion.remarks), unexpected)
        self.step.add(outcome)
        self.step.counts = self.cell.quarantine is None
        steps.finish(self.step, self.parent, sync=False)
        return outcome

    def _with_history(self, outcome: Outcome, remarks: Sequence[str]) -> Outcome:
        earlier = [
            f"the verdict of attempt {ended.number} was {ended.outcome.verdict} ({ended.outcome.cause}): "
            f"{ended.outcome.first_line}"
            for ended in self.history
            if ended.number != self.attempt and ended.outcome.verdict is not Verdict.CANCELLED
        ]
        text = [outcome.message] if outcome.message else []
        if earlier and outcome.verdict is Verdict.PASSED and not outcome.message:
            text.append(f"the cell passed at attempt {self.attempt}")
        return replace(outcome, message="\n".join([*text, *earlier, *remarks]))

    def _as_expected(self, outcome: Outcome, unexpected: str) -> Outcome:
        xfail, note = self.cell.xfail, self.cell.note
        if (entry := self.cell.quarantine) is not None:
            note = f"in quarantine until {entry.expires} ({entry.owner}), so the verdict does not count: {entry.reason}"
        if xfail is None:
            is_bad = not outcome.verdict.is_pass
            return replace(outcome, message=f"{outcome.message}\n{note}".strip()) if note and is_bad else outcome
        expected = f"expected to fail until {xfail.expires} ({xfail.owner}): {xfail.reason}"
        if unexpected:
            tests = ", ".join(xfail.tests or ())
            return replace(
                outcome, message=f"unexpected failures: {unexpected}\n{outcome.message}\nonly {tests}: {expected}"
            )
        if outcome.verdict is Verdict.FAILED:
            return Outcome(Verdict.XFAILED, outcome.cause, f"{expected}\n{outcome.message}")
        if outcome.verdict is Verdict.PASSED:
            text = f"the cell passed, but was {expected}\n{outcome.message}".strip()
            return Outcome(Verdict.XPASSED, Cause.CHECK, text)
        return outcome


def _unexpected(xfail: Xfail | None, conclusion: Conclusion) -> str:
    """Return the failures of a cell that an entry of `xfail` with `tests` does not name; empty if there are none.

    The judgement of a check has only the first failed tests. The others cannot be compared with the names.
    """
    if xfail is None or xfail.tests is None:
        return ""
    failed = [(name, judgement) for name, judgement in conclusion.judgements if judgement.passed is False]
    if conclusion.outcome is not None or not failed:
        return "the tests that failed are not known"
    names: list[str] = []
    for name, judgement in failed:
        report = judgement.cases
        if report is None or not report.failed:
            names.append(f"the check {name}")
            continue
        titles = [case.title for case in report.failures]
        names += [title for title in titles if not any(patterns.covers(test, title) for test in xfail.tests)]
        if (more := report.failed - len(titles)) > 0:
            names.append(counted(more, "more test"))
    return ", ".join(first_of(names, _MAX_NAMED))
