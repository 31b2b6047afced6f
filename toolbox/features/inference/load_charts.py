"""Makes the charts of loads on inference servers: times and throughput against the rate, or against the concurrency.

The figures come from `load.json` of the last attempt of each cell. A target has written this file, so it may contain
any numbers: those that are too large to draw are left out. The page contains the charts as SVG, with a table of all
steps.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from toolbox.features.inference.client.worker_results import LOAD
from toolbox.records.runs.layout import AttemptDirectory, attempt_name
from toolbox.reports import _links
from toolbox.reports.page.sections import PageCell

if TYPE_CHECKING:
    from toolbox.features.inference.load_results import LoadResults, StepResult, Times

TEMPLATE: Final = Path(__file__).parent / "templates/load.html"
STYLE: Final = Path(__file__).parent / "assets/load.css"
MAX_CELLS: Final = 20
_MAX_ROWS: Final = 60  # steps of a cell in the table
_LARGEST: Final = 1e9  # a larger number is not drawn
_SMALLEST: Final = 1e-9  # a smaller number is drawn as 0
_LEFT, _RIGHT, _TOP, _BOTTOM = 34, 234, 8, 138  # the edges of the area of the lines
PANEL: Final = {"width": 240, "height": 172, "left": _LEFT, "right": _RIGHT, "top": _TOP, "bottom": _BOTTOM}
"""The size of a panel, in units of the SVG."""
_MAX_MARKS: Final = 40  # with more points, a line has no marks
_TICKS: Final = 4
_LOG_FROM: Final = 20  # the ratio of the largest to the smallest number from which an axis is logarithmic
_FAR: Final = 3  # an objective that is further above the numbers is not drawn


@dataclass(frozen=True, slots=True)
class Mark:
    """A point of a line, with the text that it shows under the pointer."""

    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a panel.

    Args:
        kind: `first` or `second`, which have different colours, dashes and marks.
        points: the points in the syntax of SVG, for each part without a gap.
        marks: the marks at the points; empty if there are too many.
    """

    kind: str
    points: Sequence[str]
    marks: Sequence[Mark]


@dataclass(frozen=True, slots=True)
class Panel:
    """A chart of one figure.

    Args:
        title: the figure with its unit.
        description: the numbers in words, for screen readers.
        ticks_x: positions and texts.
        objective: the position of the objective, and its text; None if there is none, or if it is far above.
    """

    id: str
    title: str
    description: str
    ticks_x: Sequence[tuple[float, str]]
    ticks_y: Sequence[tuple[float, str]]
    lines: Sequence[Line]
    objective: tuple[float, str] | None


@dataclass(frozen=True, slots=True)
class Group:
    """The panels of all steps with a rate, or of all steps with a concurrency.

    Args:
        axis: what the horizontal axes show.
        has_goodput: whether the panel of requests has the line of the goodput.
    """

    axis: str
    panels: Sequence[Panel]
    has_goodput: bool


@dataclass(frozen=True, slots=True)
class Row:
    """A step in the table. The texts of `numbers` are in the order of `COLUMNS`."""

    name: str
    numbers: Sequence[str]
    errors: Sequence[str]
    remarks: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class LoadChart:
    """The load on the server of a cell.

    Args:
        remarks: what the charts do not show.
        metrics: the names of the metrics of the load.
        rows_left_out: the number of steps for which the table has no room.
    """

    cell: PageCell
    groups: Sequence[Group]
    remarks: Sequence[str]
    rows: Sequence[Row]
    rows_left_out: int
    metrics: Collection[str]


@dataclass(frozen=True, slots=True)
class _Axis:
    """An axis from `low` to `high`, at the positions `begin` and `end`."""

    low: float
    high: float
    begin: float
    end: float
    is_log: bool
    ticks: Sequence[float]

    @classmethod
    def of(cls, numbers: Collection[float], begin: float, end: float) -> _Axis:
        """Return an axis on which all these numbers are."""
        high, low = max(numbers, default=0.0), min(numbers, default=0.0)
        if high <= 0:
            return cls(0.0, 1.0, begin, end, is_log=False, ticks=(0.0, 1.0))
        if low > 0 and high / low >= _LOG_FROM:
            ticks = _log_ticks(low, high)
            return cls(ticks[0], ticks[-1], begin, end, is_log=True, ticks=ticks)
        ticks = _linear_ticks(high)
        return cls(0.0, ticks[-1], begin, end, is_log=False, ticks=ticks)

    def place(self, number: float) -> float:
        """Return the position of a number."""
        part = math.log(number / self.low) / math.log(self.high / self.low) if self.is_log else number / self.high
        return round(self.begin + part * (self.end - self.begin), 1)

    def labelled(self) -> list[tuple[float, str]]:
        """Return the positions and the texts of the ticks."""
        return [(self.place(tick), f"{tick:g}") for tick in self.ticks]


