"""What `results update_bounds` does: the decision about each metric of each cell, the file, and what is printed."""

from __future__ import annotations

import getpass
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Connection

from toolbox.commands import _results
from toolbox.model import patterns
from toolbox.model.errors import UsageError
from toolbox.reports.terminal import result_rows
from toolbox.results import queries
from toolbox.results.bounds_file import BoundsFiles
from toolbox.results.bounds_parser import Entry
from toolbox.results.bounds_update import Acceptance, Action, Decision, Update
from toolbox.results.queries import Filter
from toolbox.results.series import Series

_LONGEST_REASON: Final = 100  # so that it fits on a line of the file


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an update did, as rows and remarks for people and programs."""

    rows: Sequence[dict[str, Any]]
    remarks: Sequence[str]


def acceptance(accept: str | None, reason: str | None) -> Acceptance | None:
    """Return what `--accept=CELLS:METRICS --reason=WHY` accepts; None without them.

    Raises:
        UsageError: one of the two is missing, or is not what it should be.
    """
    if accept is None:
        if reason is not None:
            raise UsageError(f"--reason={reason}: --reason needs --accept=CELLS:METRICS")
        return None
    cells, _, metrics = accept.rpartition(":")
    if not cells or not metrics:
        raise UsageError(f"--accept={accept}: CELLS:METRICS was expected, two patterns, such as 'model=small,*:time'")
    if not reason or len(reason) > _LONGEST_REASON or not reason.isprintable():
        raise UsageError(f"--accept={accept} needs a --reason of one line, of at most {_LONGEST_REASON} characters")

    def covers(series: Series) -> bool:
        return patterns.covers(cells, series.name, series.cell) and patterns.covers(metrics, series.metric)

    return Acceptance(covers, _user(), reason, datetime.now(UTC).replace(microsecond=0))


def update(connection: Connection, wanted: Filter, files: BoundsFiles, how: Update, *, dry_run: bool) -> Outcome:
    """Decide about the bounds of all metrics that are wanted, and write them unless it is a rehearsal.

    Raises:
        ConfigurationError: the file cannot be updated.
        UsageError: nothing has changed that is to be accepted.
    """
    every = replace(wanted, since=None, revision=None)
    series = _results.newest_units(queries.series(connection, every))
    if every != wanted:
        how = replace(how, runs=_runs(queries.series(connection, wanted)))
    decisions, faults = _decisions(series, how, files)
    if how.acceptance is not None:
        _require_change(decisions, how.acceptance)
    entries = [
        Entry(one.series.cell, one.series.name, one.series.metric, one.after)
        for one in decisions
        if one.after is not None
    ]
    differences = files.update(entries, dry_run=dry_run)
    rows = result_rows.of_decisions(decisions)
    few = sum(one.after is None for one in decisions)
    remarks = [
        *_warnings(rows),
        *faults,
        *([f"{few} series have too few accepted values for bounds"] if few else []),
        f"{len(differences)} of {len(entries)} bounds {'would change' if dry_run else 'changed'} in {files.path}",
    ]
    return Outcome(rows, remarks)


def _decisions(series: Sequence[Series], how: Update, files: BoundsFiles) -> tuple[list[Decision], list[str]]:
    bounds = files.bounds
    decisions, faults = [], []
    for one in series:
        key = one.cell, one.metric
        try:
            decisions.append(how.decide(one, bounds.get(key), is_manual=key in files.manual))
        except ValueError as error:
            faults.append(f"{one.name}, {one.metric}: {error}")
    return decisions, faults


def _require_change(decisions: Sequence[Decision], accepted: Acceptance) -> None:
    """Refuse to accept what did not change: a slip in a pattern would go unnoticed."""
    covered = [one for one in decisions if accepted.covers(one.series)]
    if not covered:
        some = ", ".join(f"{one.series.name}:{one.series.metric}" for one in decisions[:3])
        examples = f"metrics are written CELL:METRIC, for example {some}" if some else "there are no metrics"
        raise UsageError(f"--accept matches no metric: {examples}")
    if not any(one.is_accepted or one.action is Action.REFUSED for one in covered):
        raise UsageError(f"--accept matches {len(covered)} metrics, and the level of none of them has changed")


def _runs(series: Sequence[Series]) -> Mapping[tuple[str, str], set[tuple[str, datetime]]]:
    runs: dict[tuple[str, str], set[tuple[str, datetime]]] = defaultdict(set)
    for one in series:
        runs[one.cell, one.metric] |= {(run.run, run.started) for run in one.runs}
    return runs


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container with a user id that has no name
        return ""


def _warnings(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return what a person should consider before new bounds are committed."""
    refused = sum(row["action"] == Action.REFUSED for row in rows)
    worse = sum(row["change"] == "worse" for row in rows)
    wide = sum(row["is_wide"] for row in rows)
    return [
        *([f"{refused} refused: these bounds did not change; `why` says what to do"] if refused else []),
        *([f"{worse} of these follow a change for the worse: is it a deliberate one?"] if worse else []),
        *([f"{wide} are wider than their mean: a few values are far from the others"] if wide else []),
    ]
