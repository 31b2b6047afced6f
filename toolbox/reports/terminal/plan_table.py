"""Prints the plan of a matrix as a table: the targets, resources, time limits and expected verdict of each cell."""

from __future__ import annotations

from collections import Counter

from rich.console import Console
from rich.table import Table
from rich.text import Text

from toolbox.matrix.axes import short_names
from toolbox.matrix.plan import Cell, Plan
from toolbox.model.foreign_text import clean
from toolbox.model.text import counted


def show(plan: Plan, console: Console) -> None:
    """Print the plan."""
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    axes = list(plan.cells[0].labels) if plan.cells else []
    for heading in ("id", *short_names(axes).values(), "target", "takes", "time limits", "expected"):
        table.add_column(heading, overflow="fold")
    for cell in plan.cells:
        labels = [Text(clean(cell.labels[axis])) for axis in axes]
        style = "dim" if cell.skip else ""
        details = (
            Text(clean(text)) for text in (" or ".join(cell.targets), _takes(cell), _timeouts(cell), _expected(cell))
        )
        table.add_row(cell.id, *labels, *details, style=style)
    console.print(table)
    console.print()
    for note in [*plan.notes, *(f"{cell.name}: {cell.note}" for cell in plan.cells if cell.note)]:
        console.print(Text(f"note: {clean(note)}", style="yellow"), soft_wrap=True)
    if plan.cells:
        console.print(Text(f"--cells takes a pattern for names such as {plan.cells[0].name}, or an id"), soft_wrap=True)
    console.print(Text(_closing(plan), style="bold"), soft_wrap=True)


def _takes(cell: Cell) -> str:
    return ", ".join(f"{count} {label}" for label, count in cell.resources.items()) or "-"


def _timeouts(cell: Cell) -> str:
    limits = cell.workload.timeouts
    silence = f" ({limits.silence:g} s silent)" if limits.silence is not None else ""
    return f"{limits.run:g} s{silence}" if limits.run is not None else f"none{silence}"


def _expected(cell: Cell) -> str:
    if cell.skip:
        return f"skipped: {cell.skip}"
    if cell.xfail is not None:
        return f"fails until {cell.xfail.expires} ({cell.xfail.owner}): {cell.xfail.reason}"
    if cell.quarantine is not None:
        return f"does not count until {cell.quarantine.expires} ({cell.quarantine.owner}): {cell.quarantine.reason}"
    return "passes"


def _closing(plan: Plan) -> str:
    counts = Counter("skipped" if cell.skip else "to run" for cell in plan.cells)
    parts = [f"{counts[kind]} {kind}" for kind in ("to run", "skipped") if counts[kind]]
    total = len(plan.combinations)
    selected = "" if len(plan.cells) == total else f", of {total} in the matrix"
    return f"{counted(len(plan.cells), 'cell')}{selected}: {', '.join(parts) or 'nothing to run'}"
