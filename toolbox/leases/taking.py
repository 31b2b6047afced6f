"""Takes a lease: at once if it is free, or else as soon as it becomes free.

A write fails if the version of the lease has changed since it was read, and the lease is then read again. The clocks of
two machines differ, so a lease expires by the local clock: when its heartbeat has not changed for its lifetime. Both
rules are those of client-go's leader election (tools/leaderelection/leaderelection.go, `observedTime` in
`tryAcquireOrRenew`). A person's lease has no heartbeat, lasts for hours, and ends at the time that is stored in it.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final

from toolbox.leases.heartbeats import Lease
from toolbox.leases.leases import Claim, Lock, Record, clock, now
from toolbox.model.errors import StepError
from toolbox.model.text import duration
from toolbox.model.verdicts import Cause, Verdict
from toolbox.system import cancellation, signals

TIMEOUT: Final = 60.0  # timeout in seconds to read a lease that has no alternative
_GLANCE: Final = 5.0  # timeout in seconds to read one of several leases, or to read a lease again
_JITTER: Final = 0.3  # longest random pause in seconds, so that waiting processes don't write at the same time
_SIGNAL_SECONDS: Final = 0.1


class _Candidate:
    """A lease that this process wants, with its last known record."""

    def __init__(self, lock: Lock, claim: Claim) -> None:
        self.lock = lock
        self.record: Record | None = None
        self._claim = claim
        self._changed = time.monotonic()
        self._announced = ""

    def attempt(self, timeout: float, *, force: bool) -> Lease | None:
        """Take the lease if it is free, expired or already held by this claim, or if `force` is set."""
        while True:
            seen = self.lock.read(timeout)
            if seen.record != self.record:
                self.record, self._changed = seen.record, time.monotonic()
            if not (force or self._seconds_left() <= 0):
                return None
            began, record = time.monotonic(), self._ours()
            with signals.deferred():  # no signal may interrupt between the write and the result
                version = self.lock.write(record, seen.version, _GLANCE)
            if version is not None:
                return Lease(self.lock, record, version, began)

    def seconds_left(self) -> float:
        """Return the number of seconds after which the lease may have expired."""
        return max(_SIGNAL_SECONDS, self._seconds_left())

    def announce(self, say: Callable[[str], object], wait: float) -> None:
        """Report the holder of the lease whenever the holder has changed."""
        if self.record is None or self.record.claim.holder == self._announced:
            return
        self._announced = self.record.claim.holder
        say(
            f"waiting for the lease of {self.lock.label}: {self.record}; {self.record.expiry} "
            f"(waiting {duration(wait, digits=0)} at most)"
        )

    def _seconds_left(self) -> float:
        if self.record is None or self.record.claim.holder == self._claim.holder:
            return 0.0
        if not self.record.claim.beats:
            return (self.record.end - now()).total_seconds()
        return self._changed + self.record.claim.ttl - time.monotonic()

    def _ours(self) -> Record:
        held, moment = self.record, now()
        if held is not None and held.claim.holder == self._claim.holder:
            return Record(self._claim, held.acquired, moment, held.forced)
        is_forced = held is not None and self._seconds_left() > 0
        forced = f"by {self._claim.owner} at {clock(moment)}, while it was {held}" if is_forced else ""
        return Record(self._claim, moment, moment, forced)


def take(
    locks: Sequence[Lock], claim: Claim, *, wait: float, say: Callable[[str], object], force: bool = False
) -> Lease:
    """Take the first of several leases that becomes free. The caller starts its heartbeats.

    Args:
        wait: the number of seconds to wait for a lease.
        say: called with a message about the holder of each lease.
        force: take the first lease even if another holder has it.

    Raises:
        StepError: no lease became free in time, or none could be read.
        Cancelled: the scope of this thread was cancelled.
    """
    candidates, news = [_Candidate(lock, claim) for lock in locks], threading.Event()
    deadline = time.monotonic() + wait
    timeout = TIMEOUT if len(locks) == 1 else _GLANCE
    longest: list[float] = []
    with ExitStack() as stack:
        while True:
            signals.check()
            news.clear()
            faults: list[StepError] = []
            for candidate in candidates:
                try:
                    lease = candidate.attempt(timeout, force=force)
                except StepError as error:
                    faults.append(error)
                    continue
                if lease is not None:
                    return lease
            if len(faults) == len(locks) and not longest:
                raise faults[0]
            if time.monotonic() >= deadline:
                raise _in_vain(candidates, wait)
            for candidate in candidates:
                candidate.announce(say, wait)
            timeout = _GLANCE
            longest = longest or [stack.enter_context(lock.watched(news)) for lock in locks]
            left = [candidate.seconds_left() for candidate in candidates]
            _await(news, min(deadline - time.monotonic(), *longest, *left))
            cancellation.current().sleep(random.uniform(0.0, _JITTER))  # noqa: S311


def _await(news: threading.Event, seconds: float) -> None:
    """Wait for news in short pieces, because a signal that another thread receives does not wake this thread."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0 and not news.wait(min(left, _SIGNAL_SECONDS)):
        cancellation.current().check()


def _in_vain(candidates: Sequence[_Candidate], wait: float) -> StepError:
    waited = f"did not become free within {duration(wait, digits=0)}" if wait else "is not free"
    texts = [
        f"the lease of {found.lock.label} {waited}: {found.record or 'it cannot be asked'}" for found in candidates
    ]
    return StepError("\n".join(texts), verdict=Verdict.ERROR, cause=Cause.CAPACITY)
