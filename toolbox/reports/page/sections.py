"""The sections that extensions add to the pages of a run: the modules of the folder `page_sections/`.

A section that raises an error does not prevent a page: the error is logged, and the page names the section that is
missing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol, TypeVar

from markupsafe import Markup, escape

from toolbox.ground.extensions import discovery, loading
from toolbox.ground.extensions.protocols import Kind
from toolbox.ground.model.errors import describe
from toolbox.ground.model.foreign_text import clean
from toolbox.ground.system import redaction
from toolbox.records.runs.run_state import RunState, StepState
from toolbox.reports._web_page import Mark

_Result = TypeVar("_Result")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PageCell:
    """A cell on the page of a run.

    Args:
        anchor: the id of the cell's details on the page.
        mark: how the page shows the verdict of the cell.
    """

    anchor: str
    mark: Mark
    step: StepState


@dataclass(frozen=True, slots=True)
class PageLink:
    """A link to a file about a cell, such as an executed notebook.

    Args:
        href: the address of the file, relative to the run directory. It begins with `./`.
        title: what the file is, with its name.
    """

    name: str
    href: str
    mark: Mark
    title: str


@dataclass(frozen=True, slots=True)
class CellPart:
    """What a section adds to the details of a cell.

    Args:
        html: the HTML as `markupsafe.Markup`. A string of another type is escaped.
        link: the link beside the cell in the matrix; None for no link.
    """

    html: str
    link: PageLink | None = None


@dataclass(frozen=True, slots=True)
class PagePart:
    """A section of its own on the page.

    Args:
        html: the HTML as `markupsafe.Markup`. A string of another type is escaped.
        metrics: the names of the metrics that the section shows. The table of metrics has them only if they have
            bounds.
    """

    html: str
    metrics: Collection[str] = ()


class PageSection(Protocol):
    """Adds to the pages of a run: the class `Section` of a module in `page_sections/`, which is called with the run.

    A class that derives from this protocol overrides only what the section has.

    Args:
        title: the heading of the section.
        style: CSS rules for the HTML of the section.
    """

    title: ClassVar[str]
    style: ClassVar[str] = ""
    run: RunState

    def __init__(self, run: RunState) -> None:
        """Keep the state of the run, which names its directory. The files in the directory may be missing."""
        self.run = run

    def prepare(self) -> None:
        """Write the files to which the section links. The method is called before any page is made."""

    def of_cell(self, cell: PageCell) -> CellPart | None:
        """Return what the section adds to the details of a cell; None if it adds nothing.

        Only called for the cells that the page shows with all details, failed cells first.
        """

    def of_page(self, cells: Sequence[PageCell]) -> PagePart | None:
        """Return the section of its own, which follows the metrics; None if there is none.

        Args:
            cells: the cells on the page, in the order of the plan.
        """

    def links(self, cell: StepState) -> Sequence[PageLink]:  # noqa: ARG002  # a section without links needs no cell
        """Return the links for the page of the cell's owner."""
        return ()


PAGE_SECTIONS: Final[Kind[Callable[[RunState], PageSection]]] = Kind("page_sections", "Section", PageSection)


@dataclass(frozen=True, slots=True)
class PlacedSection:
    """A section of its own, as the template shows it."""

    id: str
    title: str
    part: PagePart


class PageSections:
    """All sections of the pages of a run. After its first error, a section is left out.

    Attributes:
        faults: which sections are left out, and why.
    """

    def __init__(self, run: RunState) -> None:
        self.faults: list[str] = []
        self._sections: dict[str, PageSection] = {}
        for name, extension in discovery.available(PAGE_SECTIONS.folder).items():
            with self._reporting(name):
                self._sections[name] = loading.function(PAGE_SECTIONS, extension)(run)

    @property
    def style(self) -> str:
        """The CSS rules of all sections."""
        return "\n".join(self._of_each(lambda _, section: str(section.style)))

    def prepare(self) -> None:
        """Let all sections write their files."""
        self._of_each(lambda _, section: section.prepare())

    def of_cell(self, cell: PageCell) -> list[CellPart]:
        """Return what the sections add to the details of a cell."""

        def part_of(_: str, section: PageSection) -> CellPart | None:
            if (part := section.of_cell(cell)) is None:
                return None
            return CellPart(_safe(part.html), None if part.link is None else _checked(part.link))

        return [part for part in self._of_each(part_of) if part is not None]

    def of_page(self, cells: Sequence[PageCell]) -> list[PlacedSection]:
        """Return the sections of their own."""

        def placed(name: str, section: PageSection) -> PlacedSection | None:
            if (part := section.of_page(cells)) is None:
                return None
            checked = PagePart(_safe(part.html), frozenset(part.metrics))
            return PlacedSection(f"section-{name}", str(section.title), checked)

        return [section for section in self._of_each(placed) if section is not None]

    def links(self, cell: StepState) -> list[tuple[str, list[PageLink]]]:
        """Return the title of each section with links for a cell, and the links."""
        titled = self._of_each(lambda _, section: (str(section.title), list(map(_checked, section.links(cell)))))
        return [(title, links) for title, links in titled if links]

    def _of_each(self, call: Callable[[str, PageSection], _Result]) -> list[_Result]:
        """Return the results of a function of the name and the object of each section."""
        results = []
        for name, section in list(self._sections.items()):
            with self._reporting(name):
                results.append(call(name, section))
        return results

    @contextmanager
    def _reporting(self, name: str) -> Iterator[None]:
        """Leave a section out if the body raises an error, and say so."""
        try:
            yield
        except (Exception, SystemExit) as error:  # noqa: BLE001  # the section may come from a workspace
            self._sections.pop(name, None)
            message = f"the section `{name}` of the report is missing: {describe(error)}"
            log.warning("%s", message)
            self.faults.append(redaction.current()(message))


def _safe(html: str) -> Markup:
    """Return HTML without control characters. A string that is not `Markup` is escaped."""
    return Markup(clean(escape(html)))  # noqa: S704  # `escape` has escaped a string that is not Markup


def _checked(link: PageLink) -> PageLink:
    """Return a link of a section. A template cannot show a link of another type."""
    if not isinstance(link, PageLink):
        raise TypeError(f"a link must be a PageLink, not {type(link).__name__}")
    return link