def make(cells: Sequence[PageCell], root: Path, withheld: Collection[str] = ()) -> tuple[Sequence[LoadChart], int]:
    """Return the charts of the cells with a load, and the number of cells for which the page has no room.

    A rate or a concurrency alone gets no chart: the table has its figures.

    Args:
        root: the run directory.
        withheld: files with a secret, relative to the root. They are not read.
    """
    loaded = [(cell, path) for cell in cells if (path := _file(cell, root, withheld)) is not None]
    if not loaded:
        return [], 0
    from toolbox.features.inference import load_results  # slow to import

    charts = []
    for cell, path in loaded[:MAX_CELLS]:
        try:
            results = load_results.read(path.parent, path.name)
        except ValueError:  # the check `load` shows why
            continue
        if results.steps:
            names = (step.name for step in results.steps)
            metrics = {load_results.metric_name(name, figure) for name in names for figure in load_results.STORED}
            charts.append(_chart(cell, results, metrics))
    return charts, max(0, len(loaded) - MAX_CELLS)


def _file(cell: PageCell, root: Path, withheld: Collection[str]) -> Path | None:
    if not cell.step.attempts:
        return None
    parts = (cell.step.step, attempt_name(cell.step.attempts[-1].attempt), AttemptDirectory.results, LOAD)
    return None if "/".join(parts) in withheld else _links.inside(root, *parts)


def _chart(cell: PageCell, results: LoadResults, metrics: Collection[str]) -> LoadChart:
    groups: list[Group] = []
    omitted = _Omitted()
    rates = [(step.rate, step) for step in results.steps if step.rate is not None]
    concurrencies = [(float(step.concurrency), step) for step in results.steps if step.concurrency is not None]
    for key, axis, steps in (
        ("rate", "Requests per second", rates),
        ("concurrency", "Requests at the same time", concurrencies),
    ):
        drawn = sorted((pair for pair in steps if _fits(pair[0])), key=lambda pair: pair[0])
        if len(drawn) > 1:
            groups.append(_Group(f"{cell.anchor}-{key}", axis, drawn, results, omitted).group())
    rows = [_row(step) for step in results.steps[:_MAX_ROWS]]
    return LoadChart(cell, groups, omitted.remarks(), rows, len(results.steps) - len(rows), metrics)


@dataclass(frozen=True, slots=True)
class _Omitted:
    """What the charts of a cell do not show, by the name of the figure: objectives, and numbers that are too large."""

    objectives: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, None] = field(default_factory=dict)

    def remarks(self) -> list[str]:
        """Return a sentence for each kind."""
        objectives = ", ".join(f"{name} {objective}" for name, objective in self.objectives.items())
        return [
            *([f"Too large to be drawn: some numbers of {', '.join(self.numbers)}."] if self.numbers else []),
            *([f"Objectives that are far above a chart: {objectives}."] if objectives else []),
        ]


