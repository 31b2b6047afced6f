"""Finds the metrics of a run that differ from the baseline.

The value of the run is compared with the latest values of the current level of the baseline by the test of
`comparison`, which limits the share of false alarms among all metrics of the run. The test needs the level and the
noise of the baseline, which take milliseconds per metric. So a value between the smallest and the largest of the latest
values is not tested, but is counted among the tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, select

from toolbox.ground.model.bounds import Bound
from toolbox.records.results import change_points, comparison, histories, queries
from toolbox.records.results.comparison import FALSE_DISCOVERIES, Change, Comparison
from toolbox.records.results.earlier_results import EarlierRun
from toolbox.records.results.flaky_and_moved import MAX_VALUES, MetricChange
from toolbox.records.results.queries import Filter
from toolbox.records.results.segmentation import SHORTEST
from toolbox.records.results.series import Series
from toolbox.records.results.tables import RUNS

MAX_RUNS: Final = 60
"""The number of latest runs of the baseline whose values are read."""
_LEVEL_VALUES: Final = 10  # latest values of the current level, with which the run is compared
_MOVED: Final = (Change.WORSE, Change.CHANGED, Change.BETTER)  # in the order of the result
_Key = tuple[str, str, str]  # the id of a cell, a metric and its unit


@dataclass(frozen=True, slots=True)
class _History:
    """The values of a metric in the baseline.

    Args:
        whole: all values that were read.
        latest: the latest values of the current level, with which the run is compared.
        earlier: the values from which the noise is computed. They do not end within the first values of a level, which
            would look like noise.
    """

    whole: Series
    latest: Series
    earlier: Series


def of(
    connection: Connection, row: int, runs: Sequence[EarlierRun], bounds: Mapping[tuple[str, str], Bound]
) -> list[MetricChange]:
    """Return the metrics that moved, those that became worse first.

    Args:
        row: the id of the row of the run.
        runs: the comparable runs of the baseline, the newest first.
        bounds: the bounds in force, by the id of the cell and the metric.
    """
    run: Any = connection.execute(select(RUNS.c.project, RUNS.c.started).where(RUNS.c.id == row)).one()
    now = {_key(each): each for each in queries.series(connection, Filter(run.project, run=row))}
    before = _before(connection, run, runs[:MAX_RUNS], now) if now and runs else {}
    earlier = {key: _history(whole) for key, whole in before.items() if _is_unusual(now[key], whole)}
    compared = comparison.compare(
        [history.latest for history in earlier.values()],
        [now[key] for key in earlier],
        [history.earlier for history in earlier.values()],
    )
    moved = [each for each in compared if each.change in _MOVED and _is_certain(each, len(before) / len(earlier))]
    found = [_change(each, earlier[_key(each.series)].whole, bounds) for each in moved]
    order = {id(change): _MOVED.index(each.change) for change, each in zip(found, moved, strict=True)}
    return sorted(found, key=lambda change: (order[id(change)], change.name, change.metric))


def _before(
    connection: Connection, run: Any, runs: Sequence[EarlierRun], now: Mapping[_Key, Series]
) -> dict[_Key, Series]:
    """Return the values of the metrics of a run in the baseline, without metrics that the baseline does not have."""
    names = {(each.run, each.started) for each in runs}
    oldest = min(each.started for each in runs)
    selection = Filter(run.project, since=oldest, until=run.started, baseline=True)
    found = {}
    for series in queries.series(connection, selection):
        indices = [index for index, each in enumerate(series.runs) if (each.run, each.started) in names]
        if indices and (key := _key(series)) in now:
            found[key] = series.at(indices)
    return found


def _is_unusual(now: Series, before: Series) -> bool:
    """Return whether the latest value is out of the range of the latest values of the shortest level."""
    latest = before.values[-SHORTEST:]
    return not latest.min() <= now.values[-1] <= latest.max()


def _is_certain(compared: Comparison, share: float) -> bool:
    """Return whether a change remains certain if all metrics are counted as tests.

    Args:
        share: the number of all metrics per metric that was tested.
    """
    p_value = compared.adjusted_p_value
    return p_value is None or p_value * share <= FALSE_DISCOVERIES


def _history(whole: Series) -> _History:
    confirmed = [
        each.index for each in change_points.detect(whole.values) if each.state is change_points.State.CONFIRMED
    ]
    level = whole.latest(len(whole.values) - max([0, *confirmed]))
    is_long = len(level.values) > _LEVEL_VALUES
    return _History(whole, level.latest(_LEVEL_VALUES), level if is_long else whole)


def _change(compared: Comparison, whole: Series, bounds: Mapping[tuple[str, str], Bound]) -> MetricChange:
    series, before, after = compared.series, compared.before, compared.after
    assert before is not None  # the metric moved, so both sides have values
    assert after is not None
    (history,) = histories.of([whole], bounds, {})
    bound = history.bound if history.bound is not None and history.bound.is_reported else None
    return MetricChange(
        series.cell,
        series.name,
        series.metric,
        series.unit,
        before,
        after,
        None if series.direction is None else series.direction.improves(before, after),
        [*map(float, whole.values[-MAX_VALUES:]), after],
        bound.range if bound is not None else "",
        bound is not None and bound.side(after) is not None,
    )


def _key(series: Series) -> _Key:
    return series.cell, series.metric, series.unit
