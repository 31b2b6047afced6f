"""Prints the plan of a matrix as a table: the targets, resources, time limits and expected verdict of each cell.

The reasons of skipped cells follow the table, because a long text would make all columns narrow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.prices import amount
from toolbox.ground.model.text import counted, duration, first_of
from toolbox.matrix.axes import short_names
from toolbox.matrix.expected_costs import CostPlan, Expected
from toolbox.matrix.plan import Cell, Plan

_MAX_NAMED: Final = 5  # skipped cells with the same reason


def show(plan: Plan, costs: CostPlan, console: Console) -> None:
    """Print the plan with its expected costs."""
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    axes = list(plan.cells[0].labels) if plan.cells else []
    for heading in ("id", *short_names(axes).values(), "target", "takes", "time limits", "time", "cost", "expected"):
        table.add_column(heading, overflow="fold")
    for cell in plan.cells:
        labels = [Text(clean(cell.labels[axis])) for axis in axes]
        style = "dim" if cell.skip else ""
        expectation = costs.cells.get(cell.id)
        texts = (
            *(" or ".join(cell.targets), _takes(cell), _timeouts(cell)),
            *(_time(expectation), _cost(expectation, costs.currency), _expected(cell)),
        )
        table.add_row(cell.id, *labels, *(Text(clean(text)) for text in texts), style=style)
    console.print(table)
    console.print()
    for line in _left_out(plan):
        console.print(Text(f"left out: {clean(line)}", style="dim"), soft_wrap=True)
    for note in [*plan.notes, *costs.reasons, *(f"{cell.name}: {cell.note}" for cell in plan.cells if cell.note)]:
        console.print(Text(f"note: {clean(note)}", style="yellow"), soft_wrap=True)
    if plan.cells:
        console.print(Text(f"--cells takes a pattern for names such as {plan.cells[0].name}, or an id"), soft_wrap=True)
    if costs.cells:
        console.print(Text(clean(costs.summary())), soft_wrap=True)
    console.print(Text(_closing(plan), style="bold"), soft_wrap=True)


def _left_out(plan: Plan) -> Iterator[str]:
    """Yield a line for each reason to skip cells, with the names of these cells."""
    names: dict[str, list[str]] = {}
    for cell in plan.cells:
        if cell.skip:
            names.setdefault(cell.skip, []).append(cell.name)
    for reason, skipped in names.items():
        yield f"{'; '.join(first_of(skipped, _MAX_NAMED))}: {reason}"


def _takes(cell: Cell) -> str:
    return ", ".join(f"{count} {label}" for label, count in cell.resources.items()) or "-"


def _timeouts(cell: Cell) -> str:
    limits = cell.workload.timeouts
    silence = f" ({limits.silence:g} s silent)" if limits.silence is not None else ""
    return f"{limits.run:g} s{silence}" if limits.run is not None else f"none{silence}"


def _time(expected: Expected | None) -> str:
    if expected is None or expected.seconds is None:
        return "-" if expected is None else "unknown"
    time = duration(expected.seconds)
    return f"{time} ({counted(expected.runs, 'run')})" if expected.runs else f"at most {time}"


def _cost(expected: Expected | None, currency: str) -> str:
    if expected is None or expected.cost is None:
        return "-" if expected is None else "unknown"
    at_most = "at most " if not expected.runs and expected.cost else ""
    return f"{at_most}{amount(expected.cost)} {currency}"


def _expected(cell: Cell) -> str:
    if cell.skip:
        return "skipped"
    if cell.reuse.run:
        return f"reused: passed in run {cell.reuse.run}"
    if cell.xfail is not None:
        tests = f"{', '.join(cell.xfail.tests)} " if cell.xfail.tests else ""
        return f"{tests}fails until {cell.xfail.expires} ({cell.xfail.owner}): {cell.xfail.reason}"
    if cell.quarantine is not None:
        return f"does not count until {cell.quarantine.expires} ({cell.quarantine.owner}): {cell.quarantine.reason}"
    return "passes"


def _closing(plan: Plan) -> str:
    counts = Counter("skipped" if cell.skip else "reused" if cell.reuse.run else "to run" for cell in plan.cells)
    parts = [f"{counts[kind]} {kind}" for kind in ("to run", "reused", "skipped") if counts[kind]]
    total = len(plan.combinations)
    selected = "" if len(plan.cells) == total else f", of {total} in the matrix"
    return f"{counted(len(plan.cells), 'cell')}{selected}: {', '.join(parts) or 'nothing to run'}"
