"""A lease is renewed by heartbeats, and is lost if it cannot be renewed."""

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.fakes.locks import FakeLock
from toolbox.ground.model.errors import StepError
from toolbox.records.leases import heartbeats, leases
from toolbox.records.leases.heartbeats import Lease
from toolbox.records.leases.leases import Claim, Record
from toolbox.records.leases.taking import take

OURS = Claim("run-2", "bob@lab", "mine", "run-2", ttl=2)
OTHER = Claim("run-1", "ann@lab", "debugging", ttl=60)


@pytest.fixture
def lock() -> FakeLock:
    return FakeLock()


@pytest.fixture
def lost() -> threading.Event:
    return threading.Event()


Hold = Callable[[], Lease]


@pytest.fixture
def hold(lock: FakeLock, lost: threading.Event) -> Iterator[Hold]:
    """Yield a function that takes the lease and starts its heartbeats; the leases are released at the end."""
    held: list[Lease] = []

    def begin() -> Lease:
        held.append(take([lock], OURS, wait=0, report=print))
        held[-1].start(lost.set)
        return held[-1]

    yield begin
    for lease in held:
        lease.release()


def renewed(lock: FakeLock) -> float:
    assert lock.record is not None
    return lock.record.renewed.timestamp()


def test_a_heartbeat_is_sent_three_times_per_lifetime(lock: FakeLock, hold: Hold, lost: threading.Event) -> None:
    hold()
    first = renewed(lock)
    time.sleep(3.2)
    assert renewed(lock) - first > 2.0
    assert 4 <= lock.version <= 6
    assert not lost.is_set()


def test_a_lease_that_another_holder_took_is_lost(lock: FakeLock, hold: Hold, lost: threading.Event) -> None:
    lease = hold()
    lock.hold(OTHER)
    assert lost.wait(30)
    assert lease.loss.startswith("the lease of sut is lost: now it is held by ann@lab for 'debugging' since ")


def test_a_lease_that_was_released_by_force_is_lost(lock: FakeLock, hold: Hold, lost: threading.Event) -> None:
    lease = hold()
    heartbeats.release(lock, "run-2")
    assert lost.wait(30)
    assert lease.loss == "the lease of sut is lost: it was released by force, and is free now"


def test_a_lease_that_cannot_be_renewed_in_time_is_lost(lock: FakeLock, hold: Hold, lost: threading.Event) -> None:
    lease = hold()
    began, lock.fault = time.monotonic(), "no route"
    assert lost.wait(30)
    assert time.monotonic() - began > 1.2
    assert lease.loss == "the lease of sut is lost: it could not be renewed for 2 s: no route"


def test_a_short_outage_does_not_lose_the_lease(lock: FakeLock, hold: Hold, lost: threading.Event) -> None:
    hold()
    lock.fault = "no route"
    time.sleep(1)
    lock.fault = ""
    time.sleep(2.4)
    assert not lost.is_set()


def test_a_deleted_record_is_written_again(lock: FakeLock, hold: Hold, lost: threading.Event) -> None:
    hold()
    lock.delete()
    time.sleep(1.2)
    assert lock.record is not None
    assert not lost.is_set()


def test_a_heartbeat_whose_answer_was_lost_does_not_lose_the_lease(
    lock: FakeLock, hold: Hold, lost: threading.Event
) -> None:
    hold()
    lock.beat()  # a heartbeat of the holder whose answer was lost
    time.sleep(1.2)
    assert not lost.is_set()


def test_nothing_is_written_after_a_release(lock: FakeLock, hold: Hold) -> None:
    hold().release()
    version = lock.version
    time.sleep(1.2)
    assert (lock.record, lock.version) == (None, version)


def test_a_lease_of_another_holder_is_not_released(lock: FakeLock, hold: Hold) -> None:
    lease = hold()
    lock.hold(OTHER)
    lease.release()
    assert lock.record is not None
    assert lock.record.claim == OTHER


def test_a_failed_release_is_only_a_warning(lock: FakeLock, hold: Hold, caplog: pytest.LogCaptureFixture) -> None:
    lease = hold()
    lock.fault = "no route"
    lease.release()
    assert "could not be released: no route; it expires 2 s after its last heartbeat" in caplog.text
    lock.fault = ""


def test_only_the_holder_can_release_a_lease(lock: FakeLock) -> None:
    lock.hold(OTHER)
    assert heartbeats.release(lock, "run-2") is False
    assert heartbeats.release(lock, "run-1") is True
    assert heartbeats.release(lock, "run-1") is False


def test_the_lease_of_a_user_has_no_heartbeats(lock: FakeLock) -> None:
    lease = take([lock], dataclasses.replace(OURS, has_heartbeat=False), wait=0, report=print)
    lease.release()
    assert lock.record is None


def test_a_suspended_lease_ends_at_its_time_without_heartbeats(
    lock: FakeLock, hold: Hold, lost: threading.Event
) -> None:
    lease = hold()
    lease.suspend(900)
    assert lock.record is not None
    claim = lock.record.claim
    assert (claim.holder, claim.ttl, claim.has_heartbeat) == (OURS.holder, 900, False)
    assert not lease._thread.is_alive()
    assert not lost.is_set()


def test_the_next_process_of_the_holder_takes_a_suspended_lease_at_once_and_others_wait(
    lock: FakeLock, hold: Hold
) -> None:
    hold().suspend(900)
    with pytest.raises(StepError, match="is not free: held by bob@lab"):
        take([lock], OTHER, wait=0, report=print)
    assert take([lock], OURS, wait=0, report=print).record.claim == OURS


def test_after_its_time_another_holder_takes_a_suspended_lease(lock: FakeLock, hold: Hold) -> None:
    hold().suspend(0)
    assert take([lock], OTHER, wait=0, report=print).record.claim == OTHER


def test_a_lease_that_another_holder_has_taken_is_not_suspended(lock: FakeLock, hold: Hold) -> None:
    lease = hold()
    other = dataclasses.replace(lease.record, claim=OTHER)
    assert lock.write(other, str(lock.version), 1) is not None
    lease.suspend(900)
    assert lock.record == other


def test_the_texts_of_other_users_are_one_short_line_each() -> None:
    time = leases.now()
    text = str(Record(Claim("r", "a\x1b[31m\n::error::" + "x" * 9999, "b\u202e", "c\n"), time, time))
    assert text.isprintable()
    assert len(text) < 500
