"""A run is compared with the baseline: what is known, flaky, slower and faster, and why it cannot be compared."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.history import START, Past, Tried, identity
from toolbox.ground.model.bounds import Bound, Method
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.ground.system import places
from toolbox.records.results import recording, run_comparison, since_last_run
from toolbox.records.results.flaky_and_moved import FlakyCell, MetricChange, sparkline
from toolbox.records.results.since_last_run import NotCompared, SinceLastRun
from toolbox.records.results.store import Store

PASSED, FAILED = Tried(), Tried(Verdict.FAILED, Cause.PRODUCT)
PULL_REQUEST = {"is_baseline": False, "revision": "b" * 40}


class Nightly:
    """A store with one run per day."""

    def __init__(self, store: Store, directory: Path) -> None:
        self.store = store
        self.directory = directory
        self.days = 0

    def run(self, cells: Mapping[str, Tried | Sequence[Tried]], **fields: Any) -> int:
        """Record the next run, and return the id of its row."""
        self.days += 1
        attempts = {cell: [tried] if isinstance(tried, Tried) else list(tried) for cell, tried in cells.items()}
        started = START + timedelta(days=self.days)
        directory = Past(attempts, started=started, run=f"r{self.days}", **fields).write(self.directory)
        return recording.record(self.store, directory).row

    def find(
        self, row: int, bounds: Mapping[tuple[str, str], Bound] | None = None
    ) -> SinceLastRun | NotCompared | None:
        with self.store.reading() as connection:
            return run_comparison.of(connection, row, None, bounds or {})

    def compare(self, row: int, bounds: Mapping[tuple[str, str], Bound] | None = None) -> SinceLastRun:
        comparison = self.find(row, bounds)
        assert isinstance(comparison, SinceLastRun)
        return comparison

    def times(self, *seconds: float) -> None:
        """Record nightly runs of the cell `x=a` with these times."""
        for value in seconds:
            self.run({"x=a": Tried(metrics={"time": value})}, revision=f"{self.days:040}")


@pytest.fixture
def nightly(tmp_path: Path) -> Iterator[Nightly]:
    with Store(str(tmp_path / "store.db")) as store:
        yield Nightly(store, tmp_path / "runs")


NOISE = (1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.01, 1.0, 0.99, 1.0, 1.01, 0.99)


def test_a_failure_that_the_baseline_has_too_is_known(nightly: Nightly) -> None:
    nightly.run({"x=a": FAILED, "x=b": PASSED, "x=c": FAILED})
    comparison = nightly.compare(nightly.run({"x=a": FAILED, "x=b": FAILED, "x=c": PASSED}, **PULL_REQUEST))
    assert [change.name for change in comparison.known] == ["x=a"]
    assert comparison.tally == "1 cell newly failing; 1 cell newly passing"
    assert comparison.remarks == "1 cell failing as before"


def test_a_test_that_fails_in_the_baseline_too_is_known(nightly: Nightly) -> None:
    bad = Tried(
        Verdict.FAILED,
        Cause.CHECK,
        junit="<testsuite><testcase name='one'><failure message='x'/></testcase></testsuite>",
    )
    nightly.run({"x=a": bad})
    comparison = nightly.compare(nightly.run({"x=a": bad}))
    assert [(change.name, change.test) for change in comparison.known] == [("x=a", ""), ("x=a", "one")]
    assert (comparison.has_changes, comparison.remarks) == (False, "1 cell failing as before; 1 test failing as before")


def test_a_cell_whose_attempts_differ_is_flaky(nightly: Nightly) -> None:
    nightly.run({"x=a": PASSED, "x=b": PASSED})
    comparison = nightly.compare(nightly.run({"x=a": [FAILED, PASSED], "x=b": PASSED}, **PULL_REQUEST))
    assert list(comparison.flaky) == [FlakyCell(identity("x=a"), "x=a", "1 of 2 attempts failed in this run")]
    assert comparison.remarks == "1 flaky cell"


def test_a_failure_of_a_cell_that_is_flaky_in_the_baseline_is_flaky(nightly: Nightly) -> None:
    for night in range(6):
        nightly.run({"x=a": FAILED if night % 2 else PASSED, "x=b": PASSED}, revision=f"{night // 2:040}")
    failed = nightly.run({"x=a": FAILED, "x=b": FAILED}, **PULL_REQUEST)
    assert list(nightly.compare(failed).flaky) == [
        FlakyCell(
            identity("x=a"),
            "x=a",
            "3 of 3 revisions that ran several times both passed and failed in the last 90 days",
        )
    ]
    passed = nightly.run({"x=a": PASSED, "x=b": PASSED}, **PULL_REQUEST)
    assert nightly.compare(passed).flaky == ()


def test_a_slower_metric_is_a_regression_with_its_history(nightly: Nightly) -> None:
    nightly.times(*NOISE)
    comparison = nightly.compare(nightly.run({"x=a": Tried(metrics={"time": 1.5})}, **PULL_REQUEST))
    (change,) = comparison.metrics
    assert (change.name, change.metric, change.unit, change.word) == ("x=a", "time", "s", "worse")
    assert (round(change.before, 2), change.after, change.percent) == (1.0, 1.5, "+50.2 %")
    assert change.history == [*NOISE, 1.5]
    assert change.sparkline[-1] == "█"
    assert change.bound.startswith("[0.9")
    assert change.is_outside
    assert comparison.remarks == "1 metric worse"


def test_a_faster_metric_is_an_improvement(nightly: Nightly) -> None:
    nightly.times(*NOISE)
    (change,) = nightly.compare(nightly.run({"x=a": Tried(metrics={"time": 0.5})}, **PULL_REQUEST)).metrics
    assert (change.word, change.percent) == ("better", "-49.9 %")


def test_noise_is_not_a_regression(nightly: Nightly) -> None:
    nightly.times(*NOISE)
    assert nightly.compare(nightly.run({"x=a": Tried(metrics={"time": 1.02})}, **PULL_REQUEST)).metrics == ()


def test_a_metric_is_compared_with_the_current_level_of_the_baseline(nightly: Nightly) -> None:
    nightly.times(*NOISE, *(2 * value for value in NOISE))
    (change,) = nightly.compare(nightly.run({"x=a": Tried(metrics={"time": 1.0})}, **PULL_REQUEST)).metrics
    assert (change.word, round(change.before, 1)) == ("better", 2.0)


def test_a_value_of_an_earlier_level_is_a_regression(nightly: Nightly) -> None:
    nightly.times(*NOISE, *(value / 2 for value in NOISE[:6]))
    (change,) = nightly.compare(nightly.run({"x=a": Tried(metrics={"time": 1.0})}, **PULL_REQUEST)).metrics
    assert (change.word, round(change.before, 1)) == ("worse", 0.5)


def test_among_many_metrics_noise_is_rarely_a_regression(nightly: Nightly) -> None:
    random = np.random.default_rng(7)

    def cells() -> dict[str, Tried]:
        return {f"x={number}": Tried(metrics={"time": 1 + 0.01 * random.standard_normal()}) for number in range(300)}

    for _ in range(15):
        nightly.run(cells())
    assert len(nightly.compare(nightly.run(cells(), **PULL_REQUEST)).metrics) <= 1


def test_the_bound_in_force_is_shown(nightly: Nightly) -> None:
    nightly.times(*NOISE)
    bound = Bound(lower=None, upper=9.0, mean=None, samples=None, method=Method.MANUAL)
    row = nightly.run({"x=a": Tried(metrics={"time": 1.5})}, **PULL_REQUEST)
    (change,) = nightly.compare(row, {(identity("x=a"), "time"): bound}).metrics
    assert (change.bound, change.is_outside) == ("[-, 9]", False)


def test_other_pull_requests_are_not_part_of_the_history(nightly: Nightly) -> None:
    nightly.times(*NOISE)
    for _ in range(3):
        row = nightly.run({"x=a": Tried(metrics={"time": 1.5})}, **PULL_REQUEST)
    (change,) = nightly.compare(row).metrics
    assert len(change.history) == len(NOISE) + 1


def test_runs_with_other_presets_are_not_part_of_the_history(nightly: Nightly) -> None:
    nightly.times(*NOISE)
    nightly.run({"x=a": Tried(metrics={"time": 9.0})}, presets=["slow"])
    (change,) = nightly.compare(nightly.run({"x=a": Tried(metrics={"time": 1.5})}, **PULL_REQUEST)).metrics
    assert 9.0 not in change.history


NO_VALUE = Tried(metrics={"time": None})


def test_a_metric_that_is_unknown_in_a_passing_cell_is_named_with_its_reason(nightly: Nightly) -> None:
    nightly.run({"x=a": Tried(metrics={"time": 2.0}), "x=b": Tried(metrics={"time": 1.0}), "x=c": NO_VALUE})
    nightly.run({"x=a": Tried(metrics={"time": 1.5}), "x=b": NO_VALUE, "x=c": NO_VALUE})
    failed = Tried(Verdict.FAILED, Cause.PRODUCT, metrics={"time": None})
    found = nightly.compare(nightly.run({"x=a": NO_VALUE, "x=b": failed, "x=c": NO_VALUE}))
    assert [f"{metric.name}: {metric}" for metric in found.lost] == ["x=a: time: 1.5 s → unknown: no such file"]
    assert (found.remarks, found.is_notable) == ("1 metric of the baseline unknown", True)
    assert SinceLastRun.from_json(json.loads(json.dumps(found.as_json()))) == found


def test_a_metric_that_only_other_runs_measured_is_not_lost(nightly: Nightly) -> None:
    nightly.run({"x=a": Tried(metrics={"time": 2.0})}, **PULL_REQUEST)
    nightly.run({"x=a": NO_VALUE})
    assert nightly.compare(nightly.run({"x=a": NO_VALUE})).lost == ()


def test_the_first_run_says_why_it_is_not_compared(nightly: Nightly) -> None:
    nightly.run({"x=a": PASSED}, presets=["smoke"])
    found = nightly.find(nightly.run({"x=a": PASSED}, presets=["nightly", "a"]))
    assert str(found) == (
        "not compared with the baseline: it has no earlier run of training with the presets a, nightly"
    )


def test_a_run_without_common_cells_says_why_it_is_not_compared(nightly: Nightly) -> None:
    nightly.run({"x=a": PASSED})
    found = nightly.find(nightly.run({"x=b": PASSED}))
    assert found == NotCompared("no earlier run of it has executed one of these cells")


def test_a_run_without_cells_is_not_compared(nightly: Nightly) -> None:
    assert nightly.find(nightly.run({})) is None


# The file

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
METRIC = st.builds(
    MetricChange, TEXT, TEXT, TEXT, TEXT, NUMBER, NUMBER, st.none() | st.booleans(), st.lists(NUMBER, max_size=21), TEXT
)


def empty() -> SinceLastRun:
    return SinceLastRun.of((), (), "r", START, has_more_runs=False, compared=1, new=0, gone=None)


@given(st.lists(st.builds(FlakyCell, TEXT, TEXT, TEXT)), st.lists(METRIC))
def test_the_findings_are_in_the_file(flaky: list[FlakyCell], metrics: list[MetricChange]) -> None:
    comparison = empty().with_findings(flaky, metrics)
    assert SinceLastRun.from_json(json.loads(json.dumps(comparison.as_json()))) == comparison


@given(METRIC)
def test_every_change_of_a_metric_has_texts(change: MetricChange) -> None:
    assert len(change.sparkline) == len(change.history)
    assert change.percent == "" or change.percent.endswith(" %")


def test_the_reason_is_in_the_file(tmp_path: Path) -> None:
    since_last_run.write(tmp_path, NotCompared("x" * 1000))
    assert since_last_run.find(tmp_path) == NotCompared("x" * 497 + "...")
    assert since_last_run.read(tmp_path) is None


@pytest.mark.parametrize("metric", [{}, {"before": "x"}, {"before": 1e999}, {"history": [float("nan")]}, 5])
def test_a_damaged_metric_is_no_comparison(tmp_path: Path, metric: Any) -> None:
    whole = MetricChange("c", "n", "m", "s", 1.0, 2.0, None, [1.0]).as_json()
    damaged = {**whole, **metric} if isinstance(metric, dict) and metric else metric
    (tmp_path / "since_last_run.json").write_text(json.dumps({**empty().as_json(), "metrics": [damaged]}))
    assert since_last_run.find(tmp_path) is None


@pytest.mark.parametrize(
    ("values", "bars"), [([], ""), ([3, 3], "▅▅"), ([1, 2, 3], "▁▄█"), ([-1e308, 1e308], "▁█"), ([0, 0], "▅▅")]
)
def test_a_history_is_a_row_of_bars(values: list[float], bars: str) -> None:
    assert sparkline(values) == bars


def test_a_first_run_is_recorded_without_numpy() -> None:
    code = "import sys; from toolbox.records.results import recording, run_comparison; sys.exit('numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=places.builtin_root(), check=True)
