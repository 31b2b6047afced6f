"""Prints remote resources for `resources list`, and deletes and prints them for `resources reap`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal

from toolbox.ground.model.foreign_text import printable
from toolbox.ground.model.text import duration
from toolbox.ground.model.verdicts import ExitCode
from toolbox.ground.system import redaction
from toolbox.orchestration import leftovers
from toolbox.orchestration.leftovers import Leftover, Outcome, Reaped, Search
from toolbox.records.runs import summary
from toolbox.reports.terminal import live_view, rows
from toolbox.reports.terminal.rows import Format

_COLUMNS: Final = ("kind", "name", "state", "owner", "project", "run", "age", "expires", "found")
_FIELDS: Final = (
    *("kind", "name", "run", "project", "user", "host", "planned", "expires", "created", "kept", "failure", "command"),
    *("directory", "running", "found"),
)
_NOTHING: Final = "there are no remote resources"
_NOTHING_ON_LEDGERS: Final = f"{_NOTHING} on the ledgers of this machine: name a project to search by labels too"


def show(found: Search, format_: Format) -> str | None:
    """Print a table of the resources, or return their text in a format for programs."""
    if format_ != "text":
        return _dump([_fields(leftover) for leftover in found.leftovers], _FIELDS, format_)
    now = datetime.now(UTC)
    with live_view.view(sys.stdout) as view:
        rows.show([_row(leftover, now) for leftover in found.leftovers], _COLUMNS, view.console, empty=_nothing(found))
    return None


def reap(found: Search, older_than: float | None, format_: Format, *, dry_run: bool) -> int:
    """Delete leftover resources, print a line for each resource, and return the exit code."""
    if dry_run:
        reaped = leftovers.preview(found.leftovers, older_than)
    else:
        reaped = leftovers.reap(found.leftovers, older_than, redaction.current())
    if format_ == "text":
        lines = [_line(each) for each in reaped] or [_nothing(found)]
        print(printable(redaction.current()("\n".join(lines))))
    else:
        results = [{**_fields(each.leftover), "outcome": each.outcome, "reason": each.reason} for each in reaped]
        text = _dump(results, (*_FIELDS, "outcome", "reason"), format_)
        print(redaction.escaped(text, is_json=format_ == "json"))
    has_failed = any(each.outcome is Outcome.FAILED for each in reaped)
    return ExitCode.ERROR if has_failed or found.faults else ExitCode.PASSED


def _nothing(found: Search) -> str:
    return _NOTHING if found.has_labels else _NOTHING_ON_LEDGERS


def _line(reaped: Reaped) -> str:
    resource = reaped.leftover.entry.resource
    name = f"{resource.kind} {resource.name}"
    match reaped.outcome:
        case Outcome.DELETED | Outcome.WOULD_DELETE:
            return f"{reaped.outcome} {name}"
        case Outcome.KEPT:
            return f"kept {name}: {_one_line(reaped.reason)}"
        case Outcome.FAILED:
            return f"could not delete {name}: {_one_line(reaped.reason)}; by hand: {resource.command}"


def _one_line(text: str) -> str:
    return "; ".join(filter(None, map(str.strip, text.splitlines())))


def _row(leftover: Leftover, now: datetime) -> dict[str, Any]:
    entry = leftover.entry
    return {
        "kind": entry.resource.kind,
        "name": entry.resource.name,
        "state": "in use" if leftover.is_running else entry.state,
        "owner": f"{entry.owner.user}@{entry.owner.host}",
        "project": entry.owner.project,
        "run": entry.owner.run,
        "age": duration((now - entry.planned).total_seconds(), digits=0),
        "expires": entry.expires,
        "found": _source(leftover),
    }


def _fields(leftover: Leftover) -> dict[str, Any]:
    return {
        **summary.resource_json(leftover.entry),
        "directory": str(leftover.run or ""),
        "running": leftover.is_running,
        "found": _source(leftover),
    }


def _source(leftover: Leftover) -> str:
    return "ledger" if leftover.is_on_ledger else "labels"


def _dump(found: Sequence[Mapping[str, Any]], columns: Sequence[str], format_: Literal["json", "csv"]) -> str:
    return redaction.current()(rows.dump(found, columns, format_))