class _Group:
    """Makes the panels of some steps, which are sorted by their position on the horizontal axis.

    Args:
        omitted: gets what the panels do not show.
    """

    def __init__(
        self,
        prefix: str,
        axis: str,
        steps: Sequence[tuple[float, StepResult]],
        results: LoadResults,
        omitted: _Omitted,
    ) -> None:
        self._prefix = prefix
        self._axis = axis
        self._steps = steps
        self._objectives = results.objectives
        self._x = _Axis.of([_flat(x) for x, _ in steps], _LEFT, _RIGHT - 6)
        self._omitted = omitted

    def group(self) -> Group:
        """Return the panels."""
        has_goodput = any(step.goodput is not None for _, step in self._steps)
        limits = self._objectives
        panels = [
            self._times("first", "First token", lambda step: step.first_token, limits.first_token),
            self._times("between", "Between tokens", lambda step: step.between_tokens, limits.per_token),
            self._times("end", "End to end", lambda step: step.end_to_end, limits.end_to_end),
            self._panel(
                "requests",
                "Requests per second",
                "",
                [
                    ("completed", lambda step: step.completed_rate),
                    *([("goodput", lambda step: step.goodput)] if has_goodput else []),
                ],
            ),
            self._panel("tokens", "Tokens per second", "", [("tokens", lambda step: step.tokens_per_second)]),
        ]
        return Group(f"{self._axis} (log)" if self._x.is_log else self._axis, panels, has_goodput)

    def _times(self, key: str, title: str, of: Callable[[StepResult], Times], objective: float | None) -> Panel:
        """Return the panel of a time, in milliseconds or seconds."""
        numbers = [value for _, step in self._steps for value in (of(step).p50, of(step).p95) if value is not None]
        factor, unit = (1.0, "s") if max(filter(_fits, numbers), default=0.0) >= 1 else (1000.0, "ms")

        def scaled(value: float | None) -> float | None:
            return None if value is None else value * factor

        limit = scaled(objective)
        return self._panel(
            key,
            f"{title}, {unit}",
            f" {unit}",
            [("p50", lambda step: scaled(of(step).p50)), ("p95", lambda step: scaled(of(step).p95))],
            limit if limit is not None and _SMALLEST <= limit <= _LARGEST else None,
        )

    def _panel(
        self,
        key: str,
        title: str,
        unit: str,
        lines: Iterable[tuple[str, Callable[[StepResult], float | None]]],
        objective: float | None = None,
    ) -> Panel:
        named = [(name, [(x, step, of(step)) for x, step in self._steps]) for name, of in lines]
        numbers = [_flat(value) for _, points in named for _, _, value in points if value is not None and _fits(value)]
        is_drawn = objective is not None and objective <= _FAR * max(numbers, default=0.0)
        axis = _Axis.of([*numbers, *([objective] if is_drawn and objective is not None else [])], _BOTTOM, _TOP)
        if any(value is not None and not _fits(value) for _, points in named for _, _, value in points):
            self._omitted.numbers[title.partition(",")[0].lower()] = None
        if objective is not None and not is_drawn:
            self._omitted.objectives[title.partition(",")[0].lower()] = f"{_digits(objective)}{unit}"
        if axis.is_log:
            title = f"{title} (log)"
        return Panel(
            f"{self._prefix}-{key}",
            title,
            self._description(named, unit, objective),
            self._x.labelled(),
            axis.labelled(),
            [
                self._line(kind, name, points, unit, axis)
                for kind, (name, points) in zip(("first", "second"), named, strict=False)
            ],
            (axis.place(objective), f"objective {_digits(objective)}{unit}") if objective and is_drawn else None,
        )

    def _line(
        self, kind: str, name: str, points: Sequence[tuple[float, StepResult, float | None]], unit: str, axis: _Axis
    ) -> Line:
        """Return a line. A number that is missing, or too large to be drawn, is a gap."""
        marks: list[list[Mark]] = []
        for has_value, part in itertools.groupby(points, lambda point: point[2] is not None and _fits(point[2])):
            if has_value:
                marks.append(
                    [
                        Mark(
                            self._x.place(_flat(x)),
                            axis.place(_flat(value or 0.0)),
                            f"{step.name}: {name} {_digits(value or 0.0)}{unit}",
                        )
                        for x, step, value in part
                    ]
                )
        texts = [" ".join(f"{mark.x:g},{mark.y:g}" for mark in part) for part in marks]
        shown = list(itertools.chain.from_iterable(marks))
        return Line(kind, texts, shown if len(shown) <= _MAX_MARKS else ())

    def _description(
        self,
        named: Sequence[tuple[str, Sequence[tuple[float, StepResult, float | None]]]],
        unit: str,
        objective: float | None,
    ) -> str:
        parts = [f"{self._axis} from {self._steps[0][0]:g} to {self._steps[-1][0]:g}"]
        for name, points in named:
            values = [value for _, _, value in points if value is not None]
            parts.append(
                f"{name} from {_digits(values[0])}{unit} to {_digits(values[-1])}{unit}" if values else f"no {name}"
            )
        if objective is not None:
            parts.append(f"the objective is {_digits(objective)}{unit}")
        return "; ".join(parts)


def _row(step: StepResult) -> Row:
    share = step.error_share
    numbers = [
        str(step.requests),
        f"{step.errors} ({share:.1%})" if share and step.errors else str(step.errors),
        *(_digits(value) for value in (step.offered_rate, step.completed_rate, step.goodput, step.tokens_per_second)),
    ]
    for times in (step.first_token, step.between_tokens, step.end_to_end):
        numbers += [_milliseconds(times.p50), _milliseconds(times.p95), str(times.samples)]
    numbers.append(_milliseconds(step.lateness if step.client_delay.samples else None))
    return Row(step.name, numbers, [str(each) for each in step.error_messages[:3]], step.remarks)


def _milliseconds(seconds: float | None) -> str:
    return _digits(seconds * 1000) if seconds is not None else "-"


def _digits(number: float | None) -> str:
    """Return a number with three significant digits, or with all digits before the point."""
    if number is None:
        return "-"
    return f"{number:.0f}" if 1000 <= number < _LARGEST else f"{number:.3g}"  # noqa: PLR2004


def _fits(number: float) -> bool:
    return number <= _LARGEST


def _flat(number: float) -> float:
    return number if number >= _SMALLEST else 0.0


def _linear_ticks(high: float) -> list[float]:
    """Return round numbers from 0 to at least `high`, at equal distances."""
    rough = high / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    count = math.ceil(high / step - 1e-9)
    return [float(f"{index * step:.6g}") for index in range(count + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """Return powers of ten around two numbers. If they are near, also return 2 and 5 times these powers."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    factors = (1, 2, 5) if last - first <= 2 else (1,)  # noqa: PLR2004
    ticks = [float(f"{factor * 10.0**power:.6g}") for power in range(first, last + 1) for factor in factors]
    below, above = max(tick for tick in ticks if tick <= low), min(tick for tick in ticks if tick >= high)
    kept = [tick for tick in ticks if below <= tick <= above]
    return kept if len(kept) <= 2 * _TICKS else [*kept[: -1 : math.ceil(len(kept) / _TICKS)], kept[-1]]
