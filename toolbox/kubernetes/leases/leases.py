"""Leases: who may use what many share, what for, and how long it lasts when nothing more is heard of them.

`taking.py` takes one, `heartbeats.py` keeps it. Where it is written is the affair of a `Lock`: `lease_objects.py` is
that of a cluster, `lock_files.py` that of a machine.
"""

from __future__ import annotations

import getpass
import os
import socket
import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

_MINUTE: Final = 60
_HOUR: Final = 3600


@dataclass(frozen=True, slots=True)
class Claim:
    """Who wants a lease.

    Args:
        holder: who that is, and nobody else: the name of a run, or `user@host` of a person.
        owner: whom to ask, `user@host`.
        run: empty where it is a person.
        ttl: how many seconds it lasts after the last heartbeat.
        beats: whether there are heartbeats. A person's lease has none: it ends at its time.
    """

    holder: str
    owner: str
    purpose: str
    run: str = ""
    ttl: int = 60
    beats: bool = True


@dataclass(frozen=True, slots=True)
class Record:
    """A lease as it is written.

    Args:
        acquired: when it was taken, and `renewed`: its last heartbeat, both by the clock of its holder.
        forced: who took it from whom, where it was taken by force.
    """

    claim: Claim
    acquired: datetime
    renewed: datetime
    forced: str = ""

    @property
    def end(self) -> datetime:
        """When it ends if there is no other heartbeat, by the clock of its holder."""
        return self.renewed + timedelta(seconds=self.claim.ttl)

    def __str__(self) -> str:
        """Return who holds it, for what, and since when."""
        run = f" (run {self.claim.run})" if self.claim.run else ""
        age = shown_seconds((now() - self.acquired).total_seconds())
        force = ", by force" if self.forced else ""
        return f"held by {self.claim.owner} for '{self.claim.purpose}'{run} since {clock(self.acquired)}, {age}{force}"

    @property
    def expiry(self) -> str:
        """When it ends, as a person reads it."""
        if self.claim.beats:
            return f"it expires {shown_seconds(self.claim.ttl)} after its last heartbeat"
        return f"it ends at {clock(self.end)}, in {shown_seconds((self.end - now()).total_seconds())}"


@dataclass(frozen=True, slots=True)
class Seen:
    """What was found where a lease is written.

    Args:
        record: None where nobody holds it.
        version: of what is written there, empty where nothing is; `Lock.write` writes only over what was seen.
    """

    record: Record | None
    version: str


class Lock(Protocol):
    """Where a lease is written.

    Args:
        label: what messages call the thing that is shared.
        key: the same for all who mean the same place.
    """

    label: str
    key: str

    def read(self, patience: float) -> Seen:
        """Return what is written there.

        Raises:
            StepError: it cannot be read, for so many seconds.
        """

    def write(self, record: Record | None, version: str, patience: float) -> str | None:
        """Write who holds it, or that nobody does, and return the new version; None where others have written since.

        Raises:
            StepError: it cannot be written, for so many seconds.
        """

    def watched(self, news: threading.Event) -> AbstractContextManager[float]:
        """Set an event when something is written, and yield after how many seconds to look all the same."""


def me() -> str:
    """Return who we are, as people say it: `user@host`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container with a user id that nobody named
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def now() -> datetime:
    """Return the time."""
    return datetime.now(UTC)


def clock(moment: datetime) -> str:
    """Return a time of the day, with its date where that is not today."""
    local = moment.astimezone()
    return f"{local:%H:%M}" if local.date() == now().astimezone().date() else f"{local:%Y-%m-%d %H:%M}"


def shown_seconds(seconds: float) -> str:
    """Return how long something takes: `45 s`, `14 min`, `3.5 h`."""
    if seconds < 2 * _MINUTE:
        return f"{max(0, round(seconds))} s"
    return f"{round(seconds / _MINUTE)} min" if seconds < 2 * _HOUR else f"{seconds / _HOUR:.3g} h"
