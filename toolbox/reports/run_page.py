"""Writes `report.html`, which shows a run on one page.

The page is made from the summary of the run and from files of the run directory, which may be missing. The page loads
nothing, and links only to files of this directory, so that the directory can be moved or archived.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from toolbox.ground.system import filesystem
from toolbox.records.results import run_cost
from toolbox.records.runs.layout import RunDirectory
from toolbox.records.runs.run_state import RunState, State
from toolbox.reports import _links, _remarks, _web_page
from toolbox.reports._web_page import Mark
from toolbox.reports.page import (
    case_tables,
    matrix_grid,
    metrics_table,
    owner_pages,
    provenance,
    step_details,
    time_line,
    verdict_changes,
)
from toolbox.reports.page.sections import PageSections
from toolbox.reports.page.step_details import StepCard

_TEMPLATE: Final = Path(__file__).parent / "page/templates/report.html"
_MAX_FAILURES: Final = 20
_MAX_REMARKS: Final = 50
_OPEN: Final = 3  # failures that are unfolded when the page is opened
_OWN_FILES: Final = (
    *(RunDirectory.summary, RunDirectory.junit, RunDirectory.plan),
    *(RunDirectory.configuration, RunDirectory.journal, RunDirectory.request, RunDirectory.since_last_run),
)


def write(summary: RunState) -> Path:
    """Write the report of a run into its directory, after the pages to which it links, and return its path."""
    sections = PageSections(summary)
    sections.prepare()
    owner_pages.write(summary, sections)  # after the files of the sections, to which they link
    return filesystem.write_derived(RunDirectory(summary.directory).html, partial(render, summary, sections))


def render(summary: RunState, sections: PageSections | None = None, *, now: datetime | None = None) -> str:
    """Return the report of a run.

    Args:
        sections: the sections of extensions; None to look for them.
        now: the end of the time line of a run that is still running; None for the current time.
    """
    sections = sections or PageSections(summary)
    now = now or datetime.now(UTC)
    steps = step_details.collect(summary, sections)
    grid = matrix_grid.make(steps.cells)
    verdict = _web_page.mark(summary.finished.verdict if summary.finished else None, summary.state)
    cards = {card.step.step: card for card in (*steps.others, *steps.cells) if card.step.step}
    failures = [cards[step.step] for step in summary.failures if step.step in cards]
    remarks = [(cards[step.step], _remarks.text(step)) for step in _remarks.of(summary) if step.step in cards]
    placed = sections.of_page(steps.cells)
    return _web_page.render(
        _TEMPLATE,
        styles=("report.css",),
        scripts=("report.js",),
        icon=verdict,
        more_style=sections.style,
        run=summary,
        verdict=verdict,
        now=now,
        seconds=_seconds(summary, now),
        about=_about(summary),
        cost=run_cost.of(summary),
        counts=_counts(steps.cells),
        failures=failures[:_MAX_FAILURES],
        more_failures=max(0, len(failures) - _MAX_FAILURES),
        nothing_in_common=_remarks.NOTHING_IN_COMMON if _remarks.has_nothing_in_common(summary) else "",
        remarks=remarks[:_MAX_REMARKS],
        more_remarks=max(0, len(remarks) - _MAX_REMARKS),
        owners=owner_pages.overview(summary),
        owner_links=owner_pages.links(summary),
        since=verdict_changes.make(summary.directory, steps.cells),
        opened={card.anchor for card in failures[:_OPEN]},
        steps=steps,
        most_in_full=step_details.MAX_IN_FULL,
        grid=grid,
        metrics=metrics_table.make(
            steps.cells or [card for card in steps.others if card.step.metrics],
            elsewhere={name for section in placed for name in section.part.metrics},
        ),
        sections=placed,
        faults=sections.faults,
        time_line=time_line.make(steps.others, steps.cells, now, is_running=summary.state is State.RUNNING),
        configuration=provenance.of(summary),
        files=[link for name in _OWN_FILES if (link := _links.link(summary.directory, name, name=name))],
        data={**matrix_grid.data(steps.cells, grid), "cases": steps.case_rows, "outcomes": case_tables.marks()},
    )


def _seconds(summary: RunState, now: datetime) -> float | None:
    """Return how long the run took, or has taken so far; None if unknown."""
    if summary.finished is not None:
        return summary.finished.seconds
    if summary.state is State.RUNNING and summary.started is not None:
        return (now - summary.started).total_seconds()
    return None


def _counts(cells: Sequence[StepCard]) -> list[tuple[Mark, int]]:
    """Return the number of cells with each mark, failures first."""
    counts = Counter(cell.mark for cell in cells)
    return sorted(counts.items(), key=lambda item: (not item[0].is_bad, item[0].key))


def _about(summary: RunState) -> dict[str, str]:
    """Return the facts about the run from its `run.json`, by title."""
    request = RunDirectory(summary.directory).read_request()
    argv, versions = request.get("argv"), request.get("versions")
    facts = {
        "Revision": request.get("revision"),
        "Host": request.get("host"),
        "User": request.get("user"),
        "Working directory": request.get("directory"),
        "Configuration": request.get("config_file"),
        "Command line": shlex.join(map(str, argv)) if isinstance(argv, list) else None,
        "Overrides": json.dumps(request["overrides"], ensure_ascii=False) if request.get("overrides") else None,
        "Versions": ", ".join(f"{name} {version}" for name, version in versions.items() if version)
        if isinstance(versions, Mapping)
        else None,
    }
    return {name: str(value) for name, value in facts.items() if value}
