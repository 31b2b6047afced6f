"""Targets, pools and the number of jobs limit which cells may run, and queues take turns."""

import time
from collections.abc import Callable

import pytest

from tests.fakes.backend import Machines
from tests.unit.matrix.conftest import Planned
from toolbox.matrix.plan import Cell
from toolbox.matrix.pools import FairQueue, Pools

MACHINES = Machines()
ONE, TWO = MACHINES.target("one", jobs=2, chip=4), MACHINES.target("two", jobs=1)
TARGETS = {"one": ONE, "two": TWO}

NewCell = Callable[..., Cell]


@pytest.fixture
def cell(planned: Planned) -> NewCell:
    """Return a function that creates a cell for some targets with needs: `cell("one", chip=2)`."""

    def call(*targets: str, **resources: int) -> Cell:
        found = [TARGETS[name] for name in targets or ("one", "two")]
        return planned({"axes": {"x": ["a"]}, "resources": resources}, *found).cells[0]

    return call


def taken(pools: Pools, *cells: Cell) -> list[str | None]:
    """Reserve a target for one cell after the other, and return the names of the targets."""
    found = []
    for one in cells:
        found.append(pools.choose(one))
        if found[-1] is not None:
            pools.reserve(found[-1], one)
    return found


def test_at_most_jobs_cells_run(cell: NewCell) -> None:
    pools, one = Pools(TARGETS, 2, {}), cell()
    assert taken(pools, one, one, one) == ["one", "two", None]
    pools.release("one", one)
    assert pools.choose(one) == "one"


def test_at_most_the_jobs_of_a_target_run_on_it(cell: NewCell) -> None:
    assert taken(Pools(TARGETS, 9, {}), *[cell("two")] * 2) == ["two", None]


def test_a_target_limits_only_the_resources_of_its_capacity(cell: NewCell) -> None:
    wide, narrow = cell("one", chip=3, licence=50), cell("one", chip=1)
    assert taken(Pools(TARGETS, 9, {}), wide, wide, narrow, narrow) == ["one", None, "one", None]


def test_a_pool_limits_cells_on_all_targets(cell: NewCell) -> None:
    pools, licensed = Pools(TARGETS, 9, {"licence": 2}), cell(licence=1)
    assert taken(pools, licensed, licensed, licensed) == ["one", "two", None]
    assert pools.choose(cell("one")) == "one"


def test_the_least_loaded_target_is_chosen(cell: NewCell) -> None:
    assert taken(Pools(TARGETS, 9, {}), *[cell()] * 4) == ["one", "two", "one", None]


def test_the_last_target_is_avoided_if_another_target_has_room(cell: NewCell) -> None:
    pools, one = Pools(TARGETS, 9, {}), cell()
    assert pools.choose(one, last_choice="one") == "two"
    pools.reserve("two", one)
    assert pools.choose(one, last_choice="one") == "one"


# The order of the cells


def order(queue: FairQueue, choose: Callable[[Cell], str | None] = lambda _: "one") -> list[str]:
    """Take cells from the queue until none can run, and return the resource or target of each."""
    found = []
    while (turn := queue.next(choose)) is not None:
        found.append(",".join(turn[0].resources) or turn[0].targets[0])
    return found


def test_cells_with_different_needs_take_turns(cell: NewCell) -> None:
    queue = FairQueue()
    for one in [cell("one")] * 3 + [cell("one", chip=1)] * 2 + [cell("two")]:
        queue.add(one)
    assert len(queue) == 6
    assert order(queue) == ["one", "chip", "two", "one", "chip", "one"]
    assert len(queue) == 0


def test_a_cell_that_cannot_run_does_not_block_cells_with_other_needs(cell: NewCell) -> None:
    queue = FairQueue()
    for one in [cell("one")] * 2 + [cell("two")] * 2:
        queue.add(one)
    assert order(queue, lambda one: "two" if one.targets == ("two",) else None) == ["two", "two"]
    assert len(queue) == 2
    assert order(queue) == ["one", "one"]


def test_a_cell_that_is_added_first_precedes_cells_with_the_same_needs(cell: NewCell) -> None:
    queue, old, new = FairQueue(), cell("one"), cell("one")
    queue.add(new)
    queue.add(old, first=True)
    turn = queue.next(lambda _: "one")
    assert turn is not None
    assert turn[0] is old


def test_an_unreachable_target_is_used_last(cell: NewCell) -> None:
    pools, one = Pools(TARGETS, 9, {}), cell()
    pools.mark_unreachable("one")
    assert taken(pools, one, one) == ["two", None]  # the second cell waits for the reachable target
    assert pools.choose(cell("one")) == "one"
    pools.mark_reachable("one")
    assert pools.choose(one) == "one"


def test_an_unreachable_target_is_used_again_after_a_minute(cell: NewCell, monkeypatch: pytest.MonkeyPatch) -> None:
    pools, one = Pools(TARGETS, 9, {}), cell()
    pools.mark_unreachable("one")
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 61)
    assert taken(pools, one, one) == ["one", "two"]


def test_a_cell_with_large_needs_starts_eventually(cell: NewCell) -> None:
    pools, queue = Pools(TARGETS, 9, {}), FairQueue()
    small, large = cell("one", chip=2), cell("one", chip=4)
    for one in [small, large, *[small] * 30]:
        queue.add(one)
    running: list[Cell] = []
    started: list[Cell] = []
    while large not in started:
        while (found := queue.next(pools.choose)) is not None:
            pools.reserve("one", found[0])
            running.append(found[0])
            started.append(found[0])
        pools.release("one", running.pop(0))
    assert len(started) < 15
