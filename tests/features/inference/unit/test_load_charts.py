"""The charts of loads in `report.html`: what they show, and that no figure of a target can break the page."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import lxml.html
import pytest

from tests.browser.runs import Run
from tests.features.inference.fakes.load_results import results, step, times
from tests.features.inference.fakes.load_runs import loaded, write_load
from toolbox.features.inference import load_charts
from toolbox.features.inference.load_charts import LoadChart
from toolbox.ground.model.events import MetricMeasured
from toolbox.records.runs.run_state import RunState
from toolbox.reports import run_page
from toolbox.reports.page import metrics_table, step_details
from toolbox.reports.page.sections import PageSections


def run_of(directory: Path, *contents: object) -> RunState:
    """Return a run with a load for each of these contents of `load.json`."""
    run = Run(directory)
    for number, content in enumerate(contents):
        write_load(run.cell(config=number, test="load"), content)
    return run.write()


def charts(summary: RunState) -> list[LoadChart]:
    """Return the charts of a run."""
    cells = step_details.collect(summary, PageSections(summary)).cells
    return list(load_charts.make(cells, summary.directory, summary.secrets_left)[0])


def chart(directory: Path, *steps: dict[str, Any], **objectives: float) -> LoadChart:
    """Return the chart of the steps of a cell."""
    (only,) = charts(run_of(directory / "r-1", results(*steps, **objectives)))
    return only


def test_the_panels_show_times_and_throughput_with_units_and_objectives(tmp_path: Path) -> None:
    steps = [step(rate, latency=rate / 10, goodput=1.0) for rate in (4, 1, 2)]
    shown = chart(tmp_path, *steps, first_token=0.05, end_to_end=100)
    (group,) = shown.groups
    assert (group.axis, group.has_goodput) == ("Requests per second", True)
    assert [panel.title for panel in group.panels] == [
        "First token, ms",
        "Between tokens, ms",
        "End to end, ms",
        "Requests per second",
        "Tokens per second",
    ]
    first, _, end, *_ = group.panels
    assert first.description == (
        "Requests per second from 1 to 4; p50 from 20 ms to 80 ms; p95 from 40 ms to 160 ms; the objective is 50 ms"
    )
    assert [text for _, text in first.ticks_x] == ["0", "1", "2", "3", "4"]
    assert first.objective is not None
    assert first.objective[1] == "objective 50 ms"
    assert [mark.text for mark in first.lines[1].marks] == [
        "rate=1: p95 40 ms",
        "rate=2: p95 80 ms",
        "rate=4: p95 160 ms",
    ]
    assert end.objective is None
    assert shown.remarks == ["Objectives that are far above a chart: end to end 100000 ms."]


def test_the_table_has_the_samples_behind_each_time(tmp_path: Path) -> None:
    shown = chart(tmp_path, step(samples=12, errors=3, error_messages=[{"message": "full", "requests": 3}]))
    (row,) = shown.rows
    throughput = ["12", "3 (25.0%)", "4", "4", "-", "80"]
    assert row.numbers == [*throughput, "20", "-", "12", "2", "-", "12", "100", "-", "12", "0.5"]
    assert row.errors == ["3 requests: full"]


def test_refused_and_resent_requests_are_named_below_the_table(tmp_path: Path) -> None:
    (row,) = chart(tmp_path, step(refused=3, resent=1)).rows
    assert [remark.partition(" (")[0].partition(",")[0] for remark in row.remarks] == [
        "3 requests refused",
        "1 request sent twice",
    ]


def test_rates_and_concurrencies_have_charts_of_their_own(tmp_path: Path) -> None:
    shown = chart(tmp_path, step(1), step(2), *(step(None, concurrency=number) for number in (1, 8, 64)))
    assert [group.axis for group in shown.groups] == ["Requests per second", "Requests at the same time (log)"]
    assert len({panel.id for group in shown.groups for panel in group.panels}) == 10


def test_a_rate_or_a_concurrency_alone_is_only_in_the_table(tmp_path: Path) -> None:
    shown = chart(tmp_path, step(4), step(None, concurrency=8))
    assert (shown.groups, [row.name for row in shown.rows]) == ([], ["rate=4", "concurrency=8"])


def test_the_table_of_metrics_has_those_of_loads_only_with_bounds(tmp_path: Path) -> None:
    summary = run_of(tmp_path / "r-1", results(step(4)))
    (card,) = step_details.collect(summary, PageSections(summary)).cells
    names = ("ready_seconds", "goodput_at_rate_4", "end_to_end_p50_at_rate_4")
    measured = tuple(MetricMeasured(card.step.step, name, 1.0, "s") for name in names)
    bounds = {"end_to_end_p50_at_rate_4": {"lower": 0, "upper": 2}}
    shown = replace(card, step=replace(card.step, metrics=measured), bounds=bounds)
    (load,) = charts(summary)
    table = metrics_table.make([shown], load.metrics)
    assert table is not None
    assert (table.names, table.elsewhere) == (["ready_seconds", "end_to_end_p50_at_rate_4"], 1)


def test_a_number_that_is_missing_is_a_gap(tmp_path: Path) -> None:
    few = [step(rate, samples=12 if rate == 3 else 200) for rate in (1, 2, 3, 4)]
    panel = chart(tmp_path, *few).groups[0].panels[0]
    assert [len(points.split()) for points in panel.lines[0].points] == [4]
    assert [len(points.split()) for points in panel.lines[1].points] == [2, 1]


@pytest.mark.parametrize(
    "steps",
    [
        [step(samples=0)],
        [step(4, latency=0)],
        [step(0), step(5e-324), step(1e-300)],
        [step(1e300, latency=1e300), step(1), step(1e9, latency=1e9)],
        [step(1, latency=1e-9), step(2, latency=1e8)],
        [step(rate, latency=rate) for rate in range(1, 201)],
        [step(1, first_token=times(5e-324)), step(2, tokens_per_second=1.7e308)],
        [step(1, name="<b>"), {**step(1), "rate": None}],
    ],
    ids=lambda steps: steps[0]["name"],
)
def test_no_figures_break_the_page(tmp_path: Path, steps: list[dict[str, Any]]) -> None:
    page = run_page.render(run_of(tmp_path / "r-1", results(*steps, first_token=1e-320, end_to_end=1e308)))
    section = re.search(r'<section aria-labelledby="section-load">.*?</section>', page, re.DOTALL)
    assert section is not None
    assert not re.search(r'="[^"<]*\b(?:nan|inf)\b[^"<]*"', section[0])
    positions = re.findall(r'(?:points|c?x|c?y)="([-\d., e]*)"', section[0])
    numbers = [float(number) for text in positions for number in re.split("[ ,]", text) if number]
    assert numbers
    assert all(math.isfinite(number) and abs(number) < 1000 for number in numbers)


@pytest.mark.parametrize("content", ["", [], {"steps": []}, {"steps": [{}]}, {"step": float("nan")}, "x" * 100])
def test_a_file_that_is_not_a_load_is_not_shown(tmp_path: Path, content: object) -> None:
    page = run_page.render(run_of(tmp_path / "r-1", content))
    assert 'id="section-load"' not in page


def test_a_file_with_a_secret_or_behind_a_link_is_not_read(tmp_path: Path) -> None:
    summary = run_of(tmp_path / "r-1", results(step()), results(step()))
    first, second = sorted(summary.directory.glob("*/*/attempt-1/files/load.json"))
    second.rename(tmp_path / "load.json")
    second.symlink_to(tmp_path / "load.json")
    assert len(charts(summary)) == 1
    secret = str(first.relative_to(summary.directory))
    assert charts(replace(summary, secrets_left=frozenset({secret}))) == []


def test_a_page_has_a_limited_number_of_loads_and_steps(tmp_path: Path) -> None:
    many = [results(*(step(rate) for rate in range(1, 81)))] + [results(step())] * load_charts.MAX_CELLS
    page = run_page.render(run_of(tmp_path / "r-1", *many))
    assert "The page has no room for 20 more steps" in page
    assert "The page has no room for the loads of 1 more cells" in page


def test_each_chart_is_an_image_with_a_title_and_a_description(tmp_path: Path) -> None:
    page = lxml.html.document_fromstring(run_page.render(loaded(tmp_path / "r-1")))
    images = [each for each in page.iter("svg") if each.get("role") == "img"]
    texts = {each.get("id"): each.text for each in page.iter("title", "desc")}
    assert len(images) == 25
    for image in images:
        assert all(texts[name] for name in str(image.get("aria-labelledby")).split())
