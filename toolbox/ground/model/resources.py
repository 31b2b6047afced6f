"""Remote resources, as frozen data: what a run or a command created on another system, and how to delete it.

`toolbox/records/runs/ledger.py` records resources. The modules in `toolbox/orchestration/resources/` delete them. A
resource carries the facts of its ledger entry as labels, so that the resource can be found and deleted even if its
ledger is lost.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol, Self

LABEL_PREFIX: Final = "topgallant-"
LATE: Final = timedelta(hours=1)
"""How long after a request its resource may still be created, if the outcome of the request is unknown.

Google Cloud gives no bound for a creation that was accepted while its API was failing. Its APIs guarantee for an hour
to recognize a repeated request by its `request_id`, so a request is assumed to last for at most an hour.
"""
_EXPIRES: Final = "expires"
_LONGEST_LABEL: Final = 63  # characters, the limit of Kubernetes and of Google Cloud
_NOT_IN_LABEL: Final = re.compile(r"[^a-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Resource:
    """A remote resource, and how to delete it.

    Args:
        kind: the name of the module in `toolbox/orchestration/resources/` that can delete the resource.
        name: the full name on the remote side, unique among the resources of the kind. It is derived from the run, the
            cell and the attempt, so that a resumed run computes the same name.
        deletion: what the module needs to delete the resource, as JSON values without secrets.
        ttl: the number of seconds from the planning of the resource until any user may delete it with `resources reap`.
        command: a command line with which a person can delete the resource.
        keep: whether the resource is kept at the end of the run, if it was created completely.
    """

    kind: str
    name: str
    deletion: Mapping[str, Any]
    ttl: float
    command: str
    keep: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """The kind and the name, which identify the resource."""
        return self.kind, self.name


@dataclass(frozen=True, slots=True)
class Owner:
    """The run or the person to which resources belong.

    Args:
        run: the name of the run; empty if a person created the resource by a command outside a run.
        project: the project of the run; empty outside a run.
        host: the machine on which the run or the command was executed.
    """

    run: str
    project: str
    user: str
    host: str

    def labels(self, ttl: float | None = None, *, prefix: str = LABEL_PREFIX) -> dict[str, str]:
        """Return the labels of a resource. Their values are valid in Kubernetes and in Google Cloud.

        Args:
            ttl: the time from now until any user may delete the resource, in seconds. The label of the expiry contains
                the number of seconds since 1970. None for the labels of the owner only.
            prefix: the prefix of the keys.
        """
        labels = {f"{prefix}{field.name}": label_value(getattr(self, field.name)) for field in fields(self)}
        if ttl is not None:
            labels[f"{prefix}{_EXPIRES}"] = str(round((datetime.now(UTC) + timedelta(seconds=ttl)).timestamp()))
        return labels

    def owns(self, labels: Mapping[str, str], *, prefix: str = LABEL_PREFIX) -> bool:
        """Return whether labels of a remote resource are those of this owner."""
        return self.labels(prefix=prefix).items() <= labels.items()

    @classmethod
    def from_labels(cls, labels: Mapping[str, str], *, prefix: str = LABEL_PREFIX) -> Self | None:
        """Return the owner that labels name; None if a label is missing."""
        keys = [f"{prefix}{field.name}" for field in fields(cls)]
        return cls(*(labels[key] for key in keys)) if labels.keys() >= set(keys) else None


@dataclass(frozen=True, slots=True)
class OpenResource:
    """A resource that may exist.

    Args:
        planned: when the resource was last planned, or created if only its labels are known.
        expires: when any user may delete the resource.
        is_created: whether the resource was created completely.
        failure: why the latest deletion failed; empty if none was tried.
        is_absent: whether the resource was found not to exist, although its request may still be carried out.
        is_sealed: whether this user wrote the entry on this machine, or the resource was found by its labels. Other
            entries are never deleted.
    """

    resource: Resource
    owner: Owner
    planned: datetime
    expires: datetime
    is_created: bool = False
    failure: str = ""
    is_absent: bool = False
    is_sealed: bool = True

    @property
    def awaited_until(self) -> datetime:
        """The time until which the request for the resource may still be carried out, if its outcome is unknown."""
        return self.planned + LATE

    @property
    def is_kept(self) -> bool:
        """Whether the resource is kept at the end of the run."""
        return self.resource.keep and self.is_created

    @property
    def state(self) -> str:
        """The state of the resource, for people."""
        if self.failure:
            return f"could not be deleted: {self.failure.partition(chr(10))[0]}"
        if self.is_absent:
            return f"does not exist, but its request may still be carried out until {self.awaited_until:%H:%M} UTC"
        if self.is_kept:
            return "kept"
        return "created" if self.is_created else "planned, and may exist in part"

    def __str__(self) -> str:
        """Return what may exist, and how a person can delete it."""
        resource = self.resource
        return f"{resource.kind} {resource.name} ({self.state}); to delete it: {resource.command}"


class ResourceLedger(Protocol):
    """Records the remote resources of one owner. Any thread may call it.

    Args:
        owner: the owner of new resources. `owner.labels()` are the labels of the resources.
    """

    @property
    def owner(self) -> Owner:
        """The owner of new resources."""

    def plan(self, resource: Resource) -> None:
        """Record that a resource is about to be created. The record is on the disk when the method returns.

        If the resource is open already, its time to live begins again, and the resource is not yet created.

        Raises:
            InfrastructureError: the record cannot be written, so the resource must not be created.
        """

    def mark_created(self, resource: Resource) -> None:
        """Record that the resource was created completely. If this fails, the resource remains planned."""

    def mark_deleted(self, resource: Resource) -> None:
        """Record that the resource does not exist (any more). If this fails, the resource remains open."""

    def mark_absent(self, resource: Resource) -> None:
        """Record that the resource does not exist, and was not deleted.

        A resource that was planned less than `LATE` ago, and never marked as created, remains open: its request may
        still be carried out.
        """

    def mark_failed(self, resource: Resource, message: str) -> None:
        """Record why a deletion of the resource failed. The resource remains open."""

    def open_resources(self) -> Sequence[OpenResource]:
        """Return the resources that were planned or created, and not deleted, oldest first."""


def label_value(text: str) -> str:
    """Return a text as the value of a label: lower case, without characters that Google Cloud or Kubernetes refuse."""
    return _NOT_IN_LABEL.sub("-", text.lower())[:_LONGEST_LABEL].strip("-_")


def expiry_of(labels: Mapping[str, str], *, prefix: str = LABEL_PREFIX) -> datetime | None:
    """Return when a resource with these labels expires; None if the label is missing or not a time."""
    try:
        return datetime.fromtimestamp(int(labels[f"{prefix}{_EXPIRES}"]), UTC)
    except (KeyError, ValueError, OverflowError, OSError):
        return None
