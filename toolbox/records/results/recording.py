"""Writes a run into the store from its journal, its plan and `run.json`, at the end of the run or on request.

If the store already has the run, the run is replaced. So a run that is recorded twice, or resumed, counts once.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Table, delete, func, insert, select, update

from toolbox.config.contracts.results import CURRENCY
from toolbox.ground.model.events import MetricMeasured, StepKind
from toolbox.ground.model.verdicts import Verdict
from toolbox.records.results import case_recording, charges, merged_shards
from toolbox.records.results.charges import Charge, Key, Purpose
from toolbox.records.results.store import Store
from toolbox.records.results.tables import ATTEMPTS, CELLS, CHECKS, MERGED_SHARDS, RESULTS, RUNS, SAMPLES, SERIES
from toolbox.records.runs import run_reader
from toolbox.records.runs.layout import RunDirectory
from toolbox.records.runs.run_state import CellAttempt, RunState, StepState

_FAILED: Final = {Verdict.FAILED, Verdict.XFAILED}
_UNFIT = re.compile("[\x00\ud800-\udfff]")  # characters that databases do not accept


@dataclass(frozen=True, slots=True)
class Recorded:
    """The result of recording a run.

    Args:
        cells: the number of cells that were written.
        samples: the number of samples that were written.
        is_new: whether this is the first recording of the run.
        is_outdated: whether the store has a newer state of the run, and was not changed.
        merged_into: the merged run in the store that contains this run, so that the store was not changed; empty if
            there is no such run.
        row: the id of the row of the run.
    """

    run: str
    project: str
    cells: int = 0
    samples: int = 0
    is_new: bool = False
    is_outdated: bool = False
    row: int = 0
    merged_into: str = ""


def record(store: Store, directory: Path, *, run: RunState | None = None, is_reusable: bool = False) -> Recorded:
    """Write a run into the store. If the store has the run, replace it.

    Args:
        run: the state of the run, if this process has the lock of its journal; None to read the journal.
        is_reusable: whether later runs may reuse the results. A directory from elsewhere may claim that a cell passed.

    Raises:
        UsageError: the directory is not the directory of a run.
        StoreError: the run could not be written. The store is then unchanged.
    """
    with store.writing() as connection:
        # Read the journal inside the transaction, so that a concurrent recording cannot have read a newer state.
        run = run or run_reader.read(directory)
        stored = _stored(connection, run)
        if stored is not None and run.updated is not None and stored.updated > run.updated:
            return Recorded(run.run, run.project, is_outdated=True, row=stored.id)
        if container := merged_shards.replace(connection, run, _delete_run):
            return Recorded(run.run, run.project, merged_into=container)
        run_id = _put_run(
            connection, run, RunDirectory(directory).read_request(), stored.id if stored is not None else None
        )
        is_newest = run.started == connection.scalar(
            select(func.max(RUNS.c.started)).where(RUNS.c.project == run.project)
        )
        merged_shards.write(connection, run_id, run)
        writer = _Writer(connection, run.project, run_id, is_newest=is_newest)
        judged = [step for step in run.steps.values() if step.kind is StepKind.CELL or step.checks or step.metrics]
        samples = writer.write(run, judged, RunDirectory(directory).read_plan(), is_reusable=is_reusable)
    return Recorded(run.run, run.project, len(judged), samples, is_new=stored is None, row=run_id)


def _stored(connection: Connection, state: RunState) -> Any:
    """Return the id of a run in the store, and the time of its last event; None if the store does not have the run."""
    is_run = (RUNS.c[name] == value for name, value in _key(state).items())
    query = select(RUNS.c.id, RUNS.c.updated).where(*is_run)
    return connection.execute(query).one_or_none()


def _key(run: RunState) -> dict[str, Any]:
    return {"project": _fit_text(run.project), "run": _fit_text(run.run), "started": run.started}


def _put_run(connection: Connection, state: RunState, request: Mapping[str, Any], stored_id: int | None) -> int:
    """Write the row of a run, delete the results and samples of an earlier recording, and return the id of the row."""
    end = state.finished
    row = {
        "state": state.state,
        "verdict": end.verdict if end else None,
        "cause": end.cause if end else None,
        "message": end.message if end else "",
        "exit_code": end.exit_code if end else None,
        "seconds": round(state.seconds, 3) if end else None,
        "presets": list(state.presets),
        "revision": state.revision or _text(request, "revision"),
        "host": _text(request, "host"),
        "user": _text(request, "user"),
        "versions": request.get("versions") or {},
        "directory": str(state.directory),
        "currency": request.get("currency") or CURRENCY,
        "baseline": request.get("baseline") is not False,
        "updated": state.updated,
        "recorded": datetime.now(UTC),
    }
    if stored_id is None:
        inserted = insert(RUNS).values(**_key(state), **_fit(row)).returning(RUNS.c.id)
        return int(connection.execute(inserted).scalar_one())
    _delete_results(connection, stored_id)
    connection.execute(update(RUNS).where(RUNS.c.id == stored_id).values(**_fit(row)))
    return stored_id


def _delete_run(connection: Connection, run_id: int) -> None:
    """Delete a run with its results and samples."""
    _delete_results(connection, run_id)
    connection.execute(delete(MERGED_SHARDS).where(MERGED_SHARDS.c.run_id == run_id))
    connection.execute(delete(RUNS).where(RUNS.c.id == run_id))


def _delete_results(connection: Connection, run_id: int) -> None:
    connection.execute(delete(SAMPLES).where(SAMPLES.c.run_id == run_id))
    connection.execute(delete(RESULTS).where(RESULTS.c.run_id == run_id))


@dataclass(slots=True)
class _Writer:
    """Writes the results of a run.

    Args:
        is_newest: whether the store has no later run of the project. Only the newest run changes the names of cells.
    """

    connection: Connection
    project: str
    run_id: int
    is_newest: bool

    def write(self, run: RunState, steps: Sequence[StepState], plan: Mapping[str, Any], *, is_reusable: bool) -> int:
        """Write the results of the steps of a run, and return the number of samples.

        Args:
            plan: the content of `plan.json`.
        """
        targets, keys = _targets(plan), _reuse_keys(plan) if is_reusable else {}
        if not steps:
            return 0
        by_identity = self._cells(steps)
        cells = {step.step: by_identity[_fit_text(step.identity)] for step in steps}
        charged = charges.of(steps, targets)
        self._insert(
            RESULTS,
            [
                {
                    **_result(step, targets),
                    "reuse_key": _reuse_key(step, keys),
                    "cost": _cost(step, charged),
                    "run_id": self.run_id,
                    "cell_id": cells[step.step],
                }
                for step in steps
            ],
        )
        rows = self.connection.execute(select(RESULTS.c.cell_id, RESULTS.c.id).where(RESULTS.c.run_id == self.run_id))
        by_cell = {row.cell_id: row.id for row in rows}
        results = {step: by_cell[cell] for step, cell in cells.items()}
        attempts = [
            {
                "result_id": results[step.step],
                **_attempt(attempt, targets, purpose, charged[step.step, attempt.attempt]),
            }
            for step in steps
            for attempt, purpose in zip(step.attempts, charges.purposes(step.attempts), strict=True)
        ]
        self._insert(ATTEMPTS, attempts)
        checks = [(results[step.step], position, check) for step in steps for position, check in enumerate(step.checks)]
        self._insert(
            CHECKS,
            [
                {"result_id": key, "position": position, **_fields(check, "check", "passed", "message", "file", "line")}
                for key, position, check in checks
            ],
        )
        ids = {step: (results[step], cell) for step, cell in cells.items()}
        case_recording.write(self.connection, self._insert, run, ids, _fit_text)
        return self._samples(steps, cells)

    def _samples(self, steps: Sequence[StepState], cells: Mapping[str, int]) -> int:
        keyed = {
            (cells[step.step], _fit_text(metric.metric), _fit_text(metric.unit)): (step, metric)
            for step in steps
            for metric in _counted(step)
        }
        series = self._series({key: metric for key, (_, metric) in keyed.items()})
        samples = [
            {
                "series_id": series[key],
                "run_id": self.run_id,
                **_value(metric),
                "accepted": is_accepted(step),
                "noisy": metric.metric in _noisy(step),
                "confirmed": metric.metric in _confirmed(step),
            }
            for key, (step, metric) in keyed.items()
        ]
        self._insert(SAMPLES, samples)
        return len(samples)

    def _cells(self, steps: Iterable[StepState]) -> dict[str, int]:
        """Return the ids of the rows of the steps' cells, by identity. Insert missing cells."""
        cells = {
            _fit_text(step.identity): {
                "project": self.project,
                "cell": step.identity,
                "name": step.name,
                "settings": dict(step.settings),
                "labels": dict(step.labels),
            }
            for step in steps
        }
        query = select(CELLS).where(CELLS.c.project == self.project)
        rows = {row.cell: row for row in self.connection.execute(query)}
        self._insert(CELLS, [row for identity, row in sorted(cells.items()) if identity not in rows])
        for identity, row in cells.items():
            if (stored := rows.get(identity)) is None:
                continue
            new = {name: value for name, value in _fit(row).items() if name in {"name", "settings", "labels"}}
            may_update = self.is_newest or not stored.settings  # an older run only adds missing settings
            deletes_settings = not row["settings"] and bool(stored.settings)
            if may_update and not deletes_settings and new != {name: getattr(stored, name) for name in new}:
                self.connection.execute(update(CELLS).where(CELLS.c.id == stored.id).values(**new))
        return {row.cell: row.id for row in self.connection.execute(query)}

    def _series(self, metrics: Mapping[tuple[int, str, str], MetricMeasured]) -> dict[tuple[int, str, str], int]:
        """Return the ids of the rows of series, by cell, metric and unit. Insert missing series."""
        query = select(SERIES).join(CELLS, CELLS.c.id == SERIES.c.cell_id).where(CELLS.c.project == self.project)
        rows = {(row.cell_id, row.metric, row.unit): row for row in self.connection.execute(query)}
        self._insert(
            SERIES,
            [
                {"cell_id": key[0], "metric": key[1], "unit": key[2], "direction": metric.direction}
                for key, metric in sorted(metrics.items(), key=lambda item: item[0])
                if key not in rows
            ],
        )
        for key, metric in metrics.items():
            if self.is_newest and key in rows and rows[key].direction != metric.direction:
                changed = update(SERIES).where(SERIES.c.id == rows[key].id).values(direction=metric.direction)
                self.connection.execute(changed)
        return {(row.cell_id, row.metric, row.unit): row.id for row in self.connection.execute(query)}

    def _insert(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
        if rows:
            self.connection.execute(insert(table), [_fit(row) for row in rows])


def is_accepted(step: StepState) -> bool:
    """Return whether a step passed, or failed only because metrics were out of the ranges of earlier runs."""
    if step.verdict in {Verdict.PASSED, Verdict.XPASSED}:
        return True
    failed = [check for check in step.checks if check.passed is False]
    return step.verdict in _FAILED and bool(failed) and all(check.side is not None for check in failed)


def _counted(step: StepState) -> Iterable[MetricMeasured]:
    """Return the metrics to record.

    If an attempt had values out of the range of earlier runs, and the step is accepted, these are the metrics of the
    first such attempt. Otherwise, they are the last value of each metric.
    """
    first = next((attempt for attempt in step.attempts if attempt.deviations), None)
    if first is not None and is_accepted(step):
        return first.metrics.values()
    return {metric.metric: metric for metric in step.metrics}.values()


def _noisy(step: StepState) -> set[str]:
    """Return the names of the metrics that were out of their range in one attempt but not in the other."""
    deviating = [attempt.deviations for attempt in step.attempts if attempt.deviations]
    if not deviating or not is_accepted(step):
        return set()
    latest = step.attempts[-1].deviations if len(step.attempts) > 1 else deviating[0]
    return {metric for deviations in deviating for metric in deviations if latest.get(metric) != deviations[metric]}


def _confirmed(step: StepState) -> set[str]:
    """Return the names of the metrics that were out of the range of earlier runs in both attempts of a failed step."""
    if step.verdict not in _FAILED or not is_accepted(step):
        return set()
    return {check.metric for check in step.checks if check.passed is False} - _noisy(step)


def _targets(plan: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the targets of a plan by name. The plan of a run from elsewhere may contain anything."""
    found = plan.get("targets")
    items = found.items() if isinstance(found, dict) else ()
    return {name: target for name, target in items if isinstance(target, dict)}


def _reuse_keys(plan: Mapping[str, Any]) -> dict[str, Mapping[str, str]]:
    """Return the keys for the reuse of results, by the id of the cell and the name of the target."""
    with contextlib.suppress(KeyError, TypeError, AttributeError):  # the file may have been changed
        return {cell["id"]: dict(cell["reuse"]["keys"]) for cell in plan.get("cells", ()) if "reuse" in cell}
    return {}


def _reuse_key(step: StepState, keys: Mapping[str, Mapping[str, str]]) -> str:
    """Return the key by which a later run finds the result: only if this run executed the cell, and it passed at once.

    A cell that passed only at a later attempt may be flaky.
    """
    if step.verdict is not Verdict.PASSED or len(step.attempts) != 1 or not step.counts:
        return ""
    return keys.get(step.identity, {}).get(step.attempts[0].target, "")


def _result(step: StepState, targets: Mapping[str, Any]) -> dict[str, Any]:
    last = step.attempts[-1] if step.attempts else None
    target = targets.get(last.target, {}) if last is not None else {}
    return {
        **_fields(step, "step", "kind", "verdict", "cause", "message", "counts", "seconds", "fingerprint"),
        "target": last.target if last is not None else "",
        "host": (last.host if last is not None else "") or target.get("address") or "",
        "accelerator": _accelerator(last, targets) if last is not None else "",
        "out_of_range": step.is_out_of_range,
        "reused_from": step.reused_from,
    }


def _accelerator(attempt: CellAttempt, targets: Mapping[str, Any]) -> str:
    return str(targets.get(attempt.target, {}).get("accelerator") or attempt.accelerators)


def _cost(step: StepState, charged: Mapping[Key, Charge]) -> float | None:
    """Return the cost of all attempts of a step; None if a cost is unknown, or there are no attempts."""
    costs = [charged[step.step, attempt.attempt].cost for attempt in step.attempts]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if costs and len(known) == len(costs) else None


def _attempt(attempt: CellAttempt, targets: Mapping[str, Any], purpose: Purpose, charge: Charge) -> dict[str, Any]:
    return {
        **_fields(attempt, "attempt", "target", "revision", "submitted", "verdict", "cause", "message", "seconds"),
        "image": attempt.image,
        "accelerator": _accelerator(attempt, targets),
        "deviates": bool(attempt.deviations),
        "out_of_range": attempt.is_out_of_range,
        "purpose": purpose,
        "charged_seconds": charge.seconds,
        "cost": charge.cost,
    }


def _value(metric: MetricMeasured) -> dict[str, Any]:
    if metric.value is None or math.isfinite(metric.value):
        return {"value": metric.value, "fault": metric.fault}
    return {"value": None, "fault": metric.fault or f"the value is {metric.value}"}


def _fields(source: object, *names: str) -> dict[str, Any]:
    return {name: getattr(source, name) for name in names}


def _fit(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with values that every database accepts."""
    return {name: _fit_value(value) for name, value in row.items()}


def _fit_text(text: str) -> str:
    return _UNFIT.sub("\ufffd", text)


def _fit_value(value: Any) -> Any:
    if isinstance(value, str):
        return _fit_text(value)
    if isinstance(value, dict | list):
        text = json.dumps(value, ensure_ascii=False, default=str)
        # JSON has no infinity, and some databases reject it.
        return json.loads(_fit_text(text.replace("\\u0000", "\ufffd")), parse_constant=str)
    return value


def _text(request: Mapping[str, Any], name: str) -> str | None:
    """Return a text of `run.json`, which may be damaged; None if it is missing.

    Raises:
        ValueError: the value is not text.
    """
    value = request.get(name)
    if not isinstance(value, str | None):
        raise ValueError(f"`{name}` in run.json is not text")  # noqa: TRY004  # a damaged file is not a wrong type here
    return value
