"""Leases of shared clusters and machines: who holds one, for what, and how long it lasts without a heartbeat.

`taking.py` takes a lease, and `heartbeats.py` renews it. A `Lock` stores it: `lock_files.py` for a machine,
`toolbox/kubernetes/lease_objects.py` for a cluster.
"""

from __future__ import annotations

import getpass
import os
import socket
import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from toolbox.model.text import duration


@dataclass(frozen=True, slots=True)
class Claim:
    """A request for a lease.

    Args:
        holder: the unique name of the holder: the name of a run, or `user@host` for a person.
        owner: the person to ask about the lease, `user@host`.
        purpose: what the lease is for, in the holder's words.
        run: the name of the run; empty if the holder is a person.
        ttl: the number of seconds that the lease lasts after its last heartbeat.
        beats: whether the holder sends heartbeats. A person's lease has none, and ends after `ttl` seconds.
    """

    holder: str
    owner: str
    purpose: str
    run: str = ""
    ttl: int = 60
    beats: bool = True


@dataclass(frozen=True, slots=True)
class Record:
    """The stored state of a lease.

    Args:
        claim: who holds the lease, and for what.
        acquired: when the lease was taken, by the clock of its holder.
        renewed: when the last heartbeat was sent, by the clock of its holder.
        forced: who took the lease by force, and from whom; empty if it was not taken by force.
    """

    claim: Claim
    acquired: datetime
    renewed: datetime
    forced: str = ""

    @property
    def end(self) -> datetime:
        """When the lease ends without another heartbeat, by the clock of its holder."""
        return self.renewed + timedelta(seconds=self.claim.ttl)

    def __str__(self) -> str:
        """Return who holds the lease, for what, and since when."""
        run = f" (run {self.claim.run})" if self.claim.run else ""
        age = duration((now() - self.acquired).total_seconds(), digits=0)
        force = ", by force" if self.forced else ""
        return f"held by {self.claim.owner} for '{self.claim.purpose}'{run} since {clock(self.acquired)}, {age}{force}"

    @property
    def expiry(self) -> str:
        """A sentence for messages on when the lease ends."""
        if self.claim.beats:
            return f"it expires {duration(self.claim.ttl, digits=0)} after its last heartbeat"
        return f"it ends at {clock(self.end)}, in {duration((self.end - now()).total_seconds(), digits=0)}"


@dataclass(frozen=True, slots=True)
class Seen:
    """The result of reading a `Lock`.

    Args:
        record: the state of the lease; None if the lease is free.
        version: the version that was read, empty if nothing is stored. `Lock.write` replaces only this version.
    """

    record: Record | None
    version: str


class Lock(Protocol):
    """A store of one lease.

    Args:
        label: the name of the shared cluster or machine, for messages.
        key: identifies the store: two locks with the same key are the same lease.
    """

    label: str
    key: str

    def read(self, timeout: float) -> Seen:
        """Return the stored state.

        Raises:
            StepError: the state could not be read within `timeout` seconds.
        """

    def write(self, record: Record | None, version: str, timeout: float) -> str | None:
        """Store the holder, or None to free the lease, and return the new version.

        Return None, and store nothing, if the stored version is no longer `version`.

        Raises:
            StepError: the state could not be written within `timeout` seconds.
        """

    def watched(self, news: threading.Event) -> AbstractContextManager[float]:
        """Set the event `news` after each change, and yield the number of seconds after which to read anyway."""


def me() -> str:
    """Return the user and the host of this process: `user@host`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # in a container, the user id may have no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


def clock(moment: datetime) -> str:
    """Return a local time, with the date unless it is today."""
    local = moment.astimezone()
    return f"{local:%H:%M}" if local.date() == now().astimezone().date() else f"{local:%Y-%m-%d %H:%M}"
