"""Renders how a run differs from the baseline: what is new, known, flaky and fixed; metrics that moved or are lost."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from toolbox.records.results import since_last_run
from toolbox.records.results.flaky_and_moved import LostMetric, MetricChange
from toolbox.records.results.since_last_run import Kind, NotCompared, SinceLastRun, VerdictChange
from toolbox.reports.forge.markup import code, size

_MAX_VERDICTS: Final = 30
_MAX_METRICS: Final = 15
_LONGEST: Final = 120
_WORDS: Final = {
    Kind.NEWLY_FAILING: "new failure",
    Kind.OTHER_FAILURE: "known failure, other cause",
    Kind.KNOWN_FAILURE: "known failure",
    Kind.NEWLY_PASSING: "fixed",
}
_VERDICT_HEAD: Final = ("", "cell or test", "before → now")
_METRIC_HEAD: Final = ("", "metric", "cell", "before", "now", "change", "history", "bound")


def render(directory: Path, room: int) -> str:
    """Return the section as HTML without empty lines; empty if the run has no matrix.

    Args:
        room: the maximum length in bytes. Rows that do not fit are counted.
    """
    found = since_last_run.find(directory)
    if found is None:
        return ""
    if isinstance(found, NotCompared):
        return f"<p>{code(str(found), 500)}</p>"
    tally = "; ".join(filter(None, [found.tally, found.remarks]))
    head = f"<h3>Against the baseline</h3>\n<p>since {code(found.earlier)}:<br>{code(tally, 500)}</p>"
    verdicts = list(_verdicts(found))
    total = _total(found)
    parts = [head]
    parts += _table(_VERDICT_HEAD, verdicts[:_MAX_VERDICTS], total, room // 2)
    lost = [_lost(metric) for metric in found.lost[:_MAX_METRICS]]
    metrics = [*lost, *(_metric(change) for change in found.metrics)][:_MAX_METRICS]
    total = found.lost_count + sum(found.metric_counts.values())
    parts += _table(_METRIC_HEAD, metrics, total, room - sum(map(size, parts)))
    return "\n".join(parts)


def _total(comparison: SinceLastRun) -> int:
    """Return the number of rows about verdicts, with those that are not listed."""
    changed = sum(comparison.cell_counts.values()) + sum(comparison.test_counts.values())
    return changed + len(_flaky_only(comparison))


def _verdicts(comparison: SinceLastRun) -> Iterator[Sequence[str]]:
    """Yield a row for each cell and test that changed, fails as before or is flaky: failures that are new are first."""
    flaky = {cell.cell: cell.reason for cell in comparison.flaky}
    changes = [*comparison.cells, *comparison.tests, *comparison.known]
    for kind, word in _WORDS.items():
        of_kind = [change for change in changes if change.kind is kind]
        for change in sorted(of_kind, key=lambda each: each.cell in flaky):
            reason = flaky.get(change.cell, "") if kind is not Kind.NEWLY_PASSING else ""
            yield _verdict(change, f"flaky: {word}" if reason else word, reason)
    for name, reason in _flaky_only(comparison):
        yield "flaky", code(name, _LONGEST), code(reason, _LONGEST)


def _flaky_only(comparison: SinceLastRun) -> list[tuple[str, str]]:
    """Return the names of flaky cells whose verdict is as in the baseline, with the reasons."""
    listed = {change.cell for change in (*comparison.cells, *comparison.tests, *comparison.known)}
    return [(cell.name, cell.reason) for cell in comparison.flaky if cell.cell not in listed]


def _verdict(change: VerdictChange, word: str, reason: str) -> Sequence[str]:
    name = " ".join(filter(None, (change.name, change.test)))
    result = str(change) if change.kind is not Kind.KNOWN_FAILURE else f"{change} since {change.run} or earlier"
    return html.escape(word), code(name, _LONGEST), code(f"{result}; {reason}" if reason else result, _LONGEST)


def _metric(change: MetricChange) -> Sequence[str]:
    unit = f" {change.unit}" if change.unit else ""
    return (
        html.escape(change.word),
        code(change.metric, _LONGEST),
        code(change.name, _LONGEST),
        code(f"{change.before:.5g}{unit}", _LONGEST),
        code(f"{change.after:.5g}{unit}", _LONGEST),
        html.escape(change.percent),
        change.sparkline,
        code(change.position, _LONGEST) if change.bound else "",
    )


def _lost(metric: LostMetric) -> Sequence[str]:
    unit = f" {metric.unit}" if metric.unit else ""
    before, reason = code(f"{metric.before:.5g}{unit}", _LONGEST), code(metric.reason, _LONGEST)
    return "unknown", code(metric.metric, _LONGEST), code(metric.name, _LONGEST), before, reason, "", "", ""


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], total: int, room: int) -> list[str]:
    """Return a table with as many rows as there is room for, and the number of the others; empty without rows."""
    lines = [f"<tr>{''.join(f'<th>{name}</th>' for name in head)}</tr>"]
    frame = f'<table>\n</table>\n<tr><td colspan="{len(head)}">and {total} more</td></tr>'
    room -= size(frame) + size(lines[0]) + 1
    for row in rows:
        line = f"<tr>{''.join(f'<td>{column}</td>' for column in row)}</tr>"
        room -= size(line) + 1
        if room < 0:
            break
        lines.append(line)
    more = total - (len(lines) - 1)
    if not total:
        return []
    rest = [f'<tr><td colspan="{len(head)}">and {more} more</td></tr>'] if more > 0 else []
    return ["<table>", *lines, *rest, "</table>"]
