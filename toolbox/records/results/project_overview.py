"""Computes the state of each project and its cells from the store, for the dashboard."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final, TypeVar

from sqlalchemy import Connection

from toolbox.ground.model.verdicts import UNEXPECTED, Verdict
from toolbox.records.results import cost, flakiness, histories, latest_cases, observations, queries
from toolbox.records.results.cost import Cost, Group
from toolbox.records.results.flakiness import Flakiness
from toolbox.records.results.histories import BoundsInForce, History, Shift
from toolbox.records.results.latest_cases import LatestCases
from toolbox.records.results.queries import Filter
from toolbox.records.results.records import ResultRow, RunRow, Spending
from toolbox.records.runs.attribution import Finding

Item = TypeVar("Item")
RECENT: Final = 30  # number of latest runs to show one by one
RECENT_DAYS: Final = 30  # number of days for which a change for the worse counts as a regression
SPEED_RUNS: Final = 10  # number of latest runs whose median is the time of a cell
_MAX_RESULTS: Final = 30_000  # maximum number of results to read per project, so that a store of years stays fast
STATES: Final = {
    "failing": "failing",
    "broken": "broken",
    "flaky": "flaky",
    "slower": "always out of range",
    "regression": "regression",
    "outside": "out of bounds",
    "quarantine": "in quarantine",
    "release": "may leave quarantine",
    "suspect": "suspect",
    "changed": "level changed",
}
"""The possible states of a cell, with their names on the pages, the most urgent first."""
_GOOD: Final = {Verdict.PASSED, Verdict.XFAILED}


@dataclass(frozen=True)
class Cell:
    """A cell of a project.

    Args:
        results: the results in the latest runs, newest first.
        recent: the result in each recent run of the project, newest first; None for a run without the cell.
        flaky: the flakiness of the cell; None if there are no results.
        tests: the test cases of the latest result; None if the result has no test cases, or no recent run had the cell.
    """

    project: str
    id: str
    name: str
    results: Sequence[ResultRow]
    recent: Sequence[ResultRow | None]
    histories: Sequence[History]
    flaky: Flakiness | None
    regressions: Sequence[tuple[History, Shift]]
    tests: LatestCases | None = None

    @property
    def latest(self) -> ResultRow | None:
        """The latest result among the recent runs; None if none of them had the cell."""
        return next((result for result in self.recent if result is not None), None)

    @property
    def is_quarantined(self) -> bool:
        """Whether the cell was in quarantine in the latest recent run."""
        return self.latest is not None and not self.latest.counts

    @property
    def seconds(self) -> float | None:
        """The median time of the cell in its latest runs."""
        seconds = [result.seconds for result in self.results[:SPEED_RUNS] if result.seconds is not None]
        return statistics.median(seconds) if seconds else None

    @cached_property
    def states(self) -> list[str]:
        """The states of the cell, in the order of `STATES`."""
        flaky = self.flaky.state if self.flaky is not None else flakiness.State.HEALTHY
        shifts = [shift for history in self.histories for shift in history.shifts]
        has_state = {
            "failing": self.latest is not None and self.latest.counts and self.latest.verdict in UNEXPECTED,
            "broken": flaky is flakiness.State.BROKEN,
            "flaky": flaky is flakiness.State.FLAKY,
            "slower": flaky is flakiness.State.OUT_OF_RANGE,
            "regression": bool(self.regressions),
            "outside": any(history.is_in_force and history.is_outside for history in self.histories),
            "quarantine": self.is_quarantined,
            "release": self.is_quarantined and self.flaky is not None and self.flaky.may_be_released,
            "suspect": flaky is flakiness.State.SUSPECT or any(not shift.is_confirmed for shift in shifts),
            "changed": any(shift.is_confirmed for shift in shifts),
        }
        return [state for state in STATES if has_state[state]]


@dataclass(frozen=True)
class Project:
    """A project.

    Args:
        runs: the recent runs of the baseline, newest first.
        count: the number of all runs of the baseline.
        cells: the cells, the most urgent first.
        flakiness_runs: the number of runs from which flakiness is computed.
        spendings: what the attempts of all runs have cost.
        in_common: the conditions under which cells of the latest run failed.
    """

    name: str
    runs: Sequence[RunRow]
    count: int
    cells: Sequence[Cell]
    flakiness_runs: int
    spendings: Sequence[Spending]
    in_common: Sequence[Finding] = ()

    @cached_property
    def days(self) -> list[Cost]:
        """The cost of each day, the latest day first."""
        return cost.grouped(self.spendings, [Group.DAY])

    @cached_property
    def months(self) -> list[Cost]:
        """The cost of each month, the latest month first."""
        return cost.grouped(self.spendings, [Group.MONTH])

    @cached_property
    def targets(self) -> list[Cost]:
        """The cost of each target in the latest month, the highest cost first."""
        return latest_month(cost.grouped(self.spendings, [Group.MONTH, Group.TARGET, Group.ACCELERATOR]))

    @property
    def pass_rate(self) -> float | None:
        """The share of passes among the results of the recent runs; None if no result counts.

        Results are omitted if the cell was in quarantine, skipped or cancelled, or did not end.
        """
        counted = [result.verdict for cell in self.cells for result in cell.recent if result and result.counts]
        passed, failed = (sum(verdict in verdicts for verdict in counted) for verdicts in (_GOOD, UNEXPECTED))
        return passed / (passed + failed) if passed or failed else None

    @property
    def regressions(self) -> list[tuple[Cell, History, Shift]]:
        """The recent changes for the worse, latest first."""
        return regressions(self.cells)

    @property
    def flaky(self) -> list[Cell]:
        """The cells that are not healthy."""
        return flaky(self.cells)

    @property
    def slowest(self) -> list[tuple[Cell, float]]:
        """The cells whose time is known, slowest first."""
        return slowest(self.cells)


def latest_month(costs: Sequence[Cost]) -> list[Cost]:
    """Return the costs of the latest month among costs that are grouped by month, the latest month first."""
    return [each for each in costs if each.period == costs[0].period]


def regressions(cells: Iterable[Cell]) -> list[tuple[Cell, History, Shift]]:
    """Return the recent changes for the worse, the latest first."""
    shifts = [(cell, *regression) for cell in cells for regression in cell.regressions]
    return sorted(shifts, key=lambda regression: regression[2].run.started, reverse=True)


def flaky(cells: Iterable[Cell]) -> list[Cell]:
    """Return the cells that are not healthy, in the order of `flakiness.State`."""
    order = list(flakiness.State)
    assessed = [(cell, cell.flaky) for cell in cells if cell.flaky is not None]
    unhealthy = [(cell, flaky) for cell, flaky in assessed if flaky.state is not flakiness.State.HEALTHY]
    return [cell for cell, _ in sorted(unhealthy, key=lambda pair: (order.index(pair[1].state), -pair[1].lower))]


def slowest(cells: Iterable[Cell]) -> list[tuple[Cell, float]]:
    """Return the cells whose time is known, the slowest first."""
    timed = [(cell, seconds) for cell in cells if (seconds := cell.seconds) is not None]
    return sorted(timed, key=lambda pair: pair[1], reverse=True)


def collect(
    connection: Connection, where: Filter, bounds: Mapping[str, BoundsInForce], *, now: datetime
) -> list[Project]:
    """Return the projects, sorted by name, from the runs of the baseline. The costs are those of all runs."""
    baseline = dataclasses.replace(where, baseline=True)
    runs = _grouped(queries.runs(connection, baseline), lambda row: row.project)
    spendings = _grouped(queries.spendings(connection, where), lambda spending: spending.project)
    return [
        _project(
            connection,
            dataclasses.replace(baseline, project=name),
            runs[name],
            spendings.get(name, ()),
            bounds.get(name, {}),
            now,
        )
        for name in sorted(runs)
    ]


def _project(
    connection: Connection,
    where: Filter,
    rows: Sequence[RunRow],
    spendings: Sequence[Spending],
    bounds: BoundsInForce,
    now: datetime,
) -> Project:
    name = str(where.project)
    latest = _latest(rows)
    results = queries.results(connection, where, among=latest, with_metrics=False)
    of_metrics = histories.of(queries.series(connection, where), bounds, queries.noise(connection, where))
    cells = _cells(name, rows[:RECENT], results, of_metrics, now)
    tests = latest_cases.read(connection, (cell.results for cell in cells if cell.latest is not None))
    return Project(
        name,
        rows[:RECENT],
        len(rows),
        sorted((dataclasses.replace(cell, tests=tests.get(cell.id)) for cell in cells), key=_urgency),
        len(latest),
        spendings,
        _in_common(results, rows[0]),
    )


def _in_common(results: Sequence[ResultRow], run: RunRow) -> list[Finding]:
    """Return the conditions under which cells of a run failed, without flaky cells."""
    of_run = [result for result in results if result.run.id == run.id]
    failed = {result.cell for result in of_run if result.verdict != Verdict.PASSED}
    flaky = observations.known_flaky(result for result in results if result.cell in failed)
    return observations.in_common(of_run, flaky=flaky)


def _latest(rows: Sequence[RunRow]) -> list[RunRow]:
    """Return the recent runs, and earlier runs as long as the total is at most `_MAX_RESULTS` results."""
    count, total = 0, 0
    for row in rows:
        total += sum(row.cells.values())
        if count >= RECENT and total > _MAX_RESULTS:
            break
        count += 1
    return list(rows[:count])


def _cells(
    project: str, runs: Sequence[RunRow], results: Sequence[ResultRow], histories: Sequence[History], now: datetime
) -> list[Cell]:
    names = {history.series.cell: history.series.name for history in histories}
    names |= {result.cell: result.name for result in results}
    of_cells = _grouped(results, lambda result: result.cell)
    measured = _grouped(histories, lambda history: history.series.cell)
    assessed = {each.cell: each for each in flakiness.assess(observations.of(results))}
    begin = now - timedelta(days=RECENT_DAYS)
    cells = []
    for identity, name in names.items():
        of_cell, of_metrics = of_cells.get(identity, []), measured.get(identity, [])
        by_run = {result.run.id: result for result in of_cell}
        recent = [by_run.get(run.id) for run in runs]
        shifts = [(history, shift) for history in of_metrics for shift in history.regressions]
        regressions = [(history, shift) for history, shift in shifts if shift.run.started >= begin]
        cells.append(Cell(project, identity, name, of_cell, recent, of_metrics, assessed.get(identity), regressions))
    return cells


def _grouped(items: Iterable[Item], key: Callable[[Item], str]) -> dict[str, list[Item]]:
    groups: dict[str, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def _urgency(cell: Cell) -> tuple[int, str, str]:
    first = "quarantine" if cell.is_quarantined else next(iter(cell.states), None)
    return ([*STATES].index(first) if first else len(STATES), cell.name, cell.id)
