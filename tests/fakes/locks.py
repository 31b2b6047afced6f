"""A lock in memory, in place of a lease in a cluster. A test can write to it as another machine, or break it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from toolbox.ground.model.errors import StepError
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.records.leases.leases import Claim, Record, StoredRecord, now


class FakeLock:
    """A lock in memory. While `fault` is not empty, the lock can be neither read nor written."""

    def __init__(self, label: str = "sut") -> None:
        self.label = self.key = label
        self.fault = ""
        self.record: Record | None = None
        self.version = 0
        self.looks = 0
        self._guard = threading.Lock()
        self._news: threading.Event | None = None

    def read(self, timeout: float) -> StoredRecord:  # noqa: ARG002
        """See `Lock`."""
        self._check()
        with self._guard:
            self.looks += 1
            return StoredRecord(self.record, str(self.version or ""))

    def write(self, record: Record | None, version: str, timeout: float) -> str | None:  # noqa: ARG002
        """See `Lock`."""
        self._check()
        with self._guard:
            if version != str(self.version or ""):
                return None
            self.record, self.version = record, self.version + 1
            if self._news is not None:
                self._news.set()
            return str(self.version)

    @contextmanager
    def watched(self, news: threading.Event) -> Iterator[float]:
        """See `Lock`."""
        self._news = news
        yield 60.0

    def hold(self, claim: Claim) -> None:
        """Write a lease as another machine would."""
        moment = now()
        self.write(Record(claim, moment, moment), str(self.version or ""), 0)

    def beat(self) -> None:
        """Write the next heartbeat of the current lease."""
        assert self.record is not None
        self.write(replace(self.record, renewed=now()), str(self.version), 0)

    def delete(self) -> None:
        """Delete the lease."""
        with self._guard:
            self.record, self.version = None, 0

    def _check(self) -> None:
        if self.fault:
            raise StepError(self.fault, verdict=Verdict.ERROR, cause=Cause.INFRASTRUCTURE)
