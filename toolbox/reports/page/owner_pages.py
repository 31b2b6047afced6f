"""Writes a page for each owner of cells, `owners/NAME.html`. It shows only the cells of this owner.

The pages link to `report.html`, and to the files of failed cells that sections name, such as executed notebooks. A run
without owners has no such pages.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from toolbox.ground.model.errors import InfrastructureError, describe
from toolbox.ground.model.text import first_of
from toolbox.ground.system import filesystem
from toolbox.records.results import since_last_run
from toolbox.records.results.since_last_run import Kind, SinceLastRun
from toolbox.records.runs import cell_owners, layout
from toolbox.records.runs.layout import RunDirectory
from toolbox.records.runs.run_state import RunState
from toolbox.reports import _links, _remarks, _web_page
from toolbox.reports._links import Link
from toolbox.reports.page import matrix_grid, step_details
from toolbox.reports.page.sections import PageLink, PageSections
from toolbox.reports.page.step_details import StepCard

log = logging.getLogger(__name__)
_TEMPLATE: Final = Path(__file__).parent / "templates/owner.html"
_MAX_CELLS: Final = 1500  # in the grid of a page, failed cells first
_MAX_FAILURES: Final = 200  # on a page
_MAX_LINKS: Final = 12  # of a section, for a failed cell
_MAX_TESTS: Final = 5  # newly failing test cases of a failed cell
_MAX_LINES: Final = 4  # of a message
_MAX_OWNERS: Final = 500  # pages of a run


@dataclass(frozen=True, slots=True)
class OwnerRow:
    """An owner in `report.html`.

    Args:
        page: the page of the owner; None if it does not exist.
        cells: the number of cells.
        failed: the number of cells that did not pass.
        newly_failing: the number of cells that newly fail, or have a test case that newly fails.
    """

    name: str
    page: Link | None
    cells: int
    failed: int
    newly_failing: int


@dataclass(frozen=True, slots=True)
class Failure:
    """A cell that did not pass.

    Args:
        is_new: whether the cell, or a test case of the cell, newly fails.
        tests: the test cases that newly fail.
        links: the title of each section with links, and its links; failures first.
    """

    card: StepCard
    is_new: bool
    lines: Sequence[str]
    tests: Sequence[str]
    links: Sequence[tuple[str, Sequence[PageLink]]]


def links(summary: RunState) -> dict[str, Link | None]:
    """Return the link from `report.html` to the page of each owner; None if there is no such page."""
    names = layout.owner_pages(cell_owners.of_run(summary.directory).values())
    return {
        owner: _links.link(summary.directory, RunDirectory.owners, page, name=owner) for owner, page in names.items()
    }


def overview(summary: RunState) -> list[OwnerRow]:
    """Return the owners of a run. Owners with failed cells are first."""
    owners, pages = cell_owners.of_run(summary.directory), links(summary)
    cells = Counter(owners.values())
    failed = Counter(owners[step.identity] for step in summary.cells if step.has_failed and step.identity in owners)
    comparison = since_last_run.read(summary.directory)
    new = Counter(owners[cell] for cell in _newly_failing(comparison) if cell in owners)
    rows = [OwnerRow(owner, pages.get(owner), cells[owner], failed[owner], new[owner]) for owner in cells]
    return sorted(rows, key=lambda row: (-row.newly_failing, -row.failed, row.name))[:_MAX_OWNERS]


def write(summary: RunState, sections: PageSections) -> None:
    """Write the pages of the owners of a run. A failure is logged, and does not prevent the other reports."""
    owners = cell_owners.of_run(summary.directory)
    if not owners:
        return
    try:
        _write(summary, owners, sections)
    except Exception as error:  # noqa: BLE001  # the plan of a run from another machine may contain anything
        log.warning("the pages of the owners of cells could not be written: %s", describe(error))


def _write(summary: RunState, owners: Mapping[str, str], sections: PageSections) -> None:
    folder = filesystem.make_directory(RunDirectory(summary.directory).owners)
    if _links.inside(summary.directory, RunDirectory.owners) is None:
        raise InfrastructureError(f"{folder} is a link, which may lead out of the run directory")
    cards: dict[str, list[StepCard]] = {}
    for card in step_details.in_brief(summary):
        if owner := owners.get(card.step.identity):
            cards.setdefault(owner, []).append(card)
    comparison = since_last_run.read(summary.directory)
    pages = layout.owner_pages(owners.values())
    for owner, cells in islice(cards.items(), _MAX_OWNERS):
        filesystem.write_derived(folder / pages[owner], partial(render, summary, owner, cells, comparison, sections))


def render(
    summary: RunState,
    owner: str,
    cells: Sequence[StepCard],
    comparison: SinceLastRun | None,
    sections: PageSections,
) -> str:
    """Return the page of an owner.

    Args:
        cells: the cells of the owner.
    """
    new = _newly_failing(comparison)
    failed = [card for card in cells if card.mark.is_bad or _remarks.is_quarantined_failure(card.step)]
    failed.sort(key=lambda card: (card.step.identity not in new, not card.mark.is_bad))
    tests = _new_tests(comparison)
    kept = {id(card) for card in sorted(cells, key=lambda card: not card.mark.is_bad)[:_MAX_CELLS]}
    counts = Counter(card.mark for card in cells)
    return _web_page.render(
        _TEMPLATE,
        styles=("report.css",),
        scripts=(),
        icon=_web_page.mark(summary.finished.verdict if summary.finished else None, summary.state),
        owner=owner,
        run=summary,
        report=f"../{RunDirectory.html}",
        counts=sorted(counts.items(), key=lambda item: (not item[0].is_bad, item[0].key)),
        since=comparison,
        newly_failing=sum(card.step.identity in new for card in cells),
        failures=[_failure(card, new, tests, sections) for card in failed[:_MAX_FAILURES]],
        more_failures=max(0, len(failed) - _MAX_FAILURES),
        grid=matrix_grid.make([card for card in cells if id(card) in kept]),
        left_out=len(cells) - len(kept),
        faults=sections.faults,
    )


def _newly_failing(comparison: SinceLastRun | None) -> set[str]:
    return comparison.newly_failing() if comparison is not None else set()


def _new_tests(comparison: SinceLastRun | None) -> dict[str, list[str]]:
    """Return the test cases that newly fail, by the id of the cell."""
    tests: dict[str, list[str]] = {}
    for change in comparison.tests if comparison is not None else ():
        if change.kind is Kind.NEWLY_FAILING:
            tests.setdefault(change.cell, []).append(change.test)
    return tests


def _failure(card: StepCard, new: set[str], tests: Mapping[str, Sequence[str]], sections: PageSections) -> Failure:
    cell = card.step.identity
    return Failure(
        card,
        cell in new,
        card.step.message.splitlines()[:_MAX_LINES],
        first_of(tests.get(cell, ()), _MAX_TESTS),
        [(title, _shown(links)) for title, links in sections.links(card.step)],
    )


def _shown(links: Sequence[PageLink]) -> list[PageLink]:
    """Return the first links, failures first, with addresses relative to the folder of the pages."""
    failures_first = sorted(links, key=lambda link: not link.mark.is_bad)
    return [replace(link, href=f".{link.href}") for link in failures_first[:_MAX_LINKS]]  # from `./` to `../`
