"""Converts data from the store to rows for `rows.py`: one function per command of `results`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from toolbox.ground.model.bounds import Bound, Method
from toolbox.ground.model.cases import CaseOutcome
from toolbox.records.results import change_points, comparison
from toolbox.records.results.bounds_update import Action, Decision
from toolbox.records.results.change_points import ChangePoint
from toolbox.records.results.comparison import Comparison
from toolbox.records.results.cost import Cost, Kind
from toolbox.records.results.flakiness import Flakiness, State
from toolbox.records.results.flaky_and_moved import LostMetric
from toolbox.records.results.forecast import Month
from toolbox.records.results.records import CaseRow, ResultRow, RunRow
from toolbox.records.results.series import Series
from toolbox.records.results.since_last_run import VerdictChange

Row = dict[str, Any]
_WIDE: Final = 1.0  # bounds are wide if the distance between them is more than this share of the mean

RUNS: Final = (
    *("run", "project", "started", "verdict", "cause", "cells", "seconds", "cost", "presets", "revision", "host"),
)
VALUES: Final = ("run", "started", "revision", "cell", "metric", "value", "unit", "verdict")
CELLS: Final = (
    *(
        "cell",
        "verdict",
        "reused_from",
        "cause",
        "change",
        "counts",
        "seconds",
        "attempts",
        "target",
        "accelerator",
        "tests",
        "metrics",
        "message",
    ),
)
CASES: Final = ("cell", "test", "outcome", "seconds", "message")
SHOWN_CASES: Final = ("cell", "test", "outcome", "change", "seconds", "message")
CASE_HISTORY: Final = ("run", "started", "revision", *CASES)
_WORST_OUTCOMES: Final = (
    CaseOutcome.ERROR,
    CaseOutcome.FAILED,
    CaseOutcome.FLAKY,
    CaseOutcome.PASSED,
    CaseOutcome.SKIPPED,
)
COMPARISONS: Final = (
    *("cell", "metric", "change", "before", "after", "unit", "percent"),
    *("samples_before", "samples_after", "p_value", "adjusted_p_value"),
)
BOUNDS: Final = (
    *("cell", "metric", "action", "lower", "upper", "mean", "unit", "samples", "detects", "before", "mean_percent"),
    *("change", "why"),
)
CHANGES: Final = (
    *("project", "cell", "metric", "state", "started", "run", "before", "after", "unit", "percent", "change"),
    *("p_value", "revision_before", "revision_after"),
)
NUMBERS: Final = ("series", "index", "state", "before", "after", "ratio", "p_value")
FLAKY: Final = (
    *("project", "cell", "state", "events", "keys", "mean", "lower", "clean", "revision_of_latest", "noisy", "advice"),
)
COSTS: Final = ("cost", "currency", "failures", "retries", "confirmations")
MONTHS: Final = ("previous", "percent", "forecast", "forecast_lower", "forecast_upper")
COUNTS: Final = ("runs", "attempts", "unpriced", "seconds")


def of_runs(runs: Iterable[RunRow]) -> list[Row]:
    """Return one row per run."""
    return [
        {
            **{name: getattr(run, name) for name in RUNS},
            "verdict": run.verdict or run.state,
            "presets": list(run.presets),
            "directory": run.directory,
            "message": run.message,
            "currency": run.currency,
            "baseline": run.baseline,
        }
        for run in runs
    ]


def of_values(results: Iterable[ResultRow]) -> list[Row]:
    """Return one row per value of a metric."""
    return [
        {
            "run": result.run.run,
            "project": result.run.project,
            "started": result.run.started,
            "revision": result.run.revision,
            "cell": result.name,
            "metric": metric,
            "value": measured.value,
            "unit": measured.unit,
            "verdict": result.verdict,
        }
        for result in results
        for metric, measured in result.metrics.items()
    ]


def of_cells(results: Iterable[ResultRow], checks: Mapping[tuple[int, str], Any]) -> list[Row]:
    """Return one row per cell of a run.

    Args:
        checks: the outcomes of the checks, by the id of the row of the run and the id of the cell.
    """
    return [
        {
            "cell": result.name,
            "id": result.cell,
            "verdict": result.verdict or "not ended",
            "cause": result.cause,
            "counts": None if result.counts else False,
            "seconds": result.seconds,
            "reused_from": result.reused_from,
            "attempts": len(result.attempts),
            "target": result.target,
            "accelerator": result.accelerator,
            "cost": result.cost,
            "labels": dict(result.labels),
            "tests": dict(result.tests),
            "metrics": {
                name: {"value": each.value, "unit": each.unit, "reason": each.fault or None}
                for name, each in result.metrics.items()
            },
            "checks": checks.get((result.run.id, result.cell), []),
            "message": result.message,
            "step": result.step,
        }
        for result in results
    ]


def of_cases(cases: Iterable[CaseRow]) -> list[Row]:
    """Return one row per test case, in the given order."""
    return [
        {
            "run": case.result.run.run,
            "started": case.result.run.started,
            "revision": case.result.run.revision,
            "cell": case.result.name,
            "test": case.title,
            "suite": case.suite,
            "name": case.name,
            "outcome": case.outcome,
            "seconds": case.seconds,
            "message": case.message,
            "text": case.text,
        }
        for case in cases
    ]


def with_changes(rows: Sequence[Row], changes: Iterable[VerdictChange]) -> Sequence[Row]:
    """Add to the rows of cells or test cases how the result has changed since the last run, and return the rows."""
    of_row = {(change.name, change.test): change for change in changes}
    for row in rows:
        change = of_row.get((row["cell"], row.get("test", "")))
        row["change"] = change.kind if change is not None else None
        row["before"] = change.before if change is not None else None
        row["run_before"] = change.run if change is not None else None
    return rows


def with_lost_metrics(rows: Sequence[Row], lost: Iterable[LostMetric]) -> Sequence[Row]:
    """Add to the rows of cells the metrics of the baseline that are unknown now, with the reasons; return the rows."""
    by_cell: dict[str, list[Row]] = {}
    for metric in lost:
        about = {"metric": metric.metric, "unit": metric.unit, "before": metric.before, "reason": metric.reason}
        by_cell.setdefault(metric.cell, []).append(about)
    for row in rows:
        row["lost_metrics"] = by_cell.get(row["id"], [])
    return rows


def unknown_metrics(result: ResultRow, lost: Iterable[LostMetric]) -> list[str]:
    """Return why metrics of a cell have no value, without the lost metrics, which have lines of their own."""
    named = {metric.metric for metric in lost}
    return [
        f"{name}: unknown: {each.fault}"
        for name, each in result.metrics.items()
        if each.value is None and each.fault and name not in named
    ]


def worst_first(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of test cases: failures first, and the slowest test cases first among equal outcomes."""
    return sorted(rows, key=lambda row: (_WORST_OUTCOMES.index(row["outcome"]), -(row["seconds"] or 0.0)))


