"""What results say: each attempt of flakiness, and those of a run of what its failures have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from toolbox.model.verdicts import Cause, Verdict
from toolbox.results.flakiness import Observation
from toolbox.results.records import AttemptRow, ResultRow
from toolbox.runs import attribution
from toolbox.runs.attribution import Case, Finding

# A metric out of its range is noise or a change of speed; the other causes are not the product's.
_SEPARATED: Final = {Verdict.PASSED, Verdict.FAILED, Verdict.ERROR, Verdict.XPASSED}
_OF_THE_PRODUCT: Final = {Cause.PRODUCT, Cause.CHECK, Cause.TIMEOUT}


def of(results: Iterable[ResultRow]) -> Iterator[Observation]:
    """Yield what was observed, attempt by attempt."""
    for row in results:
        alone = AttemptRow(row.verdict, row.cause, row.target, row.accelerator)
        for attempt in row.attempts or [alone]:
            yield Observation(
                row.cell,
                row.name,
                attempt.revision or row.run.revision,
                attempt.accelerator,
                row.fingerprint,
                _passed(attempt),
                row.run.started,
                row.run.run,
                not row.counts,
            )


def in_common(results: Iterable[ResultRow]) -> list[Finding]:
    """Return what the cells of a run that failed have in common."""
    return attribution.attribute(
        [Case(row.labels, row.verdict != Verdict.PASSED) for row in results if row.counts and row.verdict in _SEPARATED]
    )


def _passed(attempt: AttemptRow) -> bool | None:
    if attempt.verdict == Verdict.PASSED:
        return True
    if attempt.deviates:
        return None
    return False if attempt.verdict == Verdict.FAILED and attempt.cause in _OF_THE_PRODUCT else None
