"""Makes the panels of the notebooks of a cell: links, and the resource use above the time line of the notebook's cells.

The chart is static SVG. Its lanes share one time axis. Lanes scale with the width of the page, and their texts do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rich import filesize

from toolbox.features.notebooks import executed_notebooks, usage_samples
from toolbox.features.notebooks.executed_notebooks import ExecutedNotebook
from toolbox.features.notebooks.usage_samples import RowBudget, Series
from toolbox.features.notebooks.worker import notebook_results
from toolbox.features.notebooks.worker.notebook_results import CellRecord, TestKind, TestOutcome, TestResult
from toolbox.ground.model.text import counted, duration
from toolbox.records.runs.layout import AttemptDirectory, attempt_name
from toolbox.records.runs.run_state import RunState, StepState
from toolbox.reports import _links
from toolbox.reports._links import Link
from toolbox.reports._web_page import Mark
from toolbox.reports.page import time_axis

TEMPLATE: Final = Path(__file__).parent / "templates/notebook_panels.html"
STYLE: Final = Path(__file__).parent / "assets/notebook_panels.css"
WIDTH: Final = 1000
HEIGHT: Final = 100  # width and height of a lane, in units of its SVG
_MAX_CHARTS: Final = 100  # of a page
_MAX_BARS: Final = 400  # cells of a notebook
_MAX_ROWS: Final = 50  # cells of a notebook in its table
_MAX_NOTEBOOKS: Final = 100  # of a cell
_SLACK: Final = 0.5  # seconds: samples outside of the cells by at most this time are drawn at the edge
_SHORTEST: Final = 0.001  # seconds


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a lane in the chart.

    Args:
        kind: `first` or `second`, which have different colours and dashes.
        points: the points in the syntax of SVG.
    """

    kind: str
    points: str


@dataclass(frozen=True, slots=True)
class Lane:
    """A part of the chart: the use of a resource, with the highest values as texts."""

    title: str
    highest: Sequence[tuple[str, str]]
    lines: Sequence[Line]


@dataclass(frozen=True, slots=True)
class Bar:
    """A cell of the notebook: its position and width in percent of the notebook's time."""

    left: float
    width: float
    mark: Mark
    title: str


@dataclass(frozen=True, slots=True)
class CellRow:
    """A cell of the notebook in the table."""

    name: str
    mark: Mark
    seconds: float | None
    cpu_seconds: float | None
    memory: str


@dataclass(frozen=True, slots=True)
class Chart:
    """The resource use of a notebook above the time line of its cells.

    Args:
        ticks: the texts below the lanes, at equal distances.
        rows: the cells that failed, then the slowest cells.
        more_rows: the number of executed cells without a row.
    """

    description: str
    lanes: Sequence[Lane]
    bars: Sequence[Bar]
    ticks: Sequence[str]
    rows: Sequence[CellRow]
    more_rows: int


@dataclass(frozen=True, slots=True)
class NotebookPanel:
    """A notebook of a cell.

    Args:
        html: the link to the page of the notebook; None if the page does not exist.
        links: the links to the executed notebook and to its PDF file.
        chart: None if the notebook was not executed, or if the page has no room for its chart.
    """

    name: str
    mark: Mark
    seconds: float | None
    message: str
    html: Link | None
    links: Sequence[Link]
    chart: Chart | None


@dataclass(slots=True)
class NotebookPanels:
    """Makes the notebooks of all cells of a page.

    Args:
        charts: how many more charts the page may have.
        rows: how many more samples may be read.
    """

    summary: RunState
    charts: int = _MAX_CHARTS
    rows: RowBudget = field(default_factory=RowBudget)
    _withheld: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self._withheld = frozenset(self.summary.secrets_left)

    def of(self, step: StepState) -> list[NotebookPanel]:
        """Return the notebooks of the last attempt of a cell. Notebooks that did not pass are first."""
        root = self.summary.directory
        results = [
            result
            for result in executed_notebooks.results_of(root, step, self._withheld)
            if result.kind is TestKind.NOTEBOOK
        ]
        files = executed_notebooks.of_step(root, step, self._withheld)
        by_name = {each.source[-1]: each for each in files}
        results.sort(key=lambda result: not executed_notebooks.mark(result).is_bad)
        panels = [self._panel(step, result, by_name.pop(_executed(result), None)) for result in results]
        panels += [self._panel(step, None, each) for each in by_name.values()]
        return panels[:_MAX_NOTEBOOKS]

    def _panel(self, step: StepState, result: TestResult | None, file: ExecutedNotebook | None) -> NotebookPanel:
        root = self.summary.directory
        chart = None
        if result is not None and self.charts > 0 and (chart := self._chart(step, result)) is not None:
            self.charts -= 1
        html = _links.link(root, *file.page, name="page") if file else None
        parts = ((file.source, ".ipynb"), (file.pdf, ".pdf")) if file else ()
        links = [link for path, name in parts if (link := _links.link(root, *path, name=name)) is not None]
        return NotebookPanel(
            result.name if result else file.name if file else "",
            executed_notebooks.mark(result),
            result.seconds if result else None,
            result.message if result else "",
            html,
            links,
            chart,
        )

    def _chart(self, step: StepState, result: TestResult) -> Chart | None:
        record = result.notebook
        if record is None:
            return None
        begin, end = _span(result, record.cells)
        series: Mapping[str, Series] = {}
        if record.samples:
            attempt = attempt_name(step.attempts[-1].attempt)
            parts = (step.step, attempt, AttemptDirectory.results, notebook_results.SAMPLES, record.samples)
            path = _links.inside(self.summary.directory, *parts)
            if path is not None and path.is_file() and "/".join(parts) not in self._withheld:
                series = usage_samples.read(path, begin - _SLACK, end + _SLACK, self.rows)
        return _make(record.cells, series, begin, end - begin)


