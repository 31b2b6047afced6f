"""Takes a lease that is free, or waits until the lease becomes free.

A write fails if the lease has changed since it was read; the lease is then read again. The clocks of two machines may
differ, so the local clock decides whether a lease has expired: a lease has expired if its stored heartbeat has not
changed for `ttl` seconds. The leader election of client-go works in the same way (`observedTime` in
tools/leaderelection/leaderelection.go). The lease of a person lasts for hours, and ends at its stored time.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final

from toolbox.ground.model.errors import StepError
from toolbox.ground.model.text import duration
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.ground.system import cancellation, signals
from toolbox.records.leases.heartbeats import Lease
from toolbox.records.leases.leases import Claim, Lock, Record, local_time, now

TIMEOUT: Final = 60.0  # the timeout in seconds of the first read, if only one lease is requested
_SHORT_TIMEOUT: Final = 5.0  # the timeout in seconds of all other reads and of writes
_JITTER: Final = 0.3  # the longest random pause in seconds, so that waiting processes don't write at the same time


class _Candidate:
    """A lease that the caller of `take` accepts, with its last known record."""

    def __init__(self, lock: Lock, claim: Claim) -> None:
        self.lock = lock
        self.record: Record | None = None
        self._claim = claim
        self._changed = time.monotonic()
        self._reported = ""

    def try_take(self, timeout: float, *, force: bool) -> Lease | None:
        """Take the lease if it is free or expired, or if this holder already has it, or if `force` is set."""
        while True:
            stored = self.lock.read(timeout)
            if stored.record != self.record:
                self.record, self._changed = stored.record, time.monotonic()
            if not (force or self._seconds_left() <= 0):
                return None
            began, record = time.monotonic(), self._new_record()
            with signals.deferred():  # a signal between the write and the `return` would lose the lease
                version = self.lock.write(record, stored.version, _SHORT_TIMEOUT)
            if version is not None:
                return Lease(self.lock, record, version, began)

    def seconds_left(self) -> float:
        """Return the number of seconds until the lease expires, if no further heartbeat arrives."""
        return max(signals.WAIT_SECONDS, self._seconds_left())

    def report_holder(self, report: Callable[[str], object], wait: float) -> None:
        """Report the holder of the lease, unless the same holder was already reported."""
        if self.record is None or self.record.claim.holder == self._reported:
            return
        self._reported = self.record.claim.holder
        report(
            f"waiting for the lease of {self.lock.label}: {self.record}; {self.record.expiry} "
            f"(waiting {duration(wait, digits=0)} at most)"
        )

    def _seconds_left(self) -> float:
        if self.record is None or self.record.claim.holder == self._claim.holder:
            return 0.0
        if not self.record.claim.has_heartbeat:
            return (self.record.end - now()).total_seconds()
        return self._changed + self.record.claim.ttl - time.monotonic()

    def _new_record(self) -> Record:
        previous, time_now = self.record, now()
        if previous is not None and previous.claim.holder == self._claim.holder:
            return Record(self._claim, previous.acquired, time_now, previous.forced)
        is_forced = previous is not None and self._seconds_left() > 0
        forced = f"by {self._claim.owner} at {local_time(time_now)}, while it was {previous}" if is_forced else ""
        return Record(self._claim, time_now, time_now, forced)


def take(
    locks: Sequence[Lock], claim: Claim, *, wait: float, report: Callable[[str], object], force: bool = False
) -> Lease:
    """Take the first of several leases that becomes free. The caller must start the heartbeats by `Lease.start`.

    Args:
        report: called with a message about the holder of each lease.
        force: whether to take the first lease even if another holder has it.

    Raises:
        StepError: no lease became free in time, or no lease could be read.
        Cancelled: the scope of this thread was cancelled.
    """
    candidates, changed = [_Candidate(lock, claim) for lock in locks], threading.Event()
    deadline = time.monotonic() + wait
    timeout = TIMEOUT if len(locks) == 1 else _SHORT_TIMEOUT
    read_intervals: list[float] = []
    with ExitStack() as stack:
        while True:
            signals.check()
            changed.clear()
            faults: list[StepError] = []
            for candidate in candidates:
                try:
                    lease = candidate.try_take(timeout, force=force)
                except StepError as error:
                    faults.append(error)
                    continue
                if lease is not None:
                    return lease
            if len(faults) == len(locks) and not read_intervals:
                raise faults[0]
            if time.monotonic() >= deadline:
                raise _timeout_error(candidates, wait)
            for candidate in candidates:
                candidate.report_holder(report, wait)
            timeout = _SHORT_TIMEOUT
            read_intervals = read_intervals or [stack.enter_context(lock.watched(changed)) for lock in locks]
            seconds_left = [candidate.seconds_left() for candidate in candidates]
            cancellation.current().wait(changed, min(deadline - time.monotonic(), *read_intervals, *seconds_left))
            cancellation.current().sleep(random.uniform(0.0, _JITTER))  # noqa: S311


def _timeout_error(candidates: Sequence[_Candidate], wait: float) -> StepError:
    waited = f"did not become free within {duration(wait, digits=0)}" if wait else "is not free"
    texts = [
        f"the lease of {candidate.lock.label} {waited}: {candidate.record or 'it cannot be read'}"
        for candidate in candidates
    ]
    return StepError("\n".join(texts), verdict=Verdict.ERROR, cause=Cause.CAPACITY)
