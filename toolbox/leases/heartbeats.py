"""Holds a lease: renews it by heartbeats until it is released or lost."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from toolbox.leases.leases import Lock, Record, Seen, now
from toolbox.model.errors import Cancelled, StepError, describe
from toolbox.model.text import duration
from toolbox.system import cancellation
from toolbox.system.cancellation import CancelScope

log = logging.getLogger(__name__)

_BEATS: Final = 3  # number of heartbeats per lifetime of a lease
_PATIENT_SHARE: Final = 5 / 6  # a lease is given up after this share of its lifetime without renewal
_RELEASE_SECONDS: Final = 10.0
_SHORTEST_PAUSE: Final = 0.2


class Lease:
    """A lease that this process holds.

    The lease is lost when another holder takes it. It also counts as lost if it could not be renewed, some time before
    others may take it: the work under the lease has to end before then. (client-go has a `RenewDeadline` below its
    `LeaseDuration`.)

    Args:
        record: the record as it was written.
        version: the version of the written record.
        began: the monotonic time just before the record was written. Others count the lifetime from when they see the
            record, which is later.
    """

    def __init__(self, lock: Lock, record: Record, version: str, began: float) -> None:
        self.lock = lock
        self.record = record
        self.loss = ""
        self._version = version
        self._fault = "there was no answer"
        self._on_loss: Callable[[], object] = lambda: None
        self._scope = CancelScope()  # a scope of its own: the heartbeats go on when a phase is cancelled
        self._is_over = threading.Event()
        self._guard = threading.Lock()
        self._began = began
        self._limit = threading.Timer(0, self._give_up)
        self._thread = threading.Thread(target=self._beat, name=f"lease-{lock.label}", daemon=True)

    def start(self, on_loss: Callable[[], object]) -> None:
        """Start the heartbeats.

        Args:
            on_loss: called once, in another thread, when the lease is lost; `loss` gives the reason.
        """
        self._on_loss = on_loss
        self._was_renewed(self._began)
        self._thread.start()

    def release(self) -> None:
        """Release the lease, unless another holder has taken it. Give up soon if the server does not answer."""
        self._is_over.set()
        self._limit.cancel()
        self._scope.cancel("the lease is released")
        if self._thread.is_alive():
            self._thread.join(_RELEASE_SECONDS)
        try:
            release(self.lock, self.record.claim.holder)
        except StepError as error:
            log.warning("the lease of %s could not be released: %s; %s", self.lock.label, error, self.record.expiry)

    @property
    def _timeout(self) -> float:
        return self.record.claim.ttl * _PATIENT_SHARE

    def _beat(self) -> None:
        interval = self.record.claim.ttl / _BEATS
        pause = interval
        with cancellation.entered(self._scope):
            while not self._is_over.wait(pause):
                began = time.monotonic()
                try:
                    reason = self._renew(interval)
                except (StepError, Cancelled) as error:
                    self._fault, pause = describe(error), max(_SHORTEST_PAUSE, interval / _BEATS)
                    continue
                if reason:
                    self._lose(reason)
                    return
                self._was_renewed(began)
                pause = interval

    def _was_renewed(self, began: float) -> None:
        """Restart the timer that gives the lease up. The timer also expires while a heartbeat waits for an answer."""
        self._limit.cancel()
        self._limit = threading.Timer(max(0.0, began + self._timeout - time.monotonic()), self._give_up)
        self._limit.daemon = True
        if not self._is_over.is_set():
            self._limit.start()

    def _give_up(self) -> None:
        self._lose(f"it could not be renewed for {duration(self._timeout, digits=0)}: {self._fault}")

    def _lose(self, reason: str) -> None:
        with self._guard:
            if self._is_over.is_set():
                return
            self._is_over.set()
            self.loss = f"the lease of {self.lock.label} is lost: {reason}"
        self._limit.cancel()
        self._on_loss()

    def _renew(self, timeout: float) -> str:
        """Write a heartbeat, and return why the lease is lost; empty if it is not lost."""
        while not self._is_over.is_set():
            record = dataclasses.replace(self.record, renewed=now())
            version = self.lock.write(record, self._version, timeout)
            if version is not None:
                self.record, self._version = record, version
                return ""
            seen = self.lock.read(timeout)
            if _is_of_another(seen, record.claim.holder):
                return f"now it is {seen.record}"
            if seen.record is None and seen.version:
                return "it was released by force, and is free now"
            self._version = seen.version  # a heartbeat was written without an answer, or the record was deleted
        return ""


def release(lock: Lock, holder: str) -> bool:
    """Release a lease if `holder` holds it, and return whether it did.

    Raises:
        StepError: the lease cannot be read or written.
    """
    while True:
        seen = lock.read(_RELEASE_SECONDS)
        if seen.record is None or _is_of_another(seen, holder):
            return False
        if lock.write(None, seen.version, _RELEASE_SECONDS) is not None:
            return True


def _is_of_another(seen: Seen, holder: str) -> bool:
    return seen.record is not None and seen.record.claim.holder != holder
