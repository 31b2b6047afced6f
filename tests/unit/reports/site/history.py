"""This module writes stores with a history of runs, as `results import` does, for the tests of the dashboard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Table, insert

from toolbox.records.results.store import Store
from toolbox.records.results.tables import (
    ATTEMPTS,
    CASE_COUNTS,
    CASE_RESULTS,
    CASES,
    CELLS,
    METADATA,
    RESULTS,
    RUNS,
    SAMPLES,
    SERIES,
)

NOW: Final = datetime(2026, 11, 21, 8, tzinfo=UTC)
UNIT: Final = "s"


@dataclass(frozen=True, slots=True)
class Ended:
    """The result of a cell. Lower values of `metrics` are better; `noisy` applies to all of them.

    Args:
        tests: the outcome and the seconds of test cases, by name.
    """

    verdict: str | None = "passed"
    cause: str | None = None
    message: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    attempts: tuple[str, ...] = ()
    seconds: float | None = 60.0
    cost: float | None = None
    counts: bool = True
    noisy: bool = False
    tests: Mapping[str, tuple[str, float]] = field(default_factory=dict)


class Past:
    """The rows of a store, which are added run by run. All metrics have the unit `unit`."""

    def __init__(self, *, unit: str = UNIT) -> None:
        self._unit = unit
        self._rows: dict[str, list[dict[str, Any]]] = {}
        self._cells: dict[tuple[str, str], int] = {}
        self._series: dict[tuple[int, str], int] = {}
        self._cases: dict[tuple[int, str], int] = {}

    def run(self, cells: Mapping[str, Ended], *, days_ago: float = 0, project: str = "grid", **columns: Any) -> None:
        """Add a run with the results of cells by name. `columns` replace values in the row of the run."""
        identity = len(self._rows.get("runs", ())) + 1
        started = NOW - timedelta(days=days_ago, hours=1)
        row = {
            "id": identity,
            "project": project,
            "run": f"r-{identity}",
            "started": started,
            "state": "finished",
            "verdict": "passed",
            "cause": None,
            "message": "",
            "exit_code": 0,
            "seconds": 100.0,
            "updated": started,
            "presets": [],
            "revision": f"abc{identity}",
            "host": "here",
            "user": "me",
            "versions": {},
            "directory": "",
            "currency": "USD",
            "baseline": True,
            "recorded": started,
        }
        self._add(RUNS, **(row | columns))
        for name, ended in cells.items():
            self._result(identity, project, name, ended, started)

    def _result(self, run: int, project: str, name: str, ended: Ended, started: datetime) -> None:
        cell = self._cell(project, name)
        result = self._add(
            RESULTS,
            id=len(self._rows.get("results", ())) + 1,
            run_id=run,
            cell_id=cell,
            step=f"000__{cell}",
            kind="cell",
            verdict=ended.verdict,
            cause=ended.cause,
            message=ended.message,
            counts=ended.counts,
            seconds=ended.seconds,
            fingerprint="f",
            target="local",
            host="here",
            accelerator="none",
            cost=ended.cost,
            out_of_range=False,
            reuse_key="",
            reused_from="",
        )
        verdicts = ended.attempts or (() if ended.cost is None else (ended.verdict,))
        for number, verdict in enumerate(verdicts, 1):
            self._add(
                ATTEMPTS,
                result_id=result,
                attempt=number,
                target="local",
                submitted=started,
                verdict=verdict,
                cause="product" if verdict == "failed" else None,
                message="",
                seconds=60.0,
                accelerator="none",
                revision="",
                deviates=False,
                out_of_range=False,
                image="",
                purpose="first" if number == 1 else "retry",
                cost=None if ended.cost is None else ended.cost / len(verdicts),
            )
        for outcome, number in Counter(outcome for outcome, _ in ended.tests.values()).items():
            self._add(CASE_COUNTS, result_id=result, outcome=outcome, number=number)
        for test, (outcome, seconds) in ended.tests.items():
            message = f"why {test} has failed" if outcome == "failed" else ""
            row = {"result_id": result, "case_id": self._case(cell, test), "outcome": outcome, "seconds": seconds}
            self._add(CASE_RESULTS, **row, message=message, text="")
        for metric, value in ended.metrics.items():
            row = {"series_id": self._metric(cell, metric), "run_id": run, "value": value, "fault": ""}
            self._add(SAMPLES, **row, accepted=True, noisy=ended.noisy, confirmed=False)

    def _cell(self, project: str, name: str) -> int:
        if (project, name) not in self._cells:
            number = self._cells[project, name] = len(self._cells) + 1
            labels = dict(part.split("=", 1) for part in name.split(",")) if "=" in name else {}
            row = {"id": number, "project": project, "cell": f"{name}-id", "name": name}
            self._add(CELLS, **row, settings=labels, labels=labels)
        return self._cells[project, name]

    def _case(self, cell: int, name: str) -> int:
        if (cell, name) not in self._cases:
            number = self._cases[cell, name] = len(self._cases) + 1
            self._add(CASES, id=number, cell_id=cell, suite="m", name=name)
        return self._cases[cell, name]

    def _metric(self, cell: int, metric: str) -> int:
        if (cell, metric) not in self._series:
            number = self._series[cell, metric] = len(self._series) + 1
            self._add(SERIES, id=number, cell_id=cell, metric=metric, unit=self._unit, direction="lower")
        return self._series[cell, metric]

    def _add(self, table: Table, **row: Any) -> int:
        self._rows.setdefault(table.name, []).append(row)
        return int(row.get("id", 0))

    @contextmanager
    def stored(self, directory: Path) -> Iterator[Connection]:
        """Write a store into a directory, and yield a connection that reads it."""
        with Store(str(directory / "store" / "results.sqlite")) as store:
            with store.writing() as connection:
                for table in METADATA.sorted_tables:
                    if table.name in self._rows:
                        connection.execute(insert(table), self._rows[table.name])
            with store.reading() as connection:
                yield connection


def wobbling(days: int, *, level: float = 1.0, after: float | None = None, shifted: int = 0) -> list[float]:
    """Return a value per day within 0.5% of `level`; the last `shifted` values are at the level `after`."""
    noise = [0.005 * ((day * 37) % 11 - 5) / 5 for day in range(days)]
    levels = [level] * (days - shifted) + [level if after is None else after] * shifted
    return [value * (1 + part) for value, part in zip(levels, noise, strict=True)]


def nightly(values: list[float], *, cell: str = "small", ago: float = 0, unit: str = UNIT) -> Past:
    """Return a past with one run of one cell per night and these step times; the last run was `ago` days ago."""
    past = Past(unit=unit)
    for place, value in enumerate(values):
        past.run({cell: Ended(metrics={"step_time": value})}, days_ago=ago + len(values) - 1 - place)
    return past