def _executed(result: TestResult) -> str:
    return result.notebook.executed if result.notebook else ""


def _span(result: TestResult, cells: Sequence[CellRecord]) -> tuple[float, float]:
    """Return when the first cell of a notebook began, and when the last cell ended, within the time of the test.

    The start of the kernel is left out: it often takes longer than the cells, and the bars of the cells would be too
    narrow.
    """
    first, last = result.started, result.started + max(result.seconds, _SHORTEST)
    times = [(cell.started, cell.started + cell.seconds) for cell in cells if cell.started and cell.seconds is not None]
    inside = [(max(begin, first), min(end, last)) for begin, end in times if begin < last and end > first]
    if not inside:
        return first, last
    begin = min(begin for begin, _ in inside)
    return begin, max(begin + _SHORTEST, *(end for _, end in inside))


def _make(cells: Sequence[CellRecord], series: Mapping[str, Series], begin: float, seconds: float) -> Chart | None:
    lanes = list(_lanes(series, begin, seconds))
    timed = [cell for cell in cells if cell.started is not None and cell.seconds is not None]
    bars = [bar for cell in _most_important(timed, _MAX_BARS) if (bar := _bar(cell, begin, seconds)) is not None]
    if not lanes and not bars:
        return None
    rows = _most_important(timed, _MAX_ROWS)
    words = [f"{lane.title}: {', '.join(' '.join(each) for each in lane.highest)}" for lane in lanes]
    failed = [f"cell {cell.number} failed" for cell in cells if _is_bad(cell)]
    return Chart(
        "; ".join([f"{counted(len(timed), 'cell')} in {duration(seconds)}", *failed[:3], *words]),
        lanes,
        bars,
        [text for _, text in time_axis.ticks(seconds)],
        [_row(cell) for cell in sorted(rows, key=lambda cell: (not _is_bad(cell), -(cell.seconds or 0.0)))],
        len(timed) - len(rows),
    )


def _is_bad(cell: CellRecord) -> bool:
    return cell.outcome in {TestOutcome.FAILED, TestOutcome.ERROR}


def _most_important(cells: Sequence[CellRecord], most: int) -> list[CellRecord]:
    """Return the failed cells and the slowest cells, in the order of the notebook."""
    ranked = sorted(range(len(cells)), key=lambda index: (not _is_bad(cells[index]), -(cells[index].seconds or 0.0)))
    return [cells[index] for index in sorted(ranked[:most])]


def _lanes(series: Mapping[str, Series], begin: float, seconds: float) -> list[Lane]:
    def line(kind: str, name: str, top: float) -> Line:
        place = ((at - begin) / seconds * WIDTH for at, _ in series[name].points)
        heights = (HEIGHT - number / top * (HEIGHT - 6) - 3 for _, number in series[name].points)
        points = [f"{min(max(x, 0), WIDTH):.0f},{y:.1f}" for x, y in zip(place, heights, strict=True)]
        return Line(kind, " ".join(points if len(points) > 1 else 2 * points))  # one sample is drawn as a dot

    lanes = []
    if (cpu := series.get("cpu_percent")) is not None:
        line_of_cpu = line("first", "cpu_percent", max(cpu.highest, 100.0))
        lanes.append(Lane("CPU", [("", _percent(cpu))], [line_of_cpu]))
    if (memory := series.get("memory_bytes")) is not None:
        line_of_memory = line("first", "memory_bytes", max(memory.highest, 1.0))
        lanes.append(Lane("Memory", [("", _size(memory))], [line_of_memory]))
    indexes = sorted({int(name[3 : name.index("_")]) for name in series if name.startswith("gpu")})
    for index in indexes[: usage_samples.MAX_GPUS]:
        highest, lines = [], []
        if (busy := series.get(f"gpu{index}_percent")) is not None:
            highest.append(("busy", _percent(busy)))
            lines.append(line("first", f"gpu{index}_percent", max(busy.highest, 100.0)))
        if (used := series.get(f"gpu{index}_memory_bytes")) is not None:
            highest.append(("memory", _size(used)))
            lines.append(line("second", f"gpu{index}_memory_bytes", max(used.highest, 1.0)))
        if lines:
            lanes.append(Lane(f"GPU {index}", highest, lines))
    return lanes


def _percent(series: Series) -> str:
    return f"up to {series.highest:.0f}%"


def _size(series: Series) -> str:
    return f"up to {filesize.decimal(int(series.highest))}"


def _bar(cell: CellRecord, begin: float, seconds: float) -> Bar | None:
    """Return the bar of a cell; None if the times of the cell are outside of the notebook's time."""
    assert cell.started is not None, "the caller selects the cells with times"
    assert cell.seconds is not None, "the caller selects the cells with times"
    left, right = cell.started - begin, cell.started - begin + cell.seconds
    if right < 0 or left > seconds:
        return None
    left, right = max(left, 0.0), min(right, seconds)
    row = _row(cell)
    parts = [f"{row.name}: {row.mark.word}", duration(cell.seconds, 2)]
    if cell.cpu_seconds is not None:
        parts.append(f"CPU time {duration(cell.cpu_seconds, 2)}")
    if row.memory:
        parts.append(f"peak memory {row.memory}")
    return Bar(round(100 * left / seconds, 2), round(100 * (right - left) / seconds, 2), row.mark, ", ".join(parts))


def _row(cell: CellRecord) -> CellRow:
    memory = filesize.decimal(cell.peak_memory_bytes) if cell.peak_memory_bytes is not None else ""
    name = f"cell {cell.number}" if cell.number else "the injected parameters"
    return CellRow(name, executed_notebooks.mark_of(cell.outcome), cell.seconds, cell.cpu_seconds, memory)
