"""`results dashboard`: a static site of all projects, from the store. Each page is one file, which needs no other.

`index.html` is about all projects, `projects/` has a page for each project, and `cells/` a page for each cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection

from toolbox.model.text import truncate
from toolbox.reports import _web_page
from toolbox.reports.site import charts, formats, site_directory
from toolbox.results import project_overview
from toolbox.results.cost import Cost
from toolbox.results.histories import BoundsInForce, History
from toolbox.results.project_overview import Cell, Project
from toolbox.results.queries import Filter

_TEMPLATES: Final = Path(__file__).parent / "templates"
_SLOWEST: Final = 10
_MOST_RESULTS: Final = 50  # of a cell
_MOST_ROWS: Final = 2000  # of all tables of values of a page
_ROWS: Final = 200  # of one
_MOST_CHIPS: Final = 3000  # runs, on the page about all projects
_ROOM: Final = 1_000_000  # bytes, about, of a page about a project, for its cells
_MOST_OTHERS: Final = 1500  # cells on a page that only lists them


def write(
    connection: Connection,
    output: Path,
    *,
    project: str | None = None,
    presets: Sequence[str] = (),
    since: datetime | None = None,
    bounds: Mapping[str, BoundsInForce] | None = None,
    now: datetime | None = None,
) -> Path:
    """Write the site of all projects, and return its first page. A reader sees the old site or the new one.

    Args:
        connection: to the store.
        output: the directory of the site. A site that Topgallant wrote there is replaced.
        project: the only project to show; None for all.
        presets: show only the runs with all these presets.
        since: show only the runs since then.
        bounds: the bounds in force, by project.
        now: the time of the site; regressions are those of the days before.

    Raises:
        UsageError: `output` exists, and is not a site of Topgallant.
        InfrastructureError: the site cannot be written.
    """
    target = site_directory.resolved(output)
    as_of = now or datetime.now(UTC)
    wanted = Filter(project=project, presets=presets, since=since)
    projects = project_overview.collect(connection, wanted, bounds or {}, now=as_of)
    with site_directory.replacing(target) as directory:
        pages = _Pages(directory, target, wanted, as_of)
        pages.index(projects)
        for found in projects:
            pages.project(found)
            for cell in found.cells:
                pages.cell(found, cell)
    return target / "index.html"


class _Pages:
    """Writes pages into `directory`, which is later moved to `target`. `wanted`: the runs that the pages show."""

    def __init__(self, directory: Path, target: Path, wanted: Filter, now: datetime) -> None:
        self._directory = directory
        self._target = target
        self._wanted = wanted
        self._now = now
        self._reports = site_directory.Reports()

    def index(self, projects: Sequence[Project]) -> None:
        """Write the page about all projects."""
        cells = [cell for project in projects for cell in project.cells]
        days = _in_all(day for project in projects for day in project.days)
        self._write(
            "index.html",
            "dashboard_index.html",
            icon=min(map(formats.project_mark, projects), key=lambda mark: not mark.is_bad, default=_web_page.WAITING),
            data={"charts": charts.of_costs(days)},
            projects=projects,
            regressions=project_overview.regressions(cells),
            flaky=project_overview.flaky(cells),
            slowest=project_overview.slowest(cells)[:_SLOWEST],
            strip=max(1, min(project_overview.RECENT, _MOST_CHIPS // max(1, len(projects)))),
            months=_in_all(month for project in projects for month in project.months),
            days=days,
        )

    def project(self, project: Project) -> None:
        """Write the page about a project, and pages that list the cells that it has no room for."""
        shown = _with_room(project.cells)
        counts = {key: sum(key in cell.states for cell in project.cells) for key in project_overview.STATES}
        self._write(
            f"projects/{formats.project_page(project)}",
            "dashboard_project.html",
            icon=formats.project_mark(project),
            data={"charts": charts.of_costs(project.days)},
            project=project,
            headings=list(zip(project.runs, formats.headings(project.runs), strict=True)),
            shown=shown,
            others=list(self._others(project, len(shown))),
            counts={key: count for key, count in counts.items() if count},
            has_metrics=any(cell.histories for cell in shown),
            has_noise=any(history.noisy for cell in shown for history in cell.histories),
        )

    def _others(self, project: Project, begin: int) -> Iterator[tuple[int, int, str]]:
        """Write lists of the cells from an index on; yield the numbers of the first and the last cell, and the page."""
        for number, first in enumerate(range(begin, len(project.cells), _MOST_OTHERS), 1):
            cells, page = (
                project.cells[first : first + _MOST_OTHERS],
                site_directory.file_name(project.name, f"cells-{number}"),
            )
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
        """Write the page about a cell."""
        path = f"cells/{formats.cell_page(cell)}"
        drawn = charts.of_cell(cell.histories)
        rows = max(_SLOWEST, min(_ROWS, _MOST_ROWS // max(1, len(cell.histories))))
        self._write(
            path,
            "dashboard_cell.html",
            icon=formats.cell_mark(cell) or _web_page.WAITING,
            data=drawn.data,
            project=project,
            cell=cell,
            points=drawn.points,
            rows=rows,
            results=cell.results[:_MOST_RESULTS],
            values=lambda history: self._values(history, rows, self._target / path),
        )

    def _values(self, history: History, count: int, page: Path) -> Iterator[tuple[str, str, str, str, str | None, str]]:
        """Yield the lines of the table of a metric, the latest value first."""
        series = history.series
        begin = history.bounded_from
        for place in range(history.size - 1, max(-1, history.size - 1 - count), -1):
            run, side = series.runs[place], history.outside.get(place)
            within = "within" if begin is not None and place >= begin else ""
            yield (
                formats.minute(run.started),
                f"{series.values[place]:.6g}",
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
            wanted=self._wanted,
            report=lambda directory: self._reports.address(directory, page),
            **formats.WORDS,
            **context,
        )
        site_directory.write(self._directory / path, text)


def _with_room(cells: Sequence[Cell]) -> Sequence[Cell]:
    """Return as many of the first cells as a page has room for, with all their details."""
    room = _ROOM
    for count, cell in enumerate(cells):
        room -= 800 + 75 * len(cell.recent) + 1200 * len(cell.histories)
        if room < 0:
            return cells[:count]
    return cells


def _in_all(costs: Iterable[Cost]) -> list[Cost]:
    """Return the sums over projects, the latest period first."""
    found: dict[tuple[str, str], Cost] = {}
    for cost in costs:
        one = found.setdefault((cost.period, cost.currency), Cost(cost.period, "", cost.currency))
        one.runs += cost.runs
        one.unpriced += cost.unpriced
        one.seconds += cost.seconds
        if cost.cost is not None:
            one.cost = (one.cost or 0.0) + cost.cost
    return [found[key] for key in sorted(found, reverse=True)]
