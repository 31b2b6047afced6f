"""The progress of a matrix is derived from its events."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from toolbox.ground.model.events import (
    AttemptSubmitted,
    AttemptWaiting,
    DurationsExpected,
    MatrixPlanned,
    RunStarted,
    StepFinished,
    StepKind,
    StepStarted,
)
from toolbox.ground.model.verdicts import Verdict
from toolbox.reports.terminal import progress
from toolbox.reports.terminal.progress import Progress


class Clock:
    """A clock that is set by hand."""

    now = 100.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return the clock that replaces the monotonic time of `progress`."""
    clock = Clock()
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock.now)  # type: ignore[attr-defined]
    return clock


def planned(cells: int, *, jobs: int = 1, done: int = 0, expected: Mapping[str, float] | None = None) -> Progress:
    """Return the progress of a matrix that has been planned."""
    found = Progress()
    found.add(RunStarted("r-1", "p", "/runs/r-1", ()))
    found.add(DurationsExpected("000__test", expected or {}))
    found.add(MatrixPlanned("000__test", cells, jobs, done))
    return found


def begin(found: Progress, *names: str) -> None:
    """Report that cells have started."""
    for name in names:
        found.add(StepStarted(f"000__test/{name}", name, StepKind.CELL))
        found.add(AttemptSubmitted(f"000__test/{name}", 1, name, "local"))


def end(found: Progress, name: str, verdict: Verdict = Verdict.PASSED, seconds: float = 10.0) -> None:
    """Report that a cell has ended."""
    found.add(StepFinished(f"000__test/{name}", name, StepKind.CELL, verdict, None, "", seconds))


@pytest.mark.usefixtures("clock")
def test_waiting_running_and_done_cells_are_counted() -> None:
    found = planned(6, jobs=2)
    begin(found, "a", "b", "c", "d")
    end(found, "a")
    end(found, "b", Verdict.FAILED)
    assert found.headline() == "cells: 2 of 6 done, 1 failed, 2 running, 2 waiting, about 20 s left"


def test_cells_of_earlier_sessions_count_as_done() -> None:
    found = planned(4, done=3)
    begin(found, "d")
    assert found.headline() == "cells: 3 of 4 done, 1 running"


def test_nothing_is_shown_without_a_matrix_and_after_its_end() -> None:
    assert not Progress().is_shown
    found = planned(1)
    begin(found, "a")
    assert found.is_shown
    end(found, "a")
    assert not found.is_shown


@pytest.mark.usefixtures("clock")
def test_the_estimate_uses_the_times_of_earlier_runs() -> None:
    found = planned(3, expected={"a": 60.0, "b": 600.0, "c": 3000.0})
    assert found.headline().endswith("3 waiting, about 1 h 1 min left")


def test_the_estimate_decreases_while_a_cell_runs_but_not_below_zero(clock: Clock) -> None:
    found = planned(1, expected={"a": 50.0})
    begin(found, "a")
    clock.now += 20
    assert found.headline().endswith("about 30 s left")
    clock.now += 1000
    assert found.headline().endswith("about 0 s left")


@pytest.mark.usefixtures("clock")
def test_there_is_no_estimate_without_known_times() -> None:
    assert planned(3).headline() == "cells: 0 of 3 done, 0 running, 3 waiting"


def test_a_running_cell_shows_its_time_and_the_last_line_of_its_log(clock: Clock, tmp_path: Path) -> None:
    found = Progress()
    found.add(RunStarted("r-1", "p", str(tmp_path), ()))
    begin(found, "a")
    log = tmp_path / "000__test/a/attempt-1/stdout.log"
    log.parent.mkdir(parents=True)
    log.write_text("step 1\nstep 2\n\n")
    clock.now += 5
    assert list(found.rows()) == [("a", 5.0, "step 2")]


def test_a_cell_that_has_not_started_shows_the_reason() -> None:
    found = planned(1)
    begin(found, "a")
    found.add(AttemptWaiting("000__test/a", 1, "waiting for a node"))
    assert [(name, text) for name, _, text in found.rows()] == [("a", "waiting for a node")]
    found.add(AttemptWaiting("000__test/a", 1, ""))
    assert [text for _, _, text in found.rows()] == [""]
