"""Renders the index page of exported runs, from their records.

The records may come from other machines, so all their texts are data: the page escapes them, and has no script.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from toolbox.ground.model.text import counted
from toolbox.records.exports.manifest import Record
from toolbox.reports import _web_page

MARKER: Final = '<meta name="generator" content="Topgallant exports">'
_TEMPLATE: Final = Path(__file__).parent / "templates/export_index.html"
_MAX_RUNS: Final = 1_000  # a larger page is slow
_MAX_FILES: Final = 10  # named files of a run, so that the size of the page is limited


def render(records: Sequence[Record]) -> str:
    """Return the page.

    Args:
        records: the runs, newest first.
    """
    marks = [_web_page.mark(record.verdict, record.state) for record in records]
    return _web_page.render(
        _TEMPLATE,
        styles=("export_index.css",),
        scripts=(),
        icon=marks[0] if marks else _web_page.WAITING,
        marker=MARKER,
        runs=list(zip(records, marks, strict=True))[:_MAX_RUNS],
        count=len(records),
        counted=counted,
        most=_MAX_FILES,
    )
