"""Finds the cells of a run whose results may be random: their attempts differ, or they fail and are known as flaky."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from sqlalchemy import Connection

from toolbox.ground.model.verdicts import UNEXPECTED
from toolbox.records.results import observations, queries
from toolbox.records.results.flakiness import Flakiness
from toolbox.records.results.flaky_and_moved import FlakyCell
from toolbox.records.results.queries import Filter
from toolbox.records.results.records import ResultRow

_FEWEST: Final = 2  # attempts that can differ


def of(connection: Connection, row: int, project: str, started: datetime) -> list[FlakyCell]:
    """Return the flaky cells of a run, sorted by name.

    Args:
        row: the id of the row of the run.
        started: the start of the run: only earlier runs of the baseline show whether a cell is flaky.
    """
    results = queries.results(connection, Filter(run=row), with_metrics=False)
    failed = any(result.verdict in UNEXPECTED for result in results)
    known = {cell.cell: cell for cell in queries.flakiness_of(connection, project, started)} if failed else {}
    return sorted(_flaky(results, known), key=lambda cell: cell.name)


def _flaky(results: Sequence[ResultRow], known: Mapping[str, Flakiness]) -> Iterator[FlakyCell]:
    differing = _differing(results)
    for result in results:
        history = known.get(result.cell)
        if result.cell in differing:
            yield FlakyCell(result.cell, result.name, differing[result.cell])
        elif history is not None and result.verdict in UNEXPECTED:
            events = f"{len(history.events)} of {history.keys} revisions that ran several times"
            yield FlakyCell(result.cell, result.name, f"{events} both passed and failed in the last 90 days")


def _differing(results: Iterable[ResultRow]) -> dict[str, str]:
    """Return a text for each cell whose attempts both passed and failed, by the id of the cell."""
    outcomes: dict[str, list[bool]] = defaultdict(list)
    for observation in observations.of(results):
        if observation.passed is not None:
            outcomes[observation.cell].append(observation.passed)
    return {
        cell: f"{passed.count(False)} of {len(passed)} attempts failed in this run"
        for cell, passed in outcomes.items()
        if len(passed) >= _FEWEST and len(set(passed)) > 1
    }
