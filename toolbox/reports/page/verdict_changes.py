"""Arranges the changes since the last run: one row for each cell and kind of change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolbox.ground.model.text import first_of
from toolbox.records.results import since_last_run
from toolbox.records.results.since_last_run import Kind, SinceLastRun, VerdictChange
from toolbox.reports.page.step_details import StepCard

_MAX_ROWS: Final = 40
_MAX_TESTS: Final = 5  # test cases of a row


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """A cell that changed, or whose test cases changed.

    Args:
        card: the cell; None if the page has no room for it.
        lines: how the cell and its test cases ended before, and how they end now.
    """

    kind: Kind
    card: StepCard | None
    name: str
    lines: Sequence[str]


@dataclass(frozen=True, slots=True)
class VerdictChanges:
    """The changes since the last run.

    Args:
        earlier: the run with which this run is compared.
        more: the number of rows for which the page has no room.
        remarks: the number of known failures, flaky cells, and metrics that moved or are lost, as text; empty if
            there are none.
        findings: a line for each flaky cell and each metric that moved or is lost.
    """

    earlier: str
    tally: str
    rows: Sequence[ChangeRow]
    more: int
    remarks: str
    findings: Sequence[str]


def make(directory: Path, cards: Iterable[StepCard]) -> VerdictChanges | None:
    """Return the changes since the last run; None if the run was not compared, or if nothing changed."""
    comparison = since_last_run.read(directory)
    if comparison is None or not comparison.is_notable:
        return None
    rows = _rows(comparison, {card.step.identity: card for card in cards})
    return VerdictChanges(
        comparison.earlier,
        comparison.tally,
        rows[:_MAX_ROWS],
        max(0, len(rows) - _MAX_ROWS),
        comparison.remarks,
        first_of(_findings(comparison), _MAX_ROWS),
    )


def _findings(comparison: SinceLastRun) -> list[str]:
    flaky = [f"flaky: {cell.name}: {cell.reason}" for cell in comparison.flaky]
    lost = [f"{metric.name}: {metric}" for metric in comparison.lost]
    return [*flaky, *lost, *(f"{change.name}: {change} {change.sparkline}" for change in comparison.metrics)]


def _rows(comparison: SinceLastRun, cards: Mapping[str, StepCard]) -> list[ChangeRow]:
    groups: dict[tuple[int, str], list[VerdictChange]] = {}
    for change in (*comparison.cells, *comparison.tests):
        groups.setdefault((list(Kind).index(change.kind), change.cell), []).append(change)
    return [
        ChangeRow(changes[0].kind, cards.get(cell), changes[0].name, _lines(changes))
        for (_, cell), changes in sorted(groups.items(), key=lambda item: item[0][0])
    ]


def _lines(changes: Iterable[VerdictChange]) -> list[str]:
    cells = [str(change) for change in changes if not change.test]
    tests = [_test_line(change) for change in changes if change.test]
    return [*cells, *first_of(tests, _MAX_TESTS)]


def _test_line(change: VerdictChange) -> str:
    why = f": {change.message}" if change.message else ""
    return f"{change.test}: {change}{why}"