def with_metrics(rows: Sequence[Row]) -> list[str]:
    """Add a column to the rows for each metric, such as `step_time (s)`, and return the names of all columns."""
    names: dict[str, None] = {}
    for row in rows:
        for metric, measured in row["metrics"].items():
            name = f"{metric} ({measured['unit']})" if measured["unit"] else metric
            row[name] = measured["value"]
            names[name] = None
    return [*(name for name in CELLS if name != "metrics"), *names]


def of_comparisons(comparisons: Iterable[Comparison]) -> list[Row]:
    """Return one row per metric of a cell."""
    return [
        {
            "cell": each.series.name,
            "id": each.series.cell,
            "project": each.series.project,
            "metric": each.series.metric,
            "change": str(each.change),
            "before": each.before,
            "after": each.after,
            "unit": each.series.unit,
            "samples_before": each.samples_before,
            "samples_after": each.samples_after,
            "p_value": each.p_value,
            "adjusted_p_value": each.adjusted_p_value,
            "percent": _percent(each.before, each.after),
            "ratio": each.ratio,
            "error": each.error,
            "freedom": each.freedom,
        }
        for each in comparisons
    ]


def summary_of_comparisons(comparisons: Sequence[Comparison]) -> str:
    """Return the number of metrics with each change: `1 worse, 4 same, of 5 metrics`."""
    counts = Counter(each.change for each in comparisons)
    some = [f"{counts[change]} {change}" for change in comparison.Change if counts[change]]
    return ", ".join([*some, f"of {len(comparisons)} metrics"])


def of_decisions(decisions: Iterable[Decision]) -> list[Row]:
    """Return one row per metric of a cell, with the decision about its bounds and the reason."""
    return [
        {
            "cell": decision.series.name,
            "id": decision.series.cell,
            "metric": decision.series.metric,
            "action": str(decision.action),
            **{
                name: getattr(decision.after, name, None)
                for name in ("lower", "upper", "mean", "unit", "samples", "method", "minimum_detectable_change")
            },
            "detects": _detected(decision.after),
            "before": decision.before.range if decision.before is not None else None,
            "mean_percent": _mean_percent(decision.before, decision.after),
            "change": _direction_of_change(decision),
            "is_wide": decision.after is not None and _is_wide(decision.after),
            "why": decision.why,
        }
        for decision in decisions
    ]


def bounds_warnings(rows: Sequence[Row]) -> list[str]:
    """Return remarks about bounds that a person should review before committing the file."""
    refused = sum(row["action"] == Action.REFUSED for row in rows)
    worse = sum(row["change"] == "worse" for row in rows)
    wide = sum(row["is_wide"] for row in rows)
    return [
        *([f"{refused} bounds were refused, and did not change: the column `why` says what to do"] if refused else []),
        *([f"{worse} of these bounds follow a change for the worse: was this change intended?"] if worse else []),
        *([f"{wide} bounds are wider than their mean, because a few values are far from most values"] if wide else []),
    ]


