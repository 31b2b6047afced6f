"""Renews a lease by heartbeats until the lease is released or lost."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from toolbox.ground.model.errors import Cancelled, StepError, describe
from toolbox.ground.model.text import duration
from toolbox.ground.system import cancellation
from toolbox.ground.system.cancellation import CancelScope
from toolbox.records.leases.leases import Lock, Record, StoredRecord, now

log = logging.getLogger(__name__)

_HEARTBEATS: Final = 3  # the number of heartbeats in the lifetime (`ttl`) of a lease
_RENEWAL_SHARE: Final = 5 / 6  # the share of the lifetime within which a lease must be renewed
_RELEASE_SECONDS: Final = 10.0
_SHORTEST_PAUSE: Final = 0.2


class Lease:
    """A lease that this process has taken.

    The lease is lost if another holder takes it. If the lease cannot be renewed, it counts as lost before it expires,
    because the work must end before another holder may take the lease. (For the same reason, the `RenewDeadline` of
    client-go is shorter than its `LeaseDuration`.)

    Args:
        began: the monotonic time just before the record was written. The lifetime is counted from this time.
    """

    def __init__(self, lock: Lock, record: Record, version: str, began: float) -> None:
        self.lock = lock
        self.record = record
        self.loss = ""
        self._version = version
        self._fault = "there was no answer"
        self._on_loss: Callable[[], object] = lambda: None
        self._scope = CancelScope()  # without a parent, so that the heartbeats continue when a phase is cancelled
        self._is_over = threading.Event()
        self._guard = threading.Lock()
        self._began = began
        self._timer = threading.Timer(0, self._give_up)
        self._thread = threading.Thread(target=self._send_heartbeats, name=f"lease-{lock.label}", daemon=True)

    def start(self, on_loss: Callable[[], object]) -> None:
        """Start the heartbeats.

        Args:
            on_loss: called once, in another thread, when the lease is lost. The attribute `loss` has the reason.
        """
        self._on_loss = on_loss
        self._restart_timer(self._began)
        self._thread.start()

    def release(self) -> None:
        """Release the lease, unless another holder has taken it. If the lock cannot be written, log a warning."""
        self._stop("the lease is released")
        try:
            release(self.lock, self.record.claim.holder)
        except StepError as error:
            log.warning("the lease of %s could not be released: %s; %s", self.lock.label, error, self.record.expiry)

    def suspend(self, seconds: int) -> None:
        """Keep the lease for some time without heartbeats, so that another process of the same holder can take it.

        The lease then ends at its stored time. If the lock cannot be written, log a warning.
        """
        self._stop("the lease is suspended")
        claim = dataclasses.replace(self.record.claim, ttl=seconds, has_heartbeat=False)
        record = dataclasses.replace(self.record, claim=claim, renewed=now())
        try:
            _replace(self.lock, claim.holder, record)
        except StepError as error:
            log.warning("the lease of %s could not be kept: %s; %s", self.lock.label, error, self.record.expiry)

    def _stop(self, reason: str) -> None:
        """Stop the heartbeats."""
        self._is_over.set()
        self._timer.cancel()
        self._scope.cancel(reason)
        if self._thread.is_alive():
            self._thread.join(_RELEASE_SECONDS)

    @property
    def _timeout(self) -> float:
        return self.record.claim.ttl * _RENEWAL_SHARE

    def _send_heartbeats(self) -> None:
        interval = self.record.claim.ttl / _HEARTBEATS
        pause = interval
        with cancellation.entered(self._scope):
            while not self._is_over.wait(pause):
                began = time.monotonic()
                try:
                    reason = self._renew(interval)
                except (StepError, Cancelled) as error:
                    self._fault, pause = describe(error), max(_SHORTEST_PAUSE, interval / _HEARTBEATS)
                    continue
                if reason:
                    self._lose(reason)
                    return
                self._restart_timer(began)
                pause = interval

    def _restart_timer(self, began: float) -> None:
        """Restart the timer that declares the lease lost, after a renewal that began at the monotonic time `began`.

        A timer is necessary because a heartbeat may wait a long time for an answer.
        """
        self._timer.cancel()
        self._timer = threading.Timer(max(0.0, began + self._timeout - time.monotonic()), self._give_up)
        self._timer.daemon = True
        if not self._is_over.is_set():
            self._timer.start()

    def _give_up(self) -> None:
        self._lose(f"it could not be renewed for {duration(self._timeout, digits=0)}: {self._fault}")

    def _lose(self, reason: str) -> None:
        with self._guard:
            if self._is_over.is_set():
                return
            self._is_over.set()
            self.loss = f"the lease of {self.lock.label} is lost: {reason}"
        self._timer.cancel()
        self._on_loss()

    def _renew(self, timeout: float) -> str:
        """Write a heartbeat, and return why the lease is lost; empty if this process still has the lease."""
        while not self._is_over.is_set():
            record = dataclasses.replace(self.record, renewed=now())
            version = self.lock.write(record, self._version, timeout)
            if version is not None:
                self.record, self._version = record, version
                return ""
            stored = self.lock.read(timeout)
            if _belongs_to_other(stored, record.claim.holder):
                return f"now it is {stored.record}"
            if stored.record is None and stored.version:
                return "it was released by force, and is free now"
            self._version = stored.version  # write again: an answer to a heartbeat was lost, or the record was deleted
        return ""


def release(lock: Lock, holder: str) -> bool:
    """Release a lease if `holder` has it, and return whether the lease was released.

    Raises:
        StepError: the lease cannot be read or written.
    """
    return _replace(lock, holder, None)


def _replace(lock: Lock, holder: str, record: Record | None) -> bool:
    """Write the record of a lease if `holder` has it, and return whether it was written. The errors are as above."""
    while True:
        stored = lock.read(_RELEASE_SECONDS)
        if stored.record is None or _belongs_to_other(stored, holder):
            return False
        if lock.write(record, stored.version, _RELEASE_SECONDS) is not None:
            return True


def _belongs_to_other(stored: StoredRecord, holder: str) -> bool:
    return stored.record is not None and stored.record.claim.holder != holder
