"""One thread follows all TPUs of a target; `tests/features/tpu/live/test_tpu_cells.py` runs cells on them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.fakes.ledger import MemoryLedger
from tests.features.tpu.servers.tpu import Fault, Server
from tests.features.tpu.servers.tpu.methods import Recorded
from tests.features.tpu.unit.conftest import OTHER_ZONE, ZONE, Request
from tests.functional.grid import wait
from toolbox.features.tpu import fleet
from toolbox.features.tpu.api import TpuApi
from toolbox.features.tpu.fleet import Fleet, Tpu
from toolbox.ground.model.errors import StepError
from toolbox.ground.model.workloads import EndedBy, WorkloadOutcome


class Followed:
    """A fleet, and the TPUs whose changes it reports."""

    def __init__(self, api: TpuApi, ledger: MemoryLedger) -> None:
        self.changed: list[str] = []
        self.ticks = 0
        self.fleet = Fleet("tpus", api, ledger, lambda tpu: self.changed.append(tpu.name))

    def ending(self, tpu: Tpu) -> WorkloadOutcome:
        """Wait until a TPU can no longer be used, and return why."""
        wait(lambda: tpu.ending, "the end of the TPU")
        assert tpu.ending is not None
        return tpu.ending


def answered(server: Server) -> list[Recorded]:
    """Return the requests for nodes that have taken effect, so that the clock can be moved."""
    return [request for request in server.requests("CreateNode") if request.code]


@pytest.fixture
def followed(api: TpuApi, ledger: MemoryLedger, monkeypatch: pytest.MonkeyPatch) -> Iterator[Followed]:
    monkeypatch.setattr(fleet, "_FIRST_PAUSE", 0.01)
    found = Followed(api, ledger)
    tick: Callable[..., None] = found.fleet._tick

    def counted(tpus: list[Tpu]) -> None:
        found.ticks += 1
        tick(tpus)

    monkeypatch.setattr(found.fleet, "_tick", counted)
    yield found
    found.fleet.close()


def test_a_tick_sends_one_request_per_zone(followed: Followed, request_for: Request, server: Server) -> None:
    zones = (ZONE, ZONE, ZONE, OTHER_ZONE)
    tpus = [followed.fleet.request(request_for(f"tpu-{n}", zone=zone), 60) for n, zone in enumerate(zones)]
    server.advance(10)
    wait(lambda: all(tpu.is_up for tpu in tpus), "all TPUs")
    before, ticks = len(server.requests()), followed.ticks
    wait(lambda: followed.ticks > ticks + 3, "more ticks")
    followed.fleet.close()
    after, ticks = server.requests()[before:], followed.ticks - ticks
    assert {request.method for request in after} == {"ListNodes"}
    assert 2 * (ticks - 1) <= len(after) <= 2 * (ticks + 1)


def test_one_thread_follows_all_tpus(followed: Followed, request_for: Request) -> None:
    for number in range(5):
        followed.fleet.request(request_for(f"tpu-{number}"), 60)
    assert [thread.name for thread in threading.enumerate()].count("tpus-tpus") == 1


def test_a_tpu_is_requested_once(followed: Followed, request_for: Request, server: Server) -> None:
    first = followed.fleet.request(request_for(), 60)
    assert followed.fleet.request(request_for(), 60) is first
    assert followed.fleet.find(request_for(), 60) is first
    assert len(server.requests("CreateNode")) == 1


def test_an_outage_of_the_api_is_survived(
    followed: Followed, request_for: Request, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    tpu = followed.fleet.request(request_for(), 60)
    server.add_fault(Fault("ListNodes", "PERMISSION_DENIED", times=3))
    wait(lambda: len(server.requests("ListNodes")) > 3, "the end of the outage")
    server.advance(10)
    wait(lambda: tpu.is_up, "the TPU")
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len([record for record in warnings if "PERMISSION_DENIED" in record.getMessage()]) == 1


@pytest.mark.parametrize(
    ("fields", "ended_by", "state"),
    [({}, EndedBy.LOST, "CREATING"), ({"spot": True}, EndedBy.NO_CAPACITY, "WAITING_FOR_RESOURCES")],
)
def test_the_time_until_a_tpu_is_up_is_limited(
    followed: Followed, request_for: Request, server: Server, fields: dict[str, bool], ended_by: EndedBy, state: str
) -> None:
    server.set_capacity(ZONE, nodes=0 if fields else None)
    tpu = followed.fleet.request(request_for(**fields), 60)
    if fields:
        server.advance(1)
    wait(lambda: state in tpu.message, state)
    tpu.deadline = 0.0
    ending = followed.ending(tpu)
    assert ending.ended_by is ended_by
    assert ending.message.startswith(f"the TPU was not up within 60 s (timeouts.wait): {ZONE}: ")


def test_a_failed_deletion_is_recorded_and_can_be_repeated(
    followed: Followed, request_for: Request, server: Server, ledger: MemoryLedger
) -> None:
    tpu = followed.fleet.request(request_for(), 60)
    server.add_fault(Fault("DeleteNode", "PERMISSION_DENIED"))
    with pytest.raises(StepError, match="PERMISSION_DENIED"):
        followed.fleet.delete(tpu)
    assert "PERMISSION_DENIED" in ledger.open_resources()[0].failure
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("toolbox.features.tpu.deletion._FIRST_PAUSE", 0.01)
        deleting = threading.Thread(target=followed.fleet.delete, args=(tpu,))
        deleting.start()
        wait(lambda: server.requests("DeleteNode")[1:], "another request")
        server.advance(10)
        deleting.join()
    assert (server.leftovers(), ledger.open_resources()) == ([], [])


def test_a_tpu_that_an_ended_session_was_deleting_is_not_found(
    followed: Followed, request_for: Request, server: Server, api: TpuApi
) -> None:
    tpu = followed.fleet.request(request_for(), 60)
    server.advance(10)
    wait(lambda: tpu.is_up, "the TPU")
    followed.fleet.forget(tpu)
    api.delete(tpu.request.full_name)
    assert followed.fleet.find(request_for(), 60) is None
    again = followed.fleet.request(request_for(), 60)
    wait(lambda: "is deleted" in again.message, "the message")
    server.advance(10)
    wait(lambda: answered(server)[1:], "the second request")
    server.advance(10)
    wait(lambda: again.is_up, "the TPU")
    assert again.ending is None


def test_a_stock_out_that_is_reported_after_a_deletion_does_not_end_the_request(
    followed: Followed, request_for: Request, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolbox.features.tpu.deletion._FIRST_PAUSE", 0.01)
    server.set_capacity(ZONE, nodes=1)
    first = followed.fleet.request(request_for("first"), 60)
    server.advance(1)
    wait(lambda: first.is_up, "the first TPU")
    server.add_fault(Fault("CreateNode", operation_seconds=600))
    second = followed.fleet.request(request_for("second"), 60)
    deleting = threading.Thread(target=followed.fleet.delete, args=(first,))
    deleting.start()
    wait(lambda: server.requests("DeleteNode"), "the deletion")
    server.advance(1)
    deleting.join()
    server.advance(600)
    wait(lambda: answered(server)[2:] or second.ending, "another request")
    server.advance(1)
    wait(lambda: second.is_up or second.ending, "the second TPU")
    assert second.ending is None


def test_a_tpu_of_an_ended_session_is_found_in_its_zone(
    followed: Followed, request_for: Request, server: Server, api: TpuApi, ledger: MemoryLedger
) -> None:
    server.set_capacity(ZONE, nodes=0)
    zones = [ZONE, OTHER_ZONE]
    tpu = followed.fleet.request(request_for(zone=zones), 60)
    server.advance(10)
    wait(lambda: tpu.zone == OTHER_ZONE, "the next zone")
    wait(lambda: answered(server)[1:], "the other request")
    server.advance(10)
    wait(lambda: tpu.is_up, "the TPU")
    second = Followed(api, ledger)
    found = second.fleet.find(request_for(zone=zones), 60)
    second.fleet.close()
    assert found is not None
    assert (found.zone, found.is_up) == (OTHER_ZONE, True)
    assert len(server.history()) == 2
