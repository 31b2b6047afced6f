"""Measures the time that commands take with a large store: a million samples in 500 series, in SQLite and PostgreSQL.

Reading is compared with the time in which the database driver alone fetches the rows of all samples. Argument: the
number of samples in thousands (1000).
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from sqlalchemy import Connection, Table, insert, text

from tests.servers import postgres
from toolbox.records.results import bounds_file, bounds_formulas, change_points, queries, tables
from toolbox.records.results.bounds_parser import Entry
from toolbox.records.results.queries import Filter
from toolbox.records.results.series import Series
from toolbox.records.results.store import Store
from toolbox.reports.site import dashboard

SAMPLES, PROJECTS, CELLS, METRICS = 1_000_000, 5, 25, 4
BOUNDS_SECONDS, CHANGES_SECONDS, DASHBOARD_SECONDS, PAGE_BYTES = 2, 15, 30, 2_000_000
BATCH = 50_000
START = datetime(2021, 1, 1, 2, tzinfo=UTC)

Result = TypeVar("Result")


def fill(store: Store, samples: int) -> int:
    """Fill a store with nightly runs, with a shift in every fourth series. Return the number of runs per project."""
    generator = np.random.default_rng(4)
    runs = samples // (PROJECTS * CELLS * METRICS)
    with store.writing() as connection:
        for project in range(PROJECTS):
            _fill_project(connection, project, runs, generator)
    with store.reading() as connection:
        connection.execute(text("ANALYZE"))
        connection.commit()
    return runs


def _fill_project(connection: Connection, number: int, runs: int, generator: np.random.Generator) -> None:
    first_run, first_cell = number * runs + 1, number * CELLS + 1
    name = f"project_{number}"
    cells = [{"model": f"m{index // 5}", "batch": str(2 ** (index % 5))} for index in range(CELLS)]
    _insert(
        connection,
        tables.CELLS,
        (
            {
                "id": first_cell + index,
                "project": name,
                "cell": f"{first_cell + index:012x}",
                "name": ",".join(f"{axis}={label}" for axis, label in labels.items()),
                "settings": labels,
                "labels": labels,
            }
            for index, labels in enumerate(cells)
        ),
    )
    _insert(connection, tables.RUNS, (_run(name, first_run + index, index) for index in range(runs)))
    _insert(
        connection,
        tables.RESULTS,
        (_result(first_run + run, first_cell + cell, runs) for run in range(runs) for cell in range(CELLS)),
    )
    for cell in range(CELLS):
        for metric in range(METRICS):
            series = (first_cell + cell - 1) * METRICS + metric + 1
            row = {"id": series, "cell_id": first_cell + cell, "metric": f"metric_{metric}", "unit": "s"}
            _insert(connection, tables.SERIES, [{**row, "direction": "lower"}])
            values = 10 + 0.1 * generator.standard_normal(runs)
            values[runs // 2 :] += 0.5 if series % 4 == 0 else 0
            _insert(connection, tables.SAMPLES, (_sample(series, first_run + run, values[run]) for run in range(runs)))


def _run(project: str, identity: int, number: int) -> dict[str, Any]:
    started = START + timedelta(days=number)
    return {
        "id": identity,
        "project": project,
        "run": started.strftime("%Y%m%d-%H%M%S-aaaa"),
        "started": started,
        "state": "finished",
        "verdict": "passed",
        "message": "",
        "exit_code": 0,
        "seconds": 600.0,
        "presets": ["nightly"],
        "revision": f"{number:040x}",
        "host": "ci",
        "user": "ci",
        "versions": {},
        "directory": f"/runs/{project}/{number}",
        "currency": "USD",
        "baseline": True,
        "updated": started,
        "recorded": started,
    }


def _result(run: int, cell: int, runs: int) -> dict[str, Any]:
    is_flaky = cell % 7 == 0 and run % 50 == 0
    return {
        "id": (cell - 1) * runs * PROJECTS + run,
        "run_id": run,
        "cell_id": cell,
        "step": f"001__test/{cell:03d}__cell",
        "kind": "cell",
        "verdict": "failed" if is_flaky else "passed",
        "cause": "product" if is_flaky else None,
        "message": "exit status 1" if is_flaky else "",
        "counts": True,
        "out_of_range": False,
        "seconds": 60.0,
        "fingerprint": "f",
        "target": "local",
        "host": "",
        "accelerator": "H200",
        "cost": 0.05,
    }


def _sample(series: int, run: int, value: float) -> dict[str, Any]:
    return {
        "series_id": series,
        "run_id": run,
        "value": float(value),
        "fault": "",
        "accepted": True,
        "noisy": False,
        "confirmed": False,
    }


def _insert(connection: Connection, table: Table, rows: Any) -> None:
    left = iter(rows)
    while batch := list(islice(left, BATCH)):
        connection.execute(insert(table), batch)


def timed(work: Callable[[], Result]) -> tuple[float, Result]:
    """Return the wall time of a call in seconds, and its result."""
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def measure(kind: str, location: str, samples: int, directory: Path) -> bool:
    """Fill a store, measure and print the times of commands, and return whether all are within their limits."""
    store = Store(location)
    filling, _ = timed(lambda: fill(store, samples))
    with store.reading() as connection:
        query = text("SELECT series_id, run_id, value FROM samples")
        floor = statistics.median(timed(lambda: connection.execute(query).fetchall())[0] for _ in range(3))
        reading, series = timed(lambda: queries.series(connection, Filter()))
        bounding, _ = timed(lambda: _update_bounds(series, directory / f"{kind}.yaml"))
        detecting, detected = timed(lambda: [change_points.detect(each.values) for each in series])
        drawing, index = timed(lambda: dashboard.write(connection, directory / kind, Filter()))
    pages = sorted((page.stat().st_size, page.name) for page in index.parent.rglob("*") if page.is_file())
    size, name = pages[-1]
    ratio = reading / floor
    print(f"{kind}: {samples} samples in {len(series)} series, filled in {filling:.0f} s")
    print(f"  read all series: {reading:.1f} s, {ratio:.2f} times the time of the driver alone ({floor:.1f} s)")
    print(f"  update_bounds without reading: {bounding:.2f} s (at most {BOUNDS_SECONDS})")
    print(f"  changes: {detecting:.1f} s (at most {CHANGES_SECONDS}), {sum(map(len, detected))} changes")
    print(f"  dashboard: {drawing:.1f} s (at most {DASHBOARD_SECONDS}), {len(pages)} files")
    print(f"  largest page: {size / 1e6:.2f} MB, {name} (at most {PAGE_BYTES / 1e6:.0f})")
    return (
        bounding <= BOUNDS_SECONDS
        and detecting <= CHANGES_SECONDS
        and drawing <= DASHBOARD_SECONDS
        and size <= PAGE_BYTES
    )


def _update_bounds(series: list[Series], file: Path) -> None:
    computed = [(each, bounds_formulas.bound_of(each)) for each in series]
    entries = [
        Entry(each.cell, f"{each.project}/{each.name}", each.metric, bound)
        for each, bound in computed
        if bound is not None
    ]
    assert len(bounds_file.load(file).update(entries)) == len(entries)


@contextmanager
def stores(directory: Path) -> Iterator[dict[str, str]]:
    """Yield the locations of the available stores, by kind."""
    with ExitStack() as stack:
        locations = {"sqlite": str(directory / "results.sqlite")}
        try:
            locations["postgresql"] = stack.enter_context(postgres.Server()).database()
        except postgres.ServerError as error:
            print(f"postgresql: skipped: {error}")
        yield locations


def main() -> int:
    """Measure each store, and return 1 if a limit is exceeded."""
    samples = int(sys.argv[1]) * 1000 if len(sys.argv) > 1 else SAMPLES
    with tempfile.TemporaryDirectory() as scratch, stores(Path(scratch)) as locations:
        passed = [measure(kind, location, samples, Path(scratch)) for kind, location in locations.items()]
        return int(not all(passed))


if __name__ == "__main__":
    sys.exit(main())
