"""Reports show what changed since the last run, also if the store or the file contains hostile texts."""

from __future__ import annotations

import io
from pathlib import Path

import lxml.html

from tests.browser.runs import HOSTILE, Run
from tests.fakes.history import START
from toolbox.ground.model.verdicts import Verdict
from toolbox.records.results import since_last_run
from toolbox.records.results.flaky_and_moved import FlakyCell, LostMetric, MetricChange
from toolbox.records.results.since_last_run import Kind, SinceLastRun, VerdictChange
from toolbox.records.runs.run_state import RunState
from toolbox.reports import run_page
from toolbox.reports.terminal import live_view, run_table

TERMINAL = "\x1b[2J\n\u202e\x9b31m::error::x"


def compared(directory: Path, *changes: VerdictChange, run: str = "r0", new: int = 0) -> RunState:
    """Write a run with a failed cell and its comparison, and return the state of the run."""
    written = Run(directory)
    written.cell(Verdict.FAILED, x="a")
    cells, tests = ([change for change in changes if bool(change.test) is is_test] for is_test in (False, True))
    comparison = SinceLastRun.of(cells, tests, run, START, has_more_runs=False, compared=1, new=new, gone=None)
    state = written.write(Verdict.FAILED)
    since_last_run.write(directory, comparison)
    return state


def section(state: RunState) -> str:
    """Return the text of the section in the report; empty if the report has none."""
    page = lxml.html.document_fromstring(run_page.render(state))
    assert page.findall(".//img") == []
    found = page.find(".//section[@aria-labelledby='since']")
    return " ".join("".join(map(str, found.itertext())).split()) if found is not None else ""


def terminal(state: RunState) -> str:
    stream = io.StringIO()
    with live_view.view(stream) as view:
        run_table.show(state, view)
    return stream.getvalue()


def test_hostile_texts_are_text(tmp_path: Path) -> None:
    texts = dict.fromkeys(("name", "before", "after", "run", "before_cause", "cause", "message"), HOSTILE + TERMINAL)
    cell = VerdictChange(Kind.NEWLY_FAILING, HOSTILE, **texts)
    test = VerdictChange(Kind.NEWLY_PASSING, HOSTILE, test=HOSTILE + TERMINAL, **texts)
    state = compared(tmp_path / "r-1", cell, test, run=HOSTILE + TERMINAL)
    assert f"Since the run {HOSTILE[:50]}" in section(state)
    assert not {"\x1b", "\x9b", "\u202e"} & set(run_page.render(state) + terminal(state))
    (line,) = [line for line in terminal(state).splitlines() if line.startswith("since the run")]
    assert len(line) <= 500


def test_a_cell_that_the_page_does_not_have_is_named_without_a_link(tmp_path: Path) -> None:
    state = compared(tmp_path / "r-1", VerdictChange(Kind.NEWLY_PASSING, "elsewhere", "x=z", "failed", "passed", "r0"))
    assert section(state).endswith("newly passing x=z failed → passed")


def test_many_changes_are_listed_in_part(tmp_path: Path) -> None:
    changes = [
        VerdictChange(Kind.NEWLY_FAILING, f"c{cell}", f"x={cell}", "passed", "failed", "r0", test=f"test {test}")
        for cell in range(50)
        for test in range(8)
    ]
    shown = section(compared(tmp_path / "r-1", *changes))
    assert "400 tests newly failing" in shown
    assert "and 3 more" in shown
    assert shown.endswith("And 10 more, in since_last_run.json.")


def test_new_cells_alone_are_news_for_the_report_and_not_for_the_terminal(tmp_path: Path) -> None:
    state = compared(tmp_path / "r-1", new=2)
    assert section(state).endswith("UTC: 2 cells without an earlier result.")
    assert "since the run" not in terminal(state)


def test_without_news_there_is_no_section(tmp_path: Path) -> None:
    assert section(compared(tmp_path / "r-1")) == ""


def test_flaky_cells_and_metrics_that_moved_are_listed_as_text(tmp_path: Path) -> None:
    state = compared(tmp_path / "r-1")
    lost = LostMetric("c", HOSTILE, "time", "s", 1.5, HOSTILE)
    metric = MetricChange("c", HOSTILE, "time", "s", 1.0, 1.5, False, [1.0, 1.1, 1.5], "[0.9, 1.1]", is_outside=True)
    comparison = since_last_run.read(state.directory)
    assert comparison is not None
    since_last_run.write(
        state.directory, comparison.with_findings([FlakyCell("c", HOSTILE, "random")], [metric], [lost])
    )
    shown = section(state)
    assert "Against the baseline: 1 flaky cell; 1 metric worse; 1 metric of the baseline unknown." in shown
    assert f"flaky: {HOSTILE[:50]}" in shown
    assert "time: 1.5 s → unknown: " in shown
    assert "time: 1 s → 1.5 s (+50 %, worse), out of [0.9, 1.1] ▁▂█" in shown
