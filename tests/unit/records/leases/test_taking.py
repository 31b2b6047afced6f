"""A lease is taken at once, after its release, or after its expiry."""

import dataclasses
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from tests.fakes.locks import FakeLock
from toolbox.ground.model.errors import Cancelled, StepError
from toolbox.ground.model.verdicts import Cause
from toolbox.ground.system import cancellation
from toolbox.records.leases import heartbeats
from toolbox.records.leases.heartbeats import Lease
from toolbox.records.leases.leases import Claim, Lock, Record, now
from toolbox.records.leases.taking import take

NIGHTLY = Claim("run-1", "ann@lab", "nightly", "run-1", ttl=60)
OURS = Claim("run-2", "bob@lab", "mine", "run-2", ttl=60)


@pytest.fixture
def lock() -> FakeLock:
    return FakeLock()


def quick(claim: Claim) -> Claim:
    """Return a claim on a lease that lasts for a second."""
    return dataclasses.replace(claim, ttl=1)


def take_it(*locks: Lock, claim: Claim = OURS, wait: float = 5.0, force: bool = False) -> tuple[Lease, list[str]]:
    messages: list[str] = []
    return take(locks, claim, wait=wait, report=messages.append, force=force), messages


def test_a_free_lease_is_taken_at_once(lock: FakeLock) -> None:
    lease, messages = take_it(lock)
    assert (lock.record, messages) == (lease.record, [])
    assert lease.record.claim == OURS


def test_a_lease_of_another_holder_is_an_error_that_names_the_holder(lock: FakeLock) -> None:
    lock.hold(NIGHTLY)
    with pytest.raises(
        StepError, match=r"the lease of sut is not free: held by ann@lab for 'nightly' \(run run-1\)"
    ) as e:
        take_it(lock, wait=0)
    assert e.value.cause is Cause.CAPACITY


def test_a_waiting_process_takes_a_released_lease_and_reports_the_holder_once(lock: FakeLock) -> None:
    lock.hold(NIGHTLY)
    threading.Timer(0.5, heartbeats.release, (lock, "run-1")).start()
    began = time.monotonic()
    _, (line,) = take_it(lock)
    assert line.startswith("waiting for the lease of sut: held by ann@lab for 'nightly' (run run-1) since ")
    assert line.endswith("; it expires 1 min 0 s after its last heartbeat (waiting 5 s at most)")
    assert 0.4 < time.monotonic() - began < 5


def test_waiting_does_not_poll(lock: FakeLock) -> None:
    lock.hold(NIGHTLY)
    with pytest.raises(StepError, match="did not become free within 1 s"):
        take_it(lock, wait=1.0)
    assert lock.looks <= 3


def test_a_lease_without_heartbeats_expires(lock: FakeLock) -> None:
    lock.hold(quick(NIGHTLY))
    began = time.monotonic()
    take_it(lock)
    assert 0.9 < time.monotonic() - began < 5


def test_a_wrong_clock_does_not_expire_a_lease_with_heartbeats(lock: FakeLock) -> None:
    long_ago = now() - timedelta(hours=5)
    lock.write(Record(quick(NIGHTLY), long_ago, long_ago), "", 0)
    with pytest.raises(StepError, match="is not free"):
        take_it(lock, wait=0)


def test_a_lease_expires_after_the_last_observed_heartbeat(lock: FakeLock) -> None:
    lock.hold(dataclasses.replace(NIGHTLY, ttl=2))  # a heartbeat may be late by more than a second
    for delay in (0.5, 1.0, 1.5):
        threading.Timer(delay, lock.beat).start()
    began = time.monotonic()
    take_it(lock, wait=30)
    assert 3.4 < time.monotonic() - began < 30


def test_a_new_holder_is_reported_too(lock: FakeLock) -> None:
    lock.hold(NIGHTLY)
    threading.Timer(0.3, lock.hold, (dataclasses.replace(NIGHTLY, holder="run-3", purpose="weekly"),)).start()
    threading.Timer(1.2, heartbeats.release, (lock, "run-3")).start()
    _, messages = take_it(lock)
    assert ["nightly" in line for line in messages] == [True, False]


def test_the_same_holder_gets_its_lease_back_at_once(lock: FakeLock) -> None:
    lock.hold(OURS)
    before = lock.record
    lease, messages = take_it(lock, wait=0)
    assert (before and before.acquired, messages) == (lease.record.acquired, [])


def test_the_lease_of_a_user_ends_at_its_stored_time(lock: FakeLock) -> None:
    moment = now() - timedelta(seconds=8)
    lock.write(Record(dataclasses.replace(NIGHTLY, ttl=10, has_heartbeat=False), moment, moment), "", 0)
    began = time.monotonic()
    _, (line,) = take_it(lock)
    assert "; it ends at " in line
    assert time.monotonic() - began < 5


def test_force_takes_the_lease_and_records_both_holders(lock: FakeLock) -> None:
    lock.hold(NIGHTLY)
    lease, _ = take_it(lock, force=True)
    assert lease.record.forced.startswith("by bob@lab at ")
    assert "while it was held by ann@lab for 'nightly' (run run-1)" in lease.record.forced


def test_a_free_lease_is_not_recorded_as_forced(lock: FakeLock) -> None:
    assert take_it(lock, force=True)[0].record.forced == ""


def test_the_first_free_lease_of_several_is_taken() -> None:
    one, other = FakeLock("a"), FakeLock("b")
    one.hold(NIGHTLY)
    assert take_it(one, other)[0].lock is other


def test_several_leases_are_awaited_at_the_same_time() -> None:
    locks = FakeLock("a"), FakeLock("b")
    for lock in locks:
        lock.hold(NIGHTLY)
    threading.Timer(0.4, heartbeats.release, (locks[1], "run-1")).start()
    lease, messages = take_it(*locks)
    assert lease.lock is locks[1]
    assert [line.partition(":")[0] for line in messages] == ["waiting for the lease of a", "waiting for the lease of b"]


def test_a_lock_that_does_not_answer_is_ignored_beside_others() -> None:
    broken, good = FakeLock("a"), FakeLock("b")
    broken.fault = "no route"
    assert take_it(broken, good)[0].lock is good


def test_a_lock_that_does_not_answer_is_an_error(lock: FakeLock) -> None:
    lock.fault = "no route"
    with pytest.raises(StepError, match="no route"):
        take_it(lock)


def test_waiting_continues_while_the_server_is_unavailable(lock: FakeLock) -> None:
    lock.hold(quick(NIGHTLY))
    threading.Timer(0.2, setattr, (lock, "fault", "no route")).start()
    threading.Timer(1.6, setattr, (lock, "fault", "")).start()
    take_it(lock, wait=10)


def test_only_one_of_many_processes_takes_the_lease(lock: FakeLock) -> None:
    taken: list[str] = []

    def want(number: int) -> None:
        claim = dataclasses.replace(OURS, holder=f"run-{number}")
        lease, _ = take_it(lock, claim=claim, wait=20)
        taken.append(claim.holder)
        assert lock.record is not None
        assert lock.record.claim.holder == claim.holder
        heartbeats.release(lock, lease.record.claim.holder)

    with ThreadPoolExecutor(5) as threads:
        list(threads.map(want, range(5)))
    assert sorted(taken) == [f"run-{number}" for number in range(5)]


def test_a_cancelled_scope_ends_the_wait(lock: FakeLock) -> None:
    lock.hold(NIGHTLY)
    with cancellation.opened() as scope:
        threading.Timer(0.3, scope.cancel, ("enough",)).start()
        with pytest.raises(Cancelled, match="enough"):
            take_it(lock, wait=30)
