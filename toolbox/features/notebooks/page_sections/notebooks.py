"""Shows executed notebooks: their resource use in the details of a cell, and links to their pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from toolbox.features.notebooks import executed_notebooks, notebook_charts, notebook_pages, notebook_pdfs
from toolbox.features.notebooks.notebook_charts import NotebookPanel
from toolbox.ground.model.text import truncate
from toolbox.records.runs.run_state import RunState, StepState
from toolbox.reports import _links
from toolbox.reports._web_page import Mark, fragment
from toolbox.reports.page.sections import CellPart, PageCell, PageLink, PageSection

_LONGEST_NAME: Final = 100


class Section(PageSection):
    """The executed notebooks of a run."""

    title = "Executed notebooks"
    style = notebook_charts.STYLE.read_text(encoding="utf-8")

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self._panels = notebook_charts.NotebookPanels(run)

    def prepare(self) -> None:
        """Convert the notebooks to HTML and PDF."""
        notebook_pages.make_missing(self.run)
        notebook_pdfs.make_missing(self.run)

    def of_cell(self, cell: PageCell) -> CellPart | None:
        """Return the panels of the notebooks of a cell, with the link to the page of the main notebook."""
        if not (panels := self._panels.of(cell.step)):
            return None
        return CellPart(fragment(notebook_charts.TEMPLATE, panels=panels), _main_link(panels))

    def links(self, cell: StepState) -> Sequence[PageLink]:
        """Return the link to each executed notebook of a cell: to its page, or else to its file."""
        root, links = self.run.directory, []
        for notebook in executed_notebooks.of_step(root, cell, frozenset(self.run.secrets_left)):
            files = (_links.link(root, *file, name=notebook.name) for file in (notebook.page, notebook.source))
            if (link := next(filter(None, files), None)) is not None:
                links.append(_page_link(notebook.name, link.href, notebook.mark))
        return links


def _main_link(panels: Sequence[NotebookPanel]) -> PageLink | None:
    """Return the link to the first notebook that did not pass, else to the first; None if no notebook has a page."""
    links = [_page_link(panel.name, panel.html.href, panel.mark) for panel in panels if panel.html is not None]
    return next((link for link in links if link.mark.is_bad), links[0] if links else None)


def _page_link(name: str, href: str, mark: Mark) -> PageLink:
    return PageLink(name, href, mark, f"the executed notebook {truncate(name, _LONGEST_NAME)}")
