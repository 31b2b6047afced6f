"""Converts results from the store into the input of `flakiness` and of `attribution`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.records.results import flakiness
from toolbox.records.results.flakiness import Flakiness, Observation
from toolbox.records.results.records import AttemptRow, ResultRow
from toolbox.records.runs import attribution, failures
from toolbox.records.runs.attribution import Case, Finding

_PRODUCT_CAUSES: Final = {Cause.PRODUCT, Cause.CHECK, Cause.TIMEOUT, Cause.REGRESSION}
_FAILED: Final = {Verdict.FAILED, Verdict.XFAILED}


def of(results: Iterable[ResultRow]) -> Iterator[Observation]:
    """Yield an observation per attempt."""
    for row in results:
        if row.reused_from:  # nothing was executed
            continue
        attempts = row.attempts or [
            AttemptRow(row.verdict, row.cause, row.target, row.accelerator, out_of_range=row.out_of_range)
        ]
        for number, attempt in enumerate(attempts, 1):
            is_confirmed = row.verdict in _FAILED and number == len(attempts)
            yield Observation(
                row.cell,
                row.name,
                attempt.revision or row.run.revision,
                attempt.accelerator,
                f"{row.fingerprint} {attempt.image}".rstrip(),
                _passed(attempt, is_confirmed=is_confirmed),
                row.run.started,
                row.run.run,
                not row.counts,
                attempt.out_of_range,
            )


def in_common(results: Iterable[ResultRow], *, flaky: Collection[str] = ()) -> list[Finding]:
    """Return the conditions under which cells of a run failed.

    Args:
        flaky: the ids of flaky cells, which are omitted.
    """
    return attribution.attribute(
        [
            Case(row.labels, row.verdict != Verdict.PASSED, failures.signature(row.cause, row.message, row.labels))
            for row in results
            if row.counts and row.verdict in attribution.COMPARED and row.cell not in flaky
        ]
    )


def known_flaky(results: Iterable[ResultRow]) -> set[str]:
    """Return the ids of the flaky cells among these results."""
    return {cell.cell for cell in flaky(results)}


def flaky(results: Iterable[ResultRow]) -> list[Flakiness]:
    """Return the flaky cells among these results."""
    return [cell for cell in flakiness.assess(of(results)) if cell.state is flakiness.State.FLAKY]


def _passed(attempt: AttemptRow, *, is_confirmed: bool) -> bool | None:
    """Return whether an attempt passed; None if its outcome says nothing about the cell.

    Args:
        is_confirmed: whether values out of the ranges of earlier runs failed the cell; False if they were noise.
    """
    if attempt.verdict == Verdict.PASSED:
        return True
    if attempt.deviates and not is_confirmed:
        return None
    return False if attempt.verdict == Verdict.FAILED and attempt.cause in _PRODUCT_CAUSES else None
