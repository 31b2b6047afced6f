"""Takes a lease: at once where it is free, or else when it becomes so.

A lease that has changed hands is seen by its version: who writes over another version than was seen has to look again.
One expires by OUR clock, when its holder's heartbeat has not been seen to change for as long as it lasts: the clocks of
two machines differ. Both as in client-go's leader election (tools/leaderelection/leaderelection.go, `observedTime` in
`tryAcquireOrRenew`). A person's lease has no heartbeat, lasts for hours, and ends by the time that is written in it.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final

from toolbox.kubernetes.leases.heartbeats import Lease
from toolbox.kubernetes.leases.leases import Claim, Lock, Record, clock, now, shown_seconds
from toolbox.model.errors import StepError
from toolbox.model.verdicts import Cause, Verdict
from toolbox.system import cancellation, signals

PATIENCE: Final = 60.0  # seconds, for the only one that can be had
_GLANCE: Final = 5.0  # likewise, for one of several, or while we wait anyway
_JITTER: Final = 0.3  # not all who wait write at the same time
_SIGNAL_SECONDS: Final = 0.1


class _Candidate:
    """A lease that may become ours, as we have seen it so far."""

    def __init__(self, lock: Lock, claim: Claim) -> None:
        self.lock = lock
        self.record: Record | None = None
        self._claim = claim
        self._changed = time.monotonic()
        self._announced = ""

    def attempt(self, patience: float, *, force: bool) -> Lease | None:
        """Take it if it is free, ours, or expired; or else by force."""
        while True:
            seen = self.lock.read(patience)
            if seen.record != self.record:
                self.record, self._changed = seen.record, time.monotonic()
            if not (force or self._seconds_left() <= 0):
                return None
            began, record = time.monotonic(), self._ours()
            with signals.deferred():  # what is written is known to be ours
                version = self.lock.write(record, seen.version, _GLANCE)
            if version is not None:
                return Lease(self.lock, record, version, began)

    def seconds_left(self) -> float:
        """Return after how many seconds to look again whether it has expired."""
        return max(_SIGNAL_SECONDS, self._seconds_left())

    def announce(self, say: Callable[[str], object], wait: float) -> None:
        """Say for whom we wait, whenever that is somebody else."""
        if self.record is None or self.record.claim.holder == self._announced:
            return
        self._announced = self.record.claim.holder
        say(
            f"waiting for the lease of {self.lock.label}: {self.record}; {self.record.expiry} "
            f"(waiting {shown_seconds(wait)} at most)"
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
    """Take one of several leases, the first that can be had. Its heart does not beat yet.

    Args:
        wait: how many seconds to wait for it.
        say: told for whom we wait.
        force: take the first from whoever has it.

    Raises:
        StepError: none could be had in this time, or none could be asked for.
        Cancelled: the scope of this thread was.
    """
    candidates, news = [_Candidate(lock, claim) for lock in locks], threading.Event()
    deadline = time.monotonic() + wait
    patience = PATIENCE if len(locks) == 1 else _GLANCE
    longest: list[float] = []
    with ExitStack() as stack:
        while True:
            signals.check()
            news.clear()
            faults: list[StepError] = []
            for candidate in candidates:
                try:
                    lease = candidate.attempt(patience, force=force)
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
            patience = _GLANCE
            longest = longest or [stack.enter_context(lock.watched(news)) for lock in locks]
            left = [candidate.seconds_left() for candidate in candidates]
            _await(news, min(deadline - time.monotonic(), *longest, *left))
            cancellation.current().sleep(random.uniform(0.0, _JITTER))  # noqa: S311


def _await(news: threading.Event, seconds: float) -> None:
    """Wait for news, in pieces: a signal that the system hands to another thread does not wake this one."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0 and not news.wait(min(left, _SIGNAL_SECONDS)):
        cancellation.current().check()


def _in_vain(candidates: Sequence[_Candidate], wait: float) -> StepError:
    waited = f"was waited for in vain, for {shown_seconds(wait)}" if wait else "is not free"
    texts = [
        f"the lease of {found.lock.label} {waited}: {found.record or 'it cannot be asked'}" for found in candidates
    ]
    return StepError("\n".join(texts), verdict=Verdict.ERROR, cause=Cause.CAPACITY)
