"""The chart of a notebook shows the use of resources and the cells on one time axis, whatever a target has written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.browser.runs import HOSTILE, Run
from tests.features.notebooks.fakes import notebook_results
from tests.features.notebooks.fakes.notebook_results import STARTED, notebook
from toolbox.features.notebooks import notebook_charts
from toolbox.features.notebooks.notebook_charts import Chart, NotebookPanel, NotebookPanels
from toolbox.features.notebooks.worker.notebook_results import FailedCell, TestOutcome
from toolbox.reports import run_page

FAILED = FailedCell(2, "1 / 0", "ZeroDivisionError: division by zero", "Traceback ...")


def panels(directory: Path, **options: object) -> list[NotebookPanel]:
    """Return the notebooks of a cell with one notebook, written with these options."""
    run = Run(directory / "r-1")
    attempt = run.cell(runtime="a", machine="b")
    notebook_results.write(attempt, "fit", notebook(), **options)  # type: ignore[arg-type]
    summary = run.write()
    return NotebookPanels(summary).of(summary.cells[0])


def chart(directory: Path, **options: object) -> Chart:
    """Return the chart of the only notebook."""
    (panel,) = panels(directory, **options)
    assert panel.chart is not None
    return panel.chart


def test_lanes_show_the_highest_use_in_words(tmp_path: Path) -> None:
    found = {lane.title: lane.highest for lane in chart(tmp_path).lanes}
    assert found == {
        "CPU": [("", "up to 199%")],
        "Memory": [("", "up to 173.0 MB")],
        "GPU 0": [("busy", "up to 100%"), ("memory", "up to 4.0 GB")],
    }


def test_bars_and_lines_share_the_time_axis(tmp_path: Path) -> None:
    found = chart(tmp_path, seconds=(1.0, 3.0), samples=f"time,cpu_percent\n{STARTED},0\n{STARTED + 1},100\n")
    assert [(bar.left, bar.width) for bar in found.bars] == [(0, 25), (25, 75)]
    assert found.lanes[0].lines[0].points == "0,97.0 250,3.0"
    assert found.ticks == ["0.0 s", "1.0 s", "2.0 s", "3.0 s", "4.0 s"]


def test_a_failed_cell_is_named_and_has_its_own_mark(tmp_path: Path) -> None:
    found = chart(tmp_path, outcome=TestOutcome.FAILED, failed=FAILED)
    assert [bar.mark.symbol for bar in found.bars] == ["\u2713", "\u2717", "\u2713"]
    assert found.bars[1].title == "cell 2: failed, 2.00 s, CPU time 1.80 s, peak memory 209.7 MB"
    assert found.rows[0].name == "cell 2"
    assert "cell 2 failed" in found.description


def test_ten_thousand_cells_keep_the_failed_and_the_slowest(tmp_path: Path) -> None:
    found = chart(tmp_path, seconds=[0.001] * 9_998 + [5.0], outcome=TestOutcome.FAILED, failed=FAILED)
    assert len(found.bars) == 400
    assert {"cell 2", "cell 9999"} <= {row.name for row in found.rows}
    assert len(found.rows) + found.more_rows == 9_999


@pytest.mark.parametrize("samples", [None, "", "x", "time,cpu_percent\nnan,nan\n", "time,cpu_percent\n1e300,1e300\n"])
def test_broken_samples_leave_the_cells(tmp_path: Path, samples: str | None) -> None:
    found = chart(tmp_path, samples=samples if samples != "" else "\n")
    assert found.lanes == []
    assert len(found.bars) == 3


def test_cells_outside_of_the_time_of_the_notebook_have_no_bar(tmp_path: Path) -> None:
    run = Run(tmp_path / "r-1")
    attempt = run.cell(runtime="a", machine="b")
    notebook_results.write(attempt, "fit", notebook(), samples=None)
    results = attempt / "files/results.jsonl"
    document = json.loads(results.read_text())
    document["notebook"]["cells"][0]["started"] = 5.0
    document["notebook"]["cells"][1]["seconds"] = 1e9
    results.write_text(json.dumps(document) + "\n")
    summary = run.write()
    found = NotebookPanels(summary).of(summary.cells[0])[0].chart
    assert found is not None
    assert all(0 <= bar.left <= bar.left + bar.width <= 100.01 for bar in found.bars)
    assert len(found.bars) == 2


def test_samples_that_are_a_link_are_not_read(tmp_path: Path) -> None:
    run = Run(tmp_path / "r-1")
    attempt = run.cell(runtime="a", machine="b")
    notebook_results.write(attempt, "fit", notebook(), samples=None)
    (tmp_path / "outside.csv").write_text(notebook_results.usage(3.5))
    (attempt / "files/samples/fit.csv").symlink_to(tmp_path / "outside.csv")
    summary = run.write()
    found = NotebookPanels(summary).of(summary.cells[0])[0].chart
    assert found is not None
    assert found.lanes == []


def test_a_notebook_without_a_result_is_listed(tmp_path: Path) -> None:
    run = Run(tmp_path / "r-1")
    attempt = run.cell(runtime="a", machine="b")
    notebook_results.write(attempt, "fit", notebook())
    (attempt / "files/results.jsonl").unlink()
    summary = run.write()
    (panel,) = NotebookPanels(summary).of(summary.cells[0])
    assert (panel.name, panel.mark.word, panel.chart) == ("fit", "without a result", None)


def test_a_page_has_a_limited_number_of_charts(tmp_path: Path) -> None:
    run = Run(tmp_path / "r-1")
    attempt = run.cell(runtime="a", machine="b")
    for name in ("a", "b", "c"):
        notebook_results.write(attempt, name, notebook())
    summary = run.write()
    limited = NotebookPanels(summary, charts=2)
    assert [panel.chart is not None for panel in limited.of(summary.cells[0])] == [True, True, False]


def test_names_and_messages_of_a_target_are_escaped(tmp_path: Path) -> None:
    run = Run(tmp_path / "r-1")
    attempt = run.cell(runtime="a", machine="b")
    notebook_results.write(attempt, "fit", notebook())
    results = attempt / "files/results.jsonl"
    document = json.loads(results.read_text())
    document["name"] = document["message"] = HOSTILE
    results.write_text(json.dumps(document) + "\n")
    text = run_page.render(run.write())
    assert "&lt;script&gt;document.title" in text
    assert "<script>document.title" not in text


def test_the_kinds_of_lines_have_colours_in_the_style_sheet() -> None:
    style = (Path(notebook_charts.__file__).parent / "assets/notebook_panels.css").read_text()
    assert all(f".usage .label i.{kind}" in style for kind in ("first", "second"))


def test_the_axis_begins_with_the_first_cell(tmp_path: Path) -> None:
    run = Run(tmp_path / "r-1")
    attempt = run.cell(runtime="a", machine="b")
    samples = f"time,cpu_percent\n{STARTED + 8},50\n{STARTED + 9},100\n"
    notebook_results.write(attempt, "fit", notebook(), seconds=(1.0, 3.0), samples=samples)
    results = attempt / "files/results.jsonl"
    document = json.loads(results.read_text())
    document["seconds"] = 20.0  # the kernel takes seven seconds to start
    for cell in document["notebook"]["cells"]:
        cell["started"] += 7
    results.write_text(json.dumps(document) + "\n")
    summary = run.write()
    found = NotebookPanels(summary).of(summary.cells[0])[0].chart
    assert found is not None
    assert found.ticks[-1] == "4.0 s"
    assert [(bar.left, bar.width) for bar in found.bars] == [(0, 25), (25, 75)]
    assert found.lanes[0].lines[0].points == "250,50.0 500,3.0"


def test_one_sample_is_a_dot(tmp_path: Path) -> None:
    found = chart(tmp_path, samples=f"time,cpu_percent\n{STARTED},100\n")
    assert found.lanes[0].lines[0].points == "0,3.0 0,3.0"


def test_the_marks_of_a_short_axis_differ(tmp_path: Path) -> None:
    assert chart(tmp_path, seconds=(0.1, 0.2)).ticks == ["0.000 s", "0.075 s", "0.150 s", "0.225 s", "0.300 s"]
