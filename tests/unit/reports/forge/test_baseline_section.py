"""The Markdown of a run says what is new, known, flaky and fixed, and which metrics moved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.history import START
from tests.unit.reports.forge.test_github import HOSTILE, cell, is_whole, outside_of_code, shown, summary, texts
from toolbox.ground.model.verdicts import Verdict
from toolbox.records.results import since_last_run
from toolbox.records.results.flaky_and_moved import FlakyCell, LostMetric, MetricChange
from toolbox.records.results.since_last_run import Kind, NotCompared, SinceLastRun, VerdictChange
from toolbox.records.runs.run_state import RunState
from toolbox.reports.forge import github


def change(kind: Kind, name: str, before: str = "passed", after: str = "failed", test: str = "") -> VerdictChange:
    return VerdictChange(kind, f"id of {name}", name, before, after, "r0", test=test)


def metric(name: str = "x=a", *, is_better: bool = False) -> MetricChange:
    return MetricChange(name, name, "time", "s", 1.0, 1.5, is_better, [1.0, 1.1, 1.5], "[0.9, 1.1]", is_outside=True)


def compared(directory: Path, *changes: VerdictChange, flaky: int = 0, metrics: int = 0, text: str = "") -> RunState:
    """Write a comparison, and return a run with it."""
    cells, tests = ([each for each in changes if bool(each.test) is is_test] for is_test in (False, True))
    comparison = SinceLastRun.of(
        cells, tests, f"r0{text}", START, has_more_runs=False, compared=1, new=0, gone=None
    ).with_findings(
        [FlakyCell(f"id of f{number}", f"f{number}{text}", f"random{text}") for number in range(flaky)],
        [replace(metric(f"m{number}{text}"), unit=f"s{text}", bound=f"[1]{text}") for number in range(metrics)],
    )
    since_last_run.write(directory, comparison)
    return summary(cell("a", Verdict.FAILED), directory=directory)


def rows(run: RunState) -> list[list[str]]:
    """Return the rows of the tables of the section."""
    return [texts(row, "td") for row in shown(github.comment(run)).iter("tr")][:-2]


def test_new_known_flaky_and_fixed_results_are_listed_in_this_order(tmp_path: Path) -> None:
    run = compared(
        tmp_path,
        change(Kind.NEWLY_PASSING, "x=fixed", "failed", "passed"),
        change(Kind.KNOWN_FAILURE, "x=known", "failed"),
        change(Kind.NEWLY_FAILING, "f0"),
        change(Kind.NEWLY_FAILING, "x=new"),
        change(Kind.NEWLY_FAILING, "x=new", test="test_loss"),
        flaky=2,
    )
    assert rows(run)[1:] == [
        ["new failure", "x=new", "passed → failed"],
        ["new failure", "x=new test_loss", "passed → failed"],
        ["flaky: new failure", "f0", "passed → failed; random"],
        ["known failure", "x=known", "failed → failed since r0 or earlier"],
        ["fixed", "x=fixed", "failed → passed"],
        ["flaky", "f1", "random"],
    ]
    text = shown(github.comment(run)).text_content()
    assert (
        "2 cells newly failing; 1 cell newly passing; 1 test newly failing; 1 cell failing as before; 2 flaky" in text
    )


def test_metrics_that_moved_have_their_history_and_bound(tmp_path: Path) -> None:
    found = rows(compared(tmp_path, metrics=1))
    assert found[-1] == ["worse", "time", "m0", "1 s", "1.5 s", "+50 %", "▁▂█", "out of [1]"]


def test_a_run_that_cannot_be_compared_says_why(tmp_path: Path) -> None:
    since_last_run.write(tmp_path, NotCompared("the baseline is empty"))
    found = shown(github.comment(summary(cell("a"), directory=tmp_path)))
    assert "not compared with the baseline: the baseline is empty" in texts(found, "code")


def test_a_run_without_a_comparison_has_no_section(tmp_path: Path) -> None:
    assert "baseline" not in github.comment(summary(cell("a"), directory=tmp_path))


@pytest.mark.parametrize("limit", [github.FEWEST_BYTES, 65_536])
def test_many_changes_are_counted_and_leave_room_for_the_failures(tmp_path: Path, limit: int) -> None:
    changes = [change(Kind.NEWLY_FAILING, f"x={number} {'é' * 100}") for number in range(1000)]
    markdown = github.render(compared(tmp_path, *changes, metrics=1000), limit=limit)
    found = shown(markdown)
    assert len(markdown.encode()) <= limit
    assert is_whole(markdown)
    listed = sum(text == "new failure" for text in texts(found, "td"))
    assert 0 < listed <= 30
    assert f"and {1000 - listed} more" in texts(found, "td")
    assert len(texts(found, "summary")) == 1


def test_hostile_texts_are_only_in_code(tmp_path: Path) -> None:
    plain, hostile = (
        shown(
            github.comment(
                compared(tmp_path, change(Kind.NEWLY_FAILING, f"x{text}", test=text), flaky=1, metrics=1, text=text)
            )
        )
        for text in ("", HOSTILE)
    )
    assert list(filter(str.strip, outside_of_code(hostile))) == list(filter(str.strip, outside_of_code(plain)))
    assert {str(each.tag) for each in hostile.iter()} == {str(each.tag) for each in plain.iter()}


def test_a_metric_that_is_unknown_now_is_listed_with_the_reason(tmp_path: Path) -> None:
    compared(tmp_path)
    comparison = since_last_run.read(tmp_path)
    assert comparison is not None
    lost = LostMetric("id", "x=a", "time", "s", 1.5, "<no> such file")
    since_last_run.write(tmp_path, comparison.with_findings([], [], [lost]))
    run = summary(cell("a"), directory=tmp_path)
    assert ["unknown", "time", "x=a", "1.5 s", "<no> such file", "", "", ""] in rows(run)
