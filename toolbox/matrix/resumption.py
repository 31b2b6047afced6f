"""What a cell begins with when a run goes on: which cells are done, which attempts are adopted, which begin anew."""

from __future__ import annotations

from enum import Enum, auto
from pathlib import Path

from toolbox.matrix import judgement
from toolbox.matrix.cell_progress import CellResult, Conclusion
from toolbox.matrix.plan import Cell
from toolbox.model.evidence import Judgement
from toolbox.model.verdicts import Cause, Verdict
from toolbox.runs.run_state import CellAttempt, StepState
from toolbox.runs.steps import Outcome


class Beginning(Enum):
    """How a session of the run begins with a cell.

    NEW: with a new attempt.
    SKIP: not at all; the configuration says so.
    DONE: not at all; it has ended.
    ADOPT: with its latest attempt, which may be running.
    JUDGE: with its latest attempt, which has ended without a verdict of the cell.
    AGAIN: with a new attempt; a person has given up the latest one, and nothing is left of it.
    CLEAR: likewise, once what the latest attempt left on its target is removed.
    """

    NEW = auto()
    SKIP = auto()
    DONE = auto()
    ADOPT = auto()
    JUDGE = auto()
    AGAIN = auto()
    CLEAR = auto()


def beginning(cell: Cell, before: StepState | None, *, rerun_failed: bool) -> Beginning:
    """Return how to begin with a cell.

    Args:
        before: the cell as earlier sessions left it; None in a new run.
        rerun_failed: whether cells that did not pass are run again.
    """
    if before is not None and is_done(cell, before, rerun_failed=rerun_failed):
        return Beginning.DONE
    if cell.skip:
        return Beginning.SKIP
    if before is None or not before.is_open or not before.attempts:
        return Beginning.NEW
    latest = before.attempts[-1]
    if latest.is_abandoned:
        return Beginning.AGAIN if latest.is_released else Beginning.CLEAR
    if latest.verdict is None:
        return Beginning.ADOPT
    is_unwanted = rerun_failed and not latest.verdict.is_pass
    return Beginning.NEW if is_unwanted or latest.verdict is Verdict.CANCELLED else Beginning.JUDGE


def is_done(cell: Cell, before: StepState | None, *, rerun_failed: bool) -> bool:
    """Return whether a cell has an end that still counts."""
    if before is None or before.verdict is None or before.is_open:
        return False
    is_same = before.fingerprint == cell.fingerprint
    return is_same and (before.verdict.is_pass or not rerun_failed)


def recalled(cell: Cell, before: StepState, root: Path) -> tuple[CellResult, Outcome]:
    """Return the result of a cell that is done, and its outcome by itself, without comparisons with other cells.

    Args:
        root: the run directory.
    """
    assert before.verdict is not None, "it is done"
    outcome = Outcome(before.verdict, before.cause, before.message)
    directory, attempts = root / before.step, len(before.attempts)
    result = CellResult(cell.name, cell.settings, outcome, before.measured, directory, attempts, before.counts)
    if outcome.cause is Cause.CHECK and attempts:  # it may have failed only in comparison with another cell
        outcome = judgement.verdict(_own_judgements(cell, before.attempts[-1]))
    return result, outcome


def concluded(cell: Cell, before: StepState) -> Conclusion:
    """Return the conclusion of the latest attempt of a cell, which ended before the run was resumed."""
    attempt = before.attempts[-1]
    assert attempt.verdict is not None, "it has ended"
    judgements = _own_judgements(cell, attempt)
    outcome = None if judgements else Outcome(attempt.verdict, attempt.cause, attempt.message)
    return Conclusion(
        outcome,
        before.measured,
        judgements,
        seconds=attempt.seconds or 0.0,
        host=attempt.host,
        accelerators=attempt.accelerators,
    )


def _own_judgements(cell: Cell, attempt: CellAttempt) -> tuple[tuple[str, Judgement], ...]:
    """Return the journal's judgements of an attempt, of the checks that compare with no other cell.

    The files of the attempt are not judged again: a power cut may have taken them.
    """
    own = {check.name for check in cell.expectations.checks if check.to is None}
    return tuple((event.check, event.judgement) for event in attempt.judged if event.check in own)
