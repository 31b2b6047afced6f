"""What the results of cells say about flakiness: each attempt that passed, failed, or says nothing of the product."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from toolbox.model.verdicts import Cause, Verdict
from toolbox.results.flakiness import Observation
from toolbox.results.queries import ResultRow

# A metric out of its range is noise or a change of speed; the other causes are not the product's.
_OF_THE_PRODUCT: Final = {Cause.PRODUCT, Cause.CHECK, Cause.TIMEOUT}


def of(results: Iterable[ResultRow]) -> Iterator[Observation]:
    """Yield what was observed, attempt by attempt."""
    for row in results:
        for verdict, cause in row.attempts or [(row.verdict, row.cause)]:
            yield Observation(
                row.cell,
                row.name,
                row.run.revision,
                row.accelerator,
                row.fingerprint,
                _passed(verdict, cause),
                row.run.started,
                row.run.run,
                not row.counts,
            )


def _passed(verdict: str | None, cause: str | None) -> bool | None:
    if verdict == Verdict.PASSED:
        return True
    return False if verdict == Verdict.FAILED and cause in _OF_THE_PRODUCT else None
