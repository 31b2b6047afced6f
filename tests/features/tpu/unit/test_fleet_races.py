"""Neither late or incomplete views of a zone nor concurrent threads lose a TPU or block its fleet."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from unittest.mock import Mock

import pytest

from tests.fakes.ledger import MemoryLedger
from tests.features.tpu.servers.tpu import Server
from tests.features.tpu.unit.conftest import OTHER_ZONE, PLACE, ZONE, Request
from toolbox.features.tpu.api import TpuApi
from toolbox.features.tpu.api_errors import ApiUnavailable
from toolbox.features.tpu.fleet import Fleet, Tpu
from toolbox.features.tpu.tpu_states import ZoneView
from toolbox.ground.model.errors import InfrastructureError
from toolbox.ground.model.workloads import EndedBy

WAIT = 60.0


class Changes:
    """Receives the changes of TPUs."""

    def __init__(self) -> None:
        self._changed = threading.Condition()

    def __call__(self, _tpu: Tpu) -> None:
        with self._changed:
            self._changed.notify_all()

    def wait_for(self, predicate: Callable[[], object]) -> None:
        with self._changed:
            assert self._changed.wait_for(predicate, 20)


@pytest.fixture
def changes() -> Changes:
    return Changes()


@pytest.fixture
def fleet(api: TpuApi, ledger: MemoryLedger, changes: Changes) -> Iterator[Fleet]:
    made = Fleet("tpus", api, ledger, changes)
    yield made
    made.close()


@pytest.fixture
def tpu(fleet: Fleet, server: Server, changes: Changes, request_for: Request) -> Tpu:
    """Return a TPU that is up."""
    made = fleet.request(request_for(), WAIT)
    server.advance(60)
    changes.wait_for(lambda: made.is_up)
    return made


def test_a_tpu_is_not_lost_if_a_view_is_older_than_the_tpu(fleet: Fleet, tpu: Tpu) -> None:
    fleet._step_if_idle(tpu, PLACE, ZoneView.of([], []))
    assert tpu.is_up


def test_a_tpu_is_not_lost_if_its_zone_does_not_answer(fleet: Fleet, tpu: Tpu, server: Server) -> None:
    server.set_unreachable(ZONE)
    with pytest.raises(ApiUnavailable, match=f"{ZONE} did not answer"):
        fleet.check(tpu)
    assert tpu.is_up
    server.set_unreachable()
    server.preempt("tpu")
    fleet.check(tpu)
    assert tpu.ending is not None


def test_a_tpu_that_cannot_be_put_on_the_ledger_is_lost(
    fleet: Fleet, server: Server, ledger: MemoryLedger, changes: Changes, request_for: Request
) -> None:
    server.set_capacity(ZONE, nodes=0)
    tpu = fleet.request(request_for(zone=[ZONE, OTHER_ZONE]), WAIT)
    ledger.plan = Mock(side_effect=InfrastructureError("the disk is full"))  # type: ignore[method-assign]
    server.advance(60)
    changes.wait_for(lambda: tpu.ending)
    assert tpu.ending is not None
    assert (tpu.ending.ended_by, tpu.ending.message) == (EndedBy.LOST, "the disk is full")


class SlowEvent(threading.Event):
    """An event that pauses its thread before the event is cleared, until another thread has set the event."""

    def __init__(self) -> None:
        super().__init__()
        self.is_slow = False
        self.is_clearing = threading.Event()
        self.may_clear = threading.Event()

    def clear(self) -> None:
        if self.is_slow:
            self.is_clearing.set()
            assert self.may_clear.wait(WAIT)
        super().clear()

    def set(self) -> None:
        super().set()
        if self.is_clearing.is_set():
            self.may_clear.set()


def test_a_fleet_is_closed_while_its_thread_begins_to_wait(
    api: TpuApi, ledger: MemoryLedger, changes: Changes, request_for: Request
) -> None:
    fleet = Fleet("tpus", api, ledger, changes)
    wake = fleet._wake = SlowEvent()
    fleet.forget(fleet.request(request_for(), WAIT))
    wake.is_slow = True
    wake.set()
    assert wake.is_clearing.wait(WAIT)
    closing = threading.Thread(target=fleet.close, daemon=True)
    closing.start()
    closing.join(10)
    assert not closing.is_alive()
