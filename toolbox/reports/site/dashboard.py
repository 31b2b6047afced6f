"""Writes the static site of `results dashboard` from the store. Each page is one file, which needs no other file.

`index.html` shows all projects, `projects/` has a page for each project, and `cells/` a page for each cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection

from toolbox.ground.model.text import truncate
from toolbox.records.results import cost, project_overview
from toolbox.records.results.cost import Group
from toolbox.records.results.histories import BoundsInForce, History
from toolbox.records.results.project_overview import Cell, Project
from toolbox.records.results.queries import Filter
from toolbox.reports import _web_page
from toolbox.reports.site import charts, formats, site_directory

_TEMPLATES: Final = Path(__file__).parent / "templates"
_SLOWEST: Final = 10
_MAX_RESULTS: Final = 50  # results on the page of a cell
_MAX_ROWS: Final = 2000  # rows of all tables of values on a page
_ROWS: Final = 200  # rows of one table of values
_MAX_CHIPS: Final = 3000  # runs on the page of all projects
_ROOM: Final = 1_000_000  # bytes, approximately, for the cells on the page of a project
_MAX_OTHERS: Final = 1500  # cells on a page that only lists cells


def write(
    connection: Connection,
    output: Path,
    where: Filter,
    *,
    bounds: Mapping[str, BoundsInForce] | None = None,
    now: datetime | None = None,
) -> Path:
    """Write the site, and return the path of its first page. Readers see the old site until the new site is complete.

    Args:
        output: the directory of the site. An earlier site of Topgallant in this directory is replaced.
        where: the runs to show.
        now: the time of the site, up to which regressions count as recent; None for the current time.

    Raises:
        UsageError: `output` exists, and is not a site of Topgallant.
        InfrastructureError: the site cannot be written.
    """
    target = site_directory.resolved(output)
    as_of = now or datetime.now(UTC)
    projects = project_overview.collect(connection, where, bounds or {}, now=as_of)
    with site_directory.replacing(target) as directory:
        pages = _Pages(directory, target, where, as_of)
        pages.index(projects)
        for each in projects:
            pages.project(each)
            for cell in each.cells:
                pages.cell(each, cell)
    return target / "index.html"


class _Pages:
    """Writes pages into `directory`, which is later moved to `target`.

    Args:
        where: the filter for the runs that the pages show.
    """

    def __init__(self, directory: Path, target: Path, where: Filter, now: datetime) -> None:
        self._directory = directory
        self._target = target
        self._where = where
        self._now = now
        self._reports = site_directory.Reports()

    def index(self, projects: Sequence[Project]) -> None:
        """Write the page of all projects."""
        cells = [cell for project in projects for cell in project.cells]
        spendings = [spending for project in projects for spending in project.spendings]
        days = cost.grouped(spendings, [Group.DAY])
        self._write(
            "index.html",
            "dashboard_index.html",
            icon=min(map(formats.project_mark, projects), key=lambda mark: not mark.is_bad, default=_web_page.WAITING),
            data={"charts": charts.of_costs(days)},
            projects=projects,
            regressions=project_overview.regressions(cells),
            flaky=project_overview.flaky(cells),
            slowest=project_overview.slowest(cells)[:_SLOWEST],
            strip=max(1, min(project_overview.RECENT, _MAX_CHIPS // max(1, len(projects)))),
            months=cost.grouped(spendings, [Group.MONTH]),
            of_projects=project_overview.latest_month(cost.grouped(spendings, [Group.MONTH, Group.PROJECT])),
            days=days,
        )

    def project(self, project: Project) -> None:
        """Write the page of a project, and pages with the cells for which that page has no room."""
        cells = _with_room(project.cells)
        counts = {key: sum(key in cell.states for cell in project.cells) for key in project_overview.STATES}
        self._write(
            f"projects/{formats.project_page(project)}",
            "dashboard_project.html",
            icon=formats.project_mark(project),
            data={"charts": charts.of_costs(project.days)},
            project=project,
            headings=list(zip(project.runs, formats.headings(project.runs), strict=True)),
            shown=cells,
            others=list(self._further_pages(project, len(cells))),
            counts={key: count for key, count in counts.items() if count},
            tested=[cell for cell in cells if cell.tests is not None],
            has_metrics=any(cell.histories for cell in cells),
            has_noise=any(history.noisy for cell in cells for history in cell.histories),
        )

    def _further_pages(self, project: Project, begin: int) -> Iterator[tuple[int, int, str]]:
        """Write pages that list the cells from index `begin`.

        Yields:
            For each page the number of the first cell, the number of the last cell, and the name of the page.
        """
        for number, first in enumerate(range(begin, len(project.cells), _MAX_OTHERS), 1):
            cells = project.cells[first : first + _MAX_OTHERS]
            page = site_directory.file_name(project.name, f"cells-{number}")
            self._write(
                f"projects/{page}",
                "dashboard_cells.html",
                icon=formats.project_mark(project),
                data={"charts": []},
                project=project,
                cells=cells,
                first=first + 1,
            )
            yield first + 1, first + len(cells), page

    def cell(self, project: Project, cell: Cell) -> None:
        """Write the page of a cell."""
        path = f"cells/{formats.cell_page(cell)}"
        rows = max(_SLOWEST, min(_ROWS, _MAX_ROWS // max(1, len(cell.histories))))
        self._write(
            path,
            "dashboard_cell.html",
            icon=formats.cell_mark(cell) or _web_page.WAITING,
            data=charts.of_cell(cell.histories),
            project=project,
            cell=cell,
            points=charts.points(len(cell.histories)),
            rows=rows,
            results=cell.results[:_MAX_RESULTS],
            values=lambda history: self._values(history, rows, self._target / path),
        )

    def _values(self, history: History, count: int, page: Path) -> Iterator[tuple[str, str, str, str, str | None, str]]:
        """Yield the rows of the table of a metric, latest value first."""
        series = history.series
        begin = history.bounded_from
        for index in range(history.size - 1, max(-1, history.size - 1 - count), -1):
            run, side = series.runs[index], history.outside.get(index)
            within = "within" if begin is not None and index >= begin else ""
            yield (
                formats.minute(run.started),
                f"{series.values[index]:.6g}",
                side or within,
                truncate(run.run, 200),
                self._reports.address(run.directory, page),
                _web_page.revision(run.revision),
            )

    def _write(self, path: str, template: str, *, icon: _web_page.Mark, data: dict[str, Any], **context: Any) -> None:
        page = self._target / path
        charts = ("uplot/uPlot.iife.min.js",) if data["charts"] else ()
        text = _web_page.render(
            _TEMPLATES / template,
            styles=("uplot/uPlot.min.css", "dashboard.css"),
            scripts=(*charts, "dashboard.js"),
            icon=icon,
            data=data,
            now=self._now,
            where=self._where,
            report=lambda directory: self._reports.address(directory, page),
            **formats.WORDS,
            **context,
        )
        site_directory.write(self._directory / path, text)


def _with_room(cells: Sequence[Cell]) -> Sequence[Cell]:
    """Return the first cells, as many as the page of a project has room for."""
    room = _ROOM
    for count, cell in enumerate(cells):
        tests = len(cell.tests.failures) + len(cell.tests.slower) + 1 if cell.tests is not None else 0
        room -= 800 + 75 * len(cell.recent) + 1200 * len(cell.histories) + 500 * tests
        if room < 0:
            return cells[:count]
    return cells
