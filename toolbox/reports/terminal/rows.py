"""Prints rows of results: as a table for people, as JSON or CSV for programs."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from toolbox.ground.model.foreign_text import clean, csv_cell
from toolbox.ground.model.verdicts import Verdict
from toolbox.reports.terminal.live_view import STYLES

Format = Literal["text", "json", "csv"]
Row = Mapping[str, Any]
_ROUGH: Final = {"p_value"}
_REVISION = re.compile(r"^([0-9a-f]{12})[0-9a-f]{28}")
_WORDS: Final = {
    **dict.fromkeys(("worse", "broken", "out of range", "flaky", "refused"), "bold red"),
    **dict.fromkeys(("suspect", "unsure", "not measured"), "yellow"),
    "better": "green",
}


def dump(rows: Sequence[Row], columns: Sequence[str], kind: Literal["json", "csv"]) -> str:
    """Return the rows as JSON or CSV. CSV has a header even if there are no rows.

    In JSON, infinity and "not a number" become null. In CSV, a quote is put before text that a spreadsheet would take
    for a formula.
    """
    if kind == "json":
        return json.dumps(_finite(list(rows)), indent=2, ensure_ascii=False, default=_plain, allow_nan=False)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(csv_cell, columns))
    writer.writerows([csv_cell(_field(row.get(name))) for name in columns] for row in rows)
    return text.getvalue().removesuffix("\n")


def show(rows: Sequence[Row], columns: Sequence[str], console: Console, *, empty: str) -> None:
    """Print the rows as a table without empty columns.

    Args:
        empty: the text if there are no rows.
    """
    if not rows:
        console.print(Text(empty, style="dim"), soft_wrap=True)
        return
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    used = [name for name in columns if any(row.get(name) not in (None, "", [], {}) for row in rows)]
    for name in used:
        is_number = any(isinstance(row.get(name), int | float) for row in rows)
        table.add_column(name.replace("_", " "), justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_styled(name, row.get(name)) for name in used))
    console.print(table)


def _styled(name: str, value: Any) -> Text:
    text = clean(_field(value, digits=2 if name in _ROUGH else 5)).replace("\n", " ")
    if name.startswith("revision"):
        text = _REVISION.sub(r"\1", text)
    style = STYLES[Verdict(text)] if text in set(Verdict) else _WORDS.get(text, "")
    return Text(text, style=style)


def _field(value: Any, digits: int | None = None) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.{digits}g}" if digits else repr(value)
    if isinstance(value, datetime):
        return value.astimezone().strftime("%Y-%m-%d %H:%M") if digits else value.isoformat()
    if isinstance(value, Mapping):
        return ", ".join(_pair(key, item, digits) for key, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_field, value))
    return str(value)


def _pair(key: str, item: Any, digits: int | None) -> str:
    """Return a count as `2 passed`, and a value with a unit as `step_time 0.5 s`."""
    if not isinstance(item, Mapping):
        return f"{_field(item, digits)} {key}"
    return " ".join(filter(None, [key, _field(item["value"], digits) or "-", item["unit"]]))


def _finite(value: Any) -> Any:
    """Return a nested value in which None replaces each number that is not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else str(value)
