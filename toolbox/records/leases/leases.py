"""The data of a lease, and the protocol of the stores of leases.

`taking.py` takes a lease, and `heartbeats.py` renews it. `lock_files.py` stores the lease of a machine, and
`toolbox/features/kubernetes/lease_objects.py` stores the lease of a cluster.
"""

from __future__ import annotations

import socket
import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from toolbox.ground.model.foreign_text import printable
from toolbox.ground.model.text import duration, truncate
from toolbox.ground.system import environ

_LONGEST_TEXT: Final = 300


@dataclass(frozen=True, slots=True)
class Claim:
    """A request for a lease.

    Args:
        holder: the unique name of the holder: the name of a run, or `user@host` for a person.
        owner: the person to contact about the lease, as `user@host`, or the address of the CI job.
        purpose: why the holder needs the lease.
        run: the name of the run; empty if the holder is a person.
        ttl: the number of seconds from the last heartbeat to the end of the lease.
        has_heartbeat: whether the holder sends heartbeats. The lease of a person ends `ttl` seconds after it was taken.
    """

    holder: str
    owner: str
    purpose: str
    run: str = ""
    ttl: int = 60
    has_heartbeat: bool = True


@dataclass(frozen=True, slots=True)
class Record:
    """The stored state of a lease.

    Args:
        claim: the request for the lease, which names the holder and the purpose.
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
        """When the lease ends if no further heartbeat is sent, by the clock of its holder."""
        return self.renewed + timedelta(seconds=self.claim.ttl)

    def __str__(self) -> str:
        """Return the owner, the purpose and the age of the lease, for messages. Other users wrote these texts."""
        owner, purpose, name = map(_one_line, (self.claim.owner, self.claim.purpose, self.claim.run))
        run = f" (run {name})" if name else ""
        age = duration((now() - self.acquired).total_seconds(), digits=0)
        force = ", by force" if self.forced else ""
        since = local_time(self.acquired)
        return f"held by {owner} for '{purpose}'{run} since {since}, {age}{force}"

    @property
    def expiry(self) -> str:
        """When the lease ends, as a part of a message."""
        if self.claim.has_heartbeat:
            return f"it expires {duration(self.claim.ttl, digits=0)} after its last heartbeat"
        return f"it ends at {local_time(self.end)}, in {duration((self.end - now()).total_seconds(), digits=0)}"


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """The content of a `Lock`.

    Args:
        record: the state of the lease; None if the lease is free.
        version: the version of the content; empty if nothing is stored.
    """

    record: Record | None
    version: str


class Lock(Protocol):
    """The store of one lease.

    Args:
        label: the name of the shared cluster or machine, for messages.
        key: identifies the lease. Two locks with the same key store the same lease.
    """

    label: str
    key: str

    def read(self, timeout: float) -> StoredRecord:
        """Return the content of the store.

        Raises:
            StepError: the store could not be read within `timeout` seconds.
        """

    def write(self, record: Record | None, version: str, timeout: float) -> str | None:
        """Replace the content of the store, and return the new version.

        If the version of the content is no longer `version`, change nothing, and return None.

        Args:
            record: the new state of the lease; None to free the lease.

        Raises:
            StepError: the store could not be written within `timeout` seconds.
        """

    def watched(self, changed: threading.Event) -> AbstractContextManager[float]:
        """Set the event after each change of the store while the body runs.

        Yield the number of seconds after which to read the store even without an event.
        """


def _one_line(text: str) -> str:
    return truncate(" ".join(printable(text).split()), _LONGEST_TEXT)


def current_user() -> str:
    """Return the user and the host of this process as `user@host`."""
    return f"{environ.user()}@{socket.gethostname()}"


def now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


def local_time(moment: datetime) -> str:
    """Return a moment in local time as text, with its date unless it is today."""
    local = moment.astimezone()
    return f"{local:%H:%M}" if local.date() == now().astimezone().date() else f"{local:%Y-%m-%d %H:%M}"
