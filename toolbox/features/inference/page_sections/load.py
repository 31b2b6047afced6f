"""Shows loads on inference servers: a section of the report page with the charts of all cells."""

from __future__ import annotations

from collections.abc import Sequence

from toolbox.features.inference import load_charts
from toolbox.reports._web_page import fragment
from toolbox.reports.page.sections import PageCell, PagePart, PageSection


class Section(PageSection):
    """The loads of a run."""

    title = "Load"
    style = load_charts.STYLE.read_text(encoding="utf-8")

    def of_page(self, cells: Sequence[PageCell]) -> PagePart | None:
        """Return the charts. If the page has no room for some of them, the table of metrics has all metrics."""
        charts, more = load_charts.make(cells, self.run.directory, self.run.secrets_left)
        if not charts:
            return None
        html = fragment(load_charts.TEMPLATE, charts=charts, more=more, panel=load_charts.PANEL)
        return PagePart(html, () if more else {name for chart in charts for name in chart.metrics})
