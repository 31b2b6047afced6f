"""The states of attempts on TPUs; `tests/features/tpu/live/test_tpu_cells.py` runs attempts on workers."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from tests.fakes.ledger import OWNER
from toolbox.features.tpu.fleet import Tpu
from toolbox.features.tpu.tpu_attempts import Machines, TpuAttempt, TpuAttempts
from toolbox.ground.model.workloads import AttemptState, EndedBy, Handle, Timeouts, Workload, WorkloadOutcome
from toolbox.ground.system.cancellation import CancelScope

LOST = WorkloadOutcome(EndedBy.LOST)


class Desk:
    """Attempts on one TPU, and the names that were notified."""

    def __init__(self) -> None:
        self.notified: list[str] = []
        self.attempts = TpuAttempts(self.notified.append)
        provisioning: Any = SimpleNamespace(request=SimpleNamespace(name="tpu"))
        self.tpu = Tpu(provisioning, 60.0, time.monotonic() + 60)

    def add(self, name: str) -> TpuAttempt:
        return self.attempts.add(Handle(name, Path(name)), Workload(("true",)), self.tpu, CancelScope())

    @property
    def machines(self) -> Machines:
        found = self.attempts.machines("tpu")
        assert found is not None
        return found


@pytest.fixture
def desk() -> Desk:
    return Desk()


def ended_by(attempt: TpuAttempt) -> EndedBy | None:
    return attempt.status.outcome.ended_by if attempt.status.outcome is not None else None


def test_an_attempt_that_waits_is_cancelled_at_once(desk: Desk) -> None:
    attempt = desk.add("a")
    desk.attempts.cancel(attempt)
    assert (ended_by(attempt), attempt.settled.is_set(), desk.notified) == (EndedBy.CANCELLED, True, ["a"])


def test_all_attempts_that_one_tpu_lost_name_the_tpu(desk: Desk) -> None:
    attempts = [desk.add(name) for name in "ab"]
    for attempt, host in zip(attempts, ("", "worker-1"), strict=True):
        desk.attempts.conclude(attempt, WorkloadOutcome(EndedBy.LOST, host=host))
    assert [attempt.status.outcome.host for attempt in attempts if attempt.status.outcome] == ["tpu", "tpu"]


@pytest.mark.parametrize(("is_started", "expected"), [(False, EndedBy.CANCELLED), (True, EndedBy.LOST)])
def test_a_cancelled_attempt_ends_as_cancelled_unless_it_has_started(
    desk: Desk, is_started: bool, expected: EndedBy
) -> None:
    attempt = desk.add("a")
    assert desk.attempts.set_group(desk.machines, Mock())
    assert desk.attempts.begin_starting(desk.machines) == [attempt]
    if is_started:
        desk.attempts.note_start(attempt)
    desk.attempts.cancel(attempt)
    assert not attempt.status.state.is_over
    assert attempt.starting.reason is not None
    desk.attempts.conclude(attempt, LOST)
    assert ended_by(attempt) is expected


def test_only_one_thread_prepares_the_workers_and_only_for_attempts_that_wait(desk: Desk) -> None:
    attempt = desk.add("a")
    assert desk.attempts.begin_preparing(desk.machines) == [attempt]
    assert desk.attempts.begin_preparing(desk.machines) == []
    desk.machines.is_preparing = False
    desk.attempts.conclude(attempt, LOST)
    assert desk.attempts.begin_preparing(desk.machines) == []


def test_no_attempt_starts_before_the_workers_are_ready_or_twice(desk: Desk) -> None:
    attempt = desk.add("a")
    assert desk.attempts.begin_starting(desk.machines) == []
    assert desk.attempts.set_group(desk.machines, Mock())
    assert [desk.attempts.begin_starting(desk.machines) for _ in range(2)] == [[attempt], []]


def test_the_group_of_a_deleted_tpu_is_refused(desk: Desk) -> None:
    desk.add("a")
    machines = desk.machines
    assert desk.attempts.remove_machines("tpu") is None
    assert not desk.attempts.set_group(machines, Mock())
    assert machines.group is None


def test_nothing_changes_after_the_target_is_closed(desk: Desk) -> None:
    attempt, group = desk.add("a"), Mock()
    assert desk.attempts.set_group(desk.machines, group)
    assert desk.attempts.close() == [group]
    desk.attempts.conclude(attempt, LOST)
    assert desk.attempts.begin_preparing(desk.machines) == []
    assert not desk.attempts.set_group(desk.machines, Mock())
    assert (attempt.status.state, desk.notified) == (AttemptState.SUBMITTED, [])


@pytest.mark.parametrize(("run", "outlasts"), [(60.0, True), (3600.0, False)])
def test_a_tpu_must_outlast_the_attempts_on_it(desk: Desk, run: float, outlasts: bool) -> None:
    desk.tpu.nodes = (Mock(labels=OWNER.labels(1800)),)
    assert Machines(desk.tpu).outlast(Timeouts(run=run)) is outlasts
