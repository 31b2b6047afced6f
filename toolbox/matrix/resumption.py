"""Decides how a resumed run continues each cell: the cell is done, or its attempt is adopted, judged or repeated."""

from __future__ import annotations

from enum import Enum, auto
from pathlib import Path

from toolbox.ground.model.evidence import Judgement
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.matrix import attempt_judgement
from toolbox.matrix.cell_run import CellResult, Conclusion
from toolbox.matrix.plan import Cell
from toolbox.records.runs.run_state import CellAttempt, StepState
from toolbox.records.runs.steps import Outcome


class Beginning(Enum):
    """What a session does with a cell first.

    NEW: start an attempt.
    SKIP: skip the cell, because the configuration says so.
    REUSE: take the result of an equal cell of an earlier run.
    DONE: nothing, because the cell ended in an earlier session.
    ADOPT: adopt the latest attempt, which may be running.
    JUDGE: judge the latest attempt, which has ended although the cell has not.
    AGAIN: start an attempt, because a person has given up the latest attempt, and its remains have been removed.
    CLEAR: remove the remains of the latest attempt, which a person has given up, and then start an attempt.
    """

    NEW = auto()
    SKIP = auto()
    REUSE = auto()
    DONE = auto()
    ADOPT = auto()
    JUDGE = auto()
    AGAIN = auto()
    CLEAR = auto()


def beginning(cell: Cell, earlier: StepState | None, *, rerun_failed: bool) -> Beginning:
    """Return what to do with a cell first.

    Args:
        earlier: the state of the cell after the earlier sessions; None if they did not start the cell.
        rerun_failed: whether cells that did not pass are run again.
    """
    if earlier is not None and _is_done(cell, earlier, rerun_failed=rerun_failed):
        return Beginning.DONE
    if cell.skip:
        return Beginning.SKIP
    if earlier is None or not earlier.is_open or not earlier.attempts:
        return Beginning.REUSE if cell.reuse.run else Beginning.NEW
    latest = earlier.attempts[-1]
    if latest.is_abandoned:
        return Beginning.AGAIN if latest.is_released else Beginning.CLEAR
    if latest.verdict is None:
        return Beginning.ADOPT
    must_repeat = latest.verdict is Verdict.CANCELLED or (rerun_failed and not latest.verdict.is_pass)
    return Beginning.NEW if must_repeat else Beginning.JUDGE


def _is_done(cell: Cell, earlier: StepState, *, rerun_failed: bool) -> bool:
    """Return whether a cell ended in an earlier session with the same fingerprint, and is not to be rerun."""
    if earlier.verdict is None or earlier.is_open or earlier.fingerprint != cell.fingerprint:
        return False
    if earlier.verdict is Verdict.SKIPPED and not cell.skip:
        return False  # the cell was skipped because of its cost, and the limit may be higher now
    return earlier.verdict.is_pass or not rerun_failed


def restored(cell: Cell, earlier: StepState, root: Path) -> tuple[CellResult, Outcome]:
    """Return the result of a cell that is done, and its outcome before comparisons with other cells.

    Args:
        root: the run directory.
    """
    assert earlier.verdict is not None, "the cell is done"
    outcome = Outcome(earlier.verdict, earlier.cause, earlier.message)
    directory, attempts = root / earlier.step, len(earlier.attempts)
    result = CellResult(cell.name, cell.settings, outcome, earlier.measured, directory, attempts, earlier.counts)
    if outcome.cause is Cause.CHECK and attempts:  # the only failed check may be a comparison
        outcome = attempt_judgement.verdict(_judgements_without_comparisons(cell, earlier.attempts[-1]))
    return result, outcome


def concluded(cell: Cell, earlier: StepState) -> Conclusion:
    """Return the conclusion of the latest attempt of a cell, which ended in an earlier session."""
    attempt = earlier.attempts[-1]
    assert attempt.verdict is not None, "the attempt has ended"
    judgements = _judgements_without_comparisons(cell, attempt)
    outcome = None if judgements else Outcome(attempt.verdict, attempt.cause, attempt.message)
    return Conclusion(
        outcome,
        earlier.measured,
        judgements,
        seconds=attempt.seconds or 0.0,
        host=attempt.host,
        accelerators=attempt.accelerators,
        image=attempt.image,
        paid_seconds=attempt.paid_seconds,
    )


def _judgements_without_comparisons(cell: Cell, attempt: CellAttempt) -> tuple[tuple[str, Judgement], ...]:
    """Return the judgements of the checks that need no other cell, as recorded in the journal.

    The files of the attempt are not judged again, because a power cut may have removed some.
    """
    names = {check.name for check in cell.expectations.checks if check.to is None}
    return tuple((event.check, event.judgement) for event in attempt.judged if event.check in names)
