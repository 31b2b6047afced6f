"""The comment of a run shows phases, the first failure, each quarter of the cells, and what the run waits for."""

from __future__ import annotations

from toolbox.features.ci.milestones import Milestones
from toolbox.ground.model.events import (
    ClusterChosen,
    Event,
    LeaseAwaited,
    MatrixPlanned,
    Note,
    RunFinished,
    RunStarted,
    StepFinished,
    StepKind,
)
from toolbox.ground.model.verdicts import Cause, Verdict

PASSED, FAILED = (Verdict.PASSED, None), (Verdict.FAILED, Cause.PRODUCT)


def cell(number: int, result: tuple[Verdict, Cause | None] = PASSED, *, counts: bool = True) -> StepFinished:
    return StepFinished(f"001__test/{number:03d}__x", f"x={number}", StepKind.CELL, *result, "", 1.0, counts)


def phase(name: str, result: tuple[Verdict, Cause | None] = PASSED) -> StepFinished:
    return StepFinished(f"000__{name}", name, StepKind.PHASE, *result, "", 3.0)


def test_phases_quarters_and_the_first_failure_are_milestones() -> None:
    milestones = Milestones()
    events: list[Event] = [
        RunStarted("r-1", "training", "/runs/r-1", ()),
        phase("prepare"),
        MatrixPlanned("001__test", 8, 1),
    ]
    events += [cell(number, FAILED if number in {2, 3} else PASSED) for number in range(8)]
    events += [phase("test", FAILED), RunFinished(*FAILED, 1, "", 9.0)]
    assert [milestones.apply(event) for event in events].count(True) == 9
    assert milestones.lines == [
        "the run r-1 has started",
        "prepare: passed in 3.0 s",
        "2 of 8 cells: 2 passed",
        "the first failure: x=2: failed (product)",
        "4 of 8 cells: 2 passed, 2 failed",
        "6 of 8 cells: 4 passed, 2 failed",
        "8 of 8 cells: 6 passed, 2 failed",
        "test: failed (product) in 3.0 s",
        "the run ended: failed (product) in 9.0 s",
    ]


def test_a_wait_names_the_holder_until_it_is_over() -> None:
    milestones = Milestones()
    waiting = LeaseAwaited("lab", "held by the run r-0 of ada")
    assert [milestones.apply(waiting), milestones.apply(waiting)] == [True, False]
    assert milestones.lines == ["waiting for the cluster lab: held by the run r-0 of ada"]
    assert milestones.apply(ClusterChosen("lab"))
    assert milestones.lines == ["the wait for the cluster lab is over"]


def test_a_failure_that_does_not_count_is_not_the_first_failure() -> None:
    milestones = Milestones()
    milestones.apply(MatrixPlanned("001__test", 8, 1))
    assert milestones.apply(cell(0, FAILED, counts=False)) is False


def test_other_events_are_not_milestones() -> None:
    assert Milestones().apply(Note("000__test", "hello")) is False


def test_a_second_run_of_a_comment_has_a_first_failure_of_its_own() -> None:
    milestones = Milestones()
    for run in ("r-1", "r-2"):
        milestones.apply(RunStarted(run, "training", f"/runs/{run}", ()))
        milestones.apply(cell(0, FAILED))
    assert sum("the first failure" in line for line in milestones.lines) == 2


def test_foreign_texts_are_short_lines() -> None:
    milestones = Milestones()
    milestones.apply(LeaseAwaited("lab", "a\n::error::\x1b[2J" + "x" * 1000))
    (line,) = milestones.lines
    assert ("\n" in line, "\x1b" in line, len(line)) == (False, False, 300)
