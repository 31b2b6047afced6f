"""Stores the lease of a cluster in a Lease object of the Kubernetes API (coordination.k8s.io/v1).

`toolbox.records.leases` takes and renews the lease. The values for which a Lease object has no field are in
annotations. If the object does not name a holder, the lease is free.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

from toolbox.features.kubernetes.api.connection import ApiError, Cluster, Json
from toolbox.features.kubernetes.api.objects import LEASE, Objects, Query
from toolbox.features.kubernetes.api.watching import Watch
from toolbox.ground.model.errors import ConfigurationError, StepError
from toolbox.records.leases.leases import Claim, Record, StoredRecord

NAME: Final = "topgallant"
_PREFIX: Final = "topgallant.dev/"
_OWNER, _PURPOSE, _RUN, _FORCED, _HEARTBEAT = (
    f"{_PREFIX}{word}" for word in ("owner", "purpose", "run", "forced", "heartbeat")
)
_NONE: Final = "none"
_DEFAULT_SECONDS: Final = 60  # the lifetime of a lease that another tool wrote without a lifetime
_READ_SECONDS_WITHOUT_WATCH: Final = 5.0  # the interval of reads if the account may not watch objects
_READ_SECONDS_WITH_WATCH: Final = 300.0  # the interval of reads if a watch reports changes
_TIMEOUT: Final = 5.0
_LONG_AGO: Final = datetime.fromtimestamp(0, UTC)


class LeaseObject:
    """The lease of a cluster. The class implements the protocol `toolbox.records.leases.leases.Lock`.

    Args:
        namespace: the namespace of the object; None for the namespace of `cluster`.
    """

    def __init__(self, cluster: Cluster, name: str = NAME, namespace: str | None = None) -> None:
        self.label = cluster.label
        self._objects = Objects(cluster)
        self._name = name
        self._namespace = namespace or cluster.namespace
        self.key = "/".join([str(cluster.credentials.configuration.host), self._namespace, name])

    def __str__(self) -> str:
        """Return the name and the namespace of the object."""
        return f"{self._name} in the namespace {self._namespace}"

    def read(self, timeout: float) -> StoredRecord:
        """Return the lease and the version of the Lease object."""
        obj = self._objects.read(LEASE, self._namespace, self._name, timeout=timeout)
        if obj is None:
            return StoredRecord(None, "")
        return StoredRecord(record_of(obj), obj["metadata"]["resourceVersion"])

    def write(self, record: Record | None, version: str, timeout: float) -> str | None:
        """Write the Lease object and return its new version; None if its version is no longer `version`.

        Labels and annotations of other tools are not changed.
        """
        spec, annotations = _fields(record)
        metadata: Json = {"name": self._name, "annotations": annotations}
        body: Json = {"apiVersion": LEASE.api_version, "kind": LEASE.name, "metadata": metadata, "spec": spec}
        try:
            if not version:
                metadata["annotations"] = {name: text for name, text in annotations.items() if text is not None}
                answer = self._objects.create(LEASE, self._namespace, body, timeout=timeout)
            else:
                metadata["resourceVersion"] = version
                answer = self._objects.merge(LEASE, self._namespace, self._name, body, timeout=timeout)
        except ApiError as error:
            if error.status == HTTPStatus.CONFLICT or (error.is_absent and version):
                return None
            if error.is_absent:
                raise ConfigurationError(
                    f"{self.label}: there is no namespace {self._namespace} for its lease: create it, or name "
                    "another namespace (`lease.namespace`, --namespace)"
                ) from None
            raise
        return str(answer["metadata"]["resourceVersion"])

    @contextmanager
    def watched(self, change_event: threading.Event) -> Iterator[float]:
        """Set the event after each change of the Lease object, and yield the number of seconds between two reads.

        If the account may not watch objects, the event is never set, and the caller must read the lease more often.
        """
        query = Query(LEASE, self._namespace, fields=f"metadata.name={self._name}")
        watch = Watch(self._objects.cluster, query, _EventHandler(change_event))
        try:
            watch.start(_TIMEOUT)
        except StepError:
            yield _READ_SECONDS_WITHOUT_WATCH
            return
        try:
            yield _READ_SECONDS_WITH_WATCH
        finally:
            watch.close()


class _EventHandler:
    """Sets a `threading.Event` when the Lease object changes. It is the handler of a watch."""

    def __init__(self, change_event: threading.Event) -> None:
        self._change_event = change_event

    def listed(self, objects: Iterator[Json]) -> None:
        """Set the event after a list request."""
        for _ in objects:
            pass
        self._change_event.set()

    def changed(self, kind: str, obj: Json) -> None:  # noqa: ARG002
        """Set the event after a change."""
        self._change_event.set()

    def unreachable(self, seconds: float, reason: str) -> None:
        """Do nothing, because the watch restarts by itself."""


def record_of(obj: Mapping[str, Any]) -> Record | None:
    """Return the record that a Lease object contains; None if the lease is free."""
    spec, annotations = obj.get("spec") or {}, obj["metadata"].get("annotations") or {}
    holder = spec.get("holderIdentity")
    if not holder:
        return None
    claim = Claim(
        holder,
        annotations.get(_OWNER, holder),
        annotations.get(_PURPOSE, ""),
        annotations.get(_RUN, ""),
        int(spec.get("leaseDurationSeconds") or _DEFAULT_SECONDS),
        has_heartbeat=annotations.get(_HEARTBEAT) != _NONE,
    )
    renewed = _moment(spec.get("renewTime"), _LONG_AGO)
    return Record(claim, _moment(spec.get("acquireTime"), renewed), renewed, annotations.get(_FORCED, ""))


def _fields(record: Record | None) -> tuple[Json, Json]:
    """Return the fields and the annotations of a merge patch. A value of None removes the field or annotation."""
    if record is None:
        return {"holderIdentity": None, "acquireTime": None, "renewTime": None}, dict.fromkeys(
            (_OWNER, _PURPOSE, _RUN, _HEARTBEAT)  # keep `_FORCED`, which shows who last took the lease by force
        )
    claim = record.claim
    spec = {
        "holderIdentity": claim.holder,
        "leaseDurationSeconds": claim.ttl,
        "acquireTime": _text(record.acquired),
        "renewTime": _text(record.renewed),
    }
    return spec, {
        _OWNER: claim.owner,
        _PURPOSE: claim.purpose,
        _RUN: claim.run or None,
        _FORCED: record.forced or None,
        _HEARTBEAT: None if claim.has_heartbeat else _NONE,
    }


def _text(moment: datetime) -> str:
    """Return a time as a Kubernetes MicroTime, which must have six decimal places."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _moment(text: str | None, default: datetime) -> datetime:
    return datetime.fromisoformat(text) if text else default
