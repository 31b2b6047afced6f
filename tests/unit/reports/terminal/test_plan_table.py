"""The plan of a matrix is shown as a table."""

import datetime as dt
import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from tests.fakes.backend import Machines
from tests.unit.matrix.conftest import TODAY, Planned
from tests.unit.matrix.conftest import planned as planned  # noqa: PLC0414  # imports the fixture
from toolbox.ground.model.prices import Price
from toolbox.matrix import expected_costs
from toolbox.matrix.plan import Selection
from toolbox.records.results.records import EarlierTime
from toolbox.reports.terminal import plan_table

XFAIL = {"reason": "#7", "owner": "me", "expires": TODAY}
Shown = Callable[..., list[str]]


@pytest.fixture
def shown(planned: Planned) -> Shown:
    """Return a function that shows the plan of a matrix, and returns the lines without trailing space.

    `earlier` contains the names of targets on which each cell took 5 minutes in 12 earlier runs.
    """

    def call(
        block: dict[str, Any], *targets: Any, width: int = 200, earlier: Sequence[str] = (), **fields: Any
    ) -> list[str]:
        stream = io.StringIO()
        plan = planned(block, *targets, **fields)
        times = {(cell.id, name): EarlierTime(300.0, 12) for cell in plan.cells for name in earlier}
        costs = expected_costs.of_plan(plan, times, currency="USD")
        plan_table.show(plan, costs, Console(file=stream, width=width))
        return [line.rstrip() for line in stream.getvalue().splitlines()]

    return call


def cells(line: str) -> list[str]:
    """Return the cells of a row without the id."""
    return [part for part in line.split("  ") if part][1:]


def test_each_cell_is_a_row_with_settings_and_plan(shown: Shown) -> None:
    machines = Machines()
    settings = [{"when": {"x": "b"}, "resources": {"chip": 4}, "timeouts": {"run": 60, "silence": 5}}]
    lines = shown(
        {"axes": {"x": ["a", "b"], "model.size": [7]}, "settings": settings},
        machines.target("one"),
        machines.target("two"),
        model={"size": 1},
    )
    assert lines[0].split() == ["id", "x", "size", "target", "takes", "time", "limits", "time", "cost", "expected"]
    assert [[part.strip() for part in cells(line)] for line in lines[1:3]] == [
        ["a", "7", "one or two", "-", "3600 s", "at most 1 h 0 min", "unknown", "passes"],
        ["b", "7", "one or two", "4 chip", "60 s (5 s silent)", "at most 1 min 0 s", "unknown", "passes"],
    ]
    assert lines[-1] == "2 cells: 2 to run"


def test_expected_times_and_costs_are_shown_for_each_cell_and_in_total(shown: Shown) -> None:
    machines = Machines()
    tpu = replace(machines.target("tpu"), price=Price(0.64, "listed"))
    far = replace(machines.target("far"), price=Price(None, "no entry"))
    block = {
        "axes": {"x": ["a", "b", "c"]},
        "target": "tpu",
        "settings": [{"when": {"x": "b"}, "target": "far"}],
        "skip": [{"when": {"x": "c"}, "reason": "#7"}],
    }
    lines = shown(block, tpu, far, earlier=["tpu"])
    assert [[part.strip() for part in cells(line)][-3:-1] for line in lines[1:4]] == [
        ["5 min 0 s (12 runs)", "0.053 USD"],
        ["at most 1 h 0 min", "unknown"],
        ["-", "-"],
    ]
    assert "note: the cost on the target `far` is unknown: no entry" in lines
    assert lines[-2] == (
        "expected: 5 min 0 s and at most 1 h 0 min for 1 cell without earlier runs on targets, "
        "0.053 USD, and an unknown cost for 1 cell"
    )


def test_a_cell_not_expected_to_pass_shows_the_reason(shown: Shown) -> None:
    block = {
        "axes": {"x": ["a", "b", "c"]},
        "skip": [{"when": {"x": "a"}, "reason": "too slow"}],
        "xfail": [
            {"when": {"x": "b"}, **XFAIL, "tests": ["fit", "e*"]},
            {"when": {"x": "c"}, **XFAIL, "expires": dt.date(2020, 1, 1)},
        ],
    }
    lines = shown(block)
    assert [cells(line)[-1].strip() for line in lines[1:4]] == [
        "skipped", "fit, e* fails until 2026-06-15 (me): #7", "passes",
    ]  # fmt: skip
    assert "left out: x=a: too slow" in lines
    assert "note: x=c: expected to fail until 2020-01-01 (me: #7): this entry has expired" in lines
    assert lines[-1] == "3 cells: 2 to run, 1 skipped"


def test_cells_that_are_left_out_for_the_same_reason_share_a_line(shown: Shown) -> None:
    axes = {"x": ["a", "b"], "n": list(range(4))}
    skip = [{"when": {"x": "a", "n": 0}, "reason": "no licence"}, {"when": {"x": "b"}, "reason": "no GPU"}]
    more = [{"when": {"x": "a", "n": 1}, "reason": "no GPU"}, {"when": {"x": "a", "n": 2}, "reason": "no GPU"}]
    lines = shown({"axes": axes, "skip": [*skip, *more]}, width=60)
    assert [line for line in lines if line.startswith("left out")] == [
        "left out: x=a,n=0: no licence",
        "left out: x=a,n=1; x=a,n=2; x=b,n=0; x=b,n=1; x=b,n=2; and 1 more: no GPU",
    ]


def test_entries_without_effect_are_shown_as_notes(shown: Shown) -> None:
    lines = shown({"axes": {"x": ["a"]}, "exclude": [{"x": "z"}]})
    assert "note: `matrix.exclude[0]` matches no combination: {'x': 'z'}" in lines


@pytest.mark.parametrize(
    ("selection", "closing"),
    [
        (Selection("x=a"), "1 cell, of 2 in the matrix: 1 to run"),
        (Selection(shard=(3, 3)), "0 cells, of 2 in the matrix: nothing to run"),
    ],
)
def test_a_selection_shows_the_size_of_the_matrix(shown: Shown, selection: Selection, closing: str) -> None:
    assert shown({"axes": {"x": ["a", "b"]}}, selection=selection)[-1] == closing


def test_hostile_values_are_shown_as_text(shown: Shown) -> None:
    lines = shown({"axes": {"x": ["\x1b[2Jred", "[bold]b[/bold]"]}, "workload": {"command": "true"}})
    assert "\x1b" not in "".join(lines)
    assert "[bold]b[/bold]" in lines[2]


def test_a_narrow_terminal_shows_all_columns(shown: Shown) -> None:
    text = "".join(shown({"axes": {"x": ["a" * 30, "b" * 30]}}, width=60))
    assert (text.count("a" * 5) >= 4, text.count("b" * 5) >= 4) == (True, True)
    assert "…" not in text