def _detected(bound: Bound | None) -> str | None:
    """Return the smallest change for the worse that the bounds detect, in percent."""
    share = bound.minimum_detectable_change if bound is not None else None
    return None if share is None else f"{100 * share:.3g} %"


def _mean_percent(before: Bound | None, after: Bound | None) -> float | None:
    """Return the increase of the mean, in percent; None if it cannot be computed."""
    if before is None or after is None or not before.is_in(after.unit or ""):
        return None
    return _percent(before.mean, after.mean)


def _direction_of_change(decision: Decision) -> str | None:
    """Return whether the level became better or worse; None if the new level is within the earlier bounds."""
    before, after, direction = decision.before, decision.after, decision.series.direction
    if before is None or after is None or after.mean is None or not before.is_in(after.unit or ""):
        return None
    side = before.side(after.mean)
    if side is None:
        return None
    return "changed" if direction is None else "better" if side.is_good(direction) else "worse"


def _is_wide(bound: Bound) -> bool:
    if bound.lower is None or bound.upper is None or not bound.mean or bound.method is Method.RATIO:
        return False
    return bound.upper - bound.lower > _WIDE * abs(bound.mean)


def of_changes(changes_of: Iterable[tuple[Series, Sequence[ChangePoint]]]) -> list[Row]:
    """Return one row per change of a level."""
    return [_change(series, change) for series, change_points in changes_of for change in change_points]


def _change(series: Series, change: ChangePoint) -> Row:
    run, before = series.runs[change.index], series.runs[change.index - 1]
    return {
        "project": series.project,
        "cell": series.name,
        "id": series.cell,
        "metric": series.metric,
        "state": str(change.state),
        "started": run.started,
        "run": run.run,
        "before": change.before,
        "after": change.after,
        "unit": series.unit,
        "ratio": change.ratio,
        "percent": _percent(change.before, change.after),
        "change": _word(series, change),
        "p_value": change.p_value,
        "revision_before": before.revision,
        "revision_after": run.revision,
    }


def _word(series: Series, change: ChangePoint) -> str:
    if series.direction is None:
        return "changed"
    return "better" if series.direction.improves(change.before, change.after) else "worse"


def of_numbers(changes: Iterable[ChangePoint]) -> list[Row]:
    """Return one row per change in a series of plain numbers."""
    return [{name: getattr(change, name) for name in NUMBERS[1:]} | {"state": str(change.state)} for change in changes]


def of_flakiness(
    project: str, cells: Iterable[Flakiness], noise: Mapping[tuple[str, str], tuple[int, int]]
) -> list[Row]:
    """Return one row per cell.

    Args:
        noise: the number of noisy values and the number of all values, by cell id and metric.
    """
    return [
        {
            "project": project,
            "cell": flakiness.name,
            "id": flakiness.cell,
            "state": str(flakiness.state),
            "events": len(flakiness.events),
            "keys": flakiness.keys,
            "mean": flakiness.mean,
            "lower": flakiness.lower,
            "clean": flakiness.clean,
            "revision_of_latest": flakiness.events[-1].revision if flakiness.events else None,
            "noisy": [
                f"{metric} in {noisy} of {values}"
                for (cell, metric), (noisy, values) in noise.items()
                if cell == flakiness.cell
            ],
            "advice": _advice(flakiness),
        }
        for flakiness in cells
    ]


def _advice(cell: Flakiness) -> str | None:
    if cell.may_be_released:
        return "may leave the quarantine"
    return "became slower or faster: see `results changes`" if cell.state is State.OUT_OF_RANGE else None


def of_cost(cost: Cost, month: Month | None) -> Row:
    """Return the row of a cost.

    Args:
        month: the comparison of the cost with the month before it; None if the costs are not grouped by month.
    """
    forecast = month.forecast if month is not None else None
    return {
        **{str(group): key for group, key in cost.keys.items()},
        "cost": cost.cost,
        "currency": cost.currency,
        "failures": cost.part(Kind.FAILURE),
        "retries": cost.part(Kind.RETRY),
        "confirmations": cost.part(Kind.CONFIRMATION),
        "previous": month.previous if month is not None else None,
        "percent": month.percent if month is not None else None,
        "forecast": forecast.expected if forecast is not None else None,
        "forecast_lower": forecast.lower if forecast is not None else None,
        "forecast_upper": forecast.upper if forecast is not None else None,
        **{name: getattr(cost, name) for name in COUNTS},
    }


def _percent(before: float | None, after: float | None) -> float | None:
    """Return the increase in percent, rounded for a table; None if a number is missing, or if `before` is 0."""
    percent = None if before is None or after is None else change_points.percent(before, after)
    return None if percent is None else round(percent, 2)
