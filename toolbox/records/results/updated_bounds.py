"""Updates the bounds of all metrics that a filter selects, and writes the file: `results update_bounds`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import Connection

from toolbox.ground.model import patterns
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.text import counted
from toolbox.ground.system import environ
from toolbox.records.results import queries
from toolbox.records.results.bounds_file import BoundsFiles
from toolbox.records.results.bounds_parser import Entry
from toolbox.records.results.bounds_update import Acceptance, Action, BoundsPolicy, Decision
from toolbox.records.results.queries import Filter
from toolbox.records.results.series import Series

_LONGEST_REASON: Final = 100  # characters: the file contains the reason on one line


def acceptance(accept: str | None, reason: str | None) -> Acceptance | None:
    """Return the acceptance that `--accept=CELLS:METRICS --reason=WHY` describes; None without these flags."""
    if accept is None:
        if reason is not None:
            raise UsageError(f"--reason={reason}: --reason needs --accept=CELLS:METRICS")
        return None
    cells, _, metrics = accept.rpartition(":")
    if not cells or not metrics:
        raise UsageError(f"--accept={accept}: write two patterns, CELLS:METRICS, such as 'model=small,*:time'")
    if not reason or len(reason) > _LONGEST_REASON or not reason.isprintable():
        raise UsageError(f"--accept={accept} needs a --reason of one line, of at most {_LONGEST_REASON} characters")

    def covers(series: Series) -> bool:
        return patterns.covers(cells, series.name, series.cell) and patterns.covers(metrics, series.metric)

    return Acceptance(covers, environ.user_name() or "", reason, datetime.now(UTC).replace(microsecond=0))


def update(
    connection: Connection, selection: Filter, files: BoundsFiles, how: BoundsPolicy, *, dry_run: bool
) -> tuple[Sequence[Decision], Sequence[str]]:
    """Decide on the bounds of all metrics that the filter selects, and write the bounds unless `dry_run` is set.

    Returns:
        the decisions, and remarks for people.

    Raises:
        ConfigurationError: the file cannot be updated.
        UsageError: the acceptance matches no metric whose level has changed.
    """
    # `--since` and `--revision` select the runs for the bounds, but levels are always computed from all runs.
    all_runs = replace(selection, since=None, revision=None)
    series = _newest_units(queries.series(connection, all_runs))
    if all_runs != selection:
        how = replace(how, runs={run for item in queries.series(connection, selection) for run in item.runs})
    decisions, faults = _decisions(series, how, files)
    if how.acceptance is not None:
        _require_change(decisions, how.acceptance)
    entries = [
        Entry(decision.series.cell, decision.series.name, decision.series.metric, decision.after)
        for decision in decisions
        if decision.after is not None
    ]
    differences = files.update(entries, dry_run=dry_run)
    outside = sum(not run.baseline for run in queries.runs(connection, replace(selection, baseline=False)))
    few = sum(decision.after is None for decision in decisions)
    remarks = [
        *faults,
        *([f"{counted(outside, 'run')} outside of the baseline: not used"] if outside else []),
        *([f"{few} series have too few accepted values for bounds"] if few else []),
        f"{len(differences)} of {len(entries)} bounds {'would change' if dry_run else 'changed'} in {files.path}",
    ]
    return decisions, remarks


def _decisions(series: Sequence[Series], how: BoundsPolicy, files: BoundsFiles) -> tuple[list[Decision], list[str]]:
    bounds = files.bounds
    decisions, faults = [], []
    for item in series:
        key = item.cell, item.metric
        try:
            decisions.append(how.decide(item, bounds.get(key), is_manual=key in files.manual))
        except ValueError as error:
            faults.append(f"{item.name}, {item.metric}: {error}")
    return decisions, faults


def _require_change(decisions: Sequence[Decision], accepted: Acceptance) -> None:
    """Raise if the acceptance matches no changed level, because the patterns may have a typing mistake."""
    covered = [decision for decision in decisions if accepted.covers(decision.series)]
    if not covered:
        examples = ", ".join(f"{decision.series.name}:{decision.series.metric}" for decision in decisions[:3])
        hint = f"metrics are written CELL:METRIC, for example {examples}" if examples else "there are no metrics"
        raise UsageError(f"--accept matches no metric: {hint}")
    if not any(decision.is_accepted or decision.action is Action.REFUSED for decision in covered):
        raise UsageError(f"--accept matches {len(covered)} metrics, but none of them has a changed level")


def _newest_units(series: Sequence[Series]) -> list[Series]:
    """Return one series for each metric of each cell: the series with the unit that the newest run used."""
    newest: dict[tuple[str, str, str], Series] = {}
    for item in series:
        key = item.project, item.cell, item.metric
        if key not in newest or newest[key].runs[-1].started < item.runs[-1].started:
            newest[key] = item
    return list(newest.values())
