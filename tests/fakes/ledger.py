"""A ledger of remote resources in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from toolbox.ground.model.resources import OpenResource, Owner, Resource

OWNER = Owner("run-1", "project", "user", "host")


def open_resource(name: str, **fields: Any) -> OpenResource:
    """Return a resource of the kind `node` that a run has left."""
    planned = datetime(2026, 1, 1, tzinfo=UTC)
    resource = Resource("node", name, {}, 60, f"delete {name}", fields.pop("keep", False))
    return OpenResource(resource, OWNER, planned, planned + timedelta(seconds=60), **fields)


class MemoryLedger:
    """A `ResourceLedger` that also records its calls, such as `plan NAME`, in their order."""

    def __init__(self, owner: Owner = OWNER) -> None:
        self.owner = owner
        self.calls: list[str] = []
        self._open: dict[tuple[str, str], OpenResource] = {}

    def plan(self, resource: Resource) -> None:
        """See `ResourceLedger`."""
        self.calls.append(f"plan {resource.name}")
        now = datetime.now(UTC)
        planned = OpenResource(resource, self.owner, now, now + timedelta(seconds=resource.ttl))
        self._open[resource.key] = planned

    def mark_created(self, resource: Resource) -> None:
        """See `ResourceLedger`."""
        self.calls.append(f"created {resource.name}")
        if resource.key in self._open:
            self._open[resource.key] = replace(self._open[resource.key], is_created=True, is_absent=False)

    def mark_deleted(self, resource: Resource) -> None:
        """See `ResourceLedger`."""
        self.calls.append(f"deleted {resource.name}")
        self._open.pop(resource.key, None)

    def mark_absent(self, resource: Resource) -> None:
        """See `ResourceLedger`."""
        self.calls.append(f"absent {resource.name}")
        entry = self._open.get(resource.key)
        if entry is None or entry.is_created or datetime.now(UTC) >= entry.awaited_until:
            self._open.pop(resource.key, None)
        else:
            self._open[resource.key] = replace(entry, failure="", is_absent=True)

    def mark_failed(self, resource: Resource, message: str) -> None:
        """See `ResourceLedger`."""
        self.calls.append(f"failed {resource.name}")
        if resource.key in self._open:
            self._open[resource.key] = replace(self._open[resource.key], failure=message, is_absent=False)

    def open_resources(self) -> Sequence[OpenResource]:
        """See `ResourceLedger`."""
        return list(self._open.values())
